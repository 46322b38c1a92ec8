package backup

import (
	"archive/tar"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/history"
	"drun/history/records"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unpack makes a home of a backup.
func unpack(t *testing.T, path string) string {
	t.Helper()
	home := t.TempDir()
	file, err := os.Open(path)
	ok(t, err)
	defer file.Close()
	for in := tar.NewReader(file); ; {
		header, err := in.Next()
		if err == io.EOF {
			return home
		}
		ok(t, err)
		name := filepath.Join(home, header.Name)
		ok(t, os.MkdirAll(filepath.Dir(name), 0o700))
		data, err := io.ReadAll(in)
		ok(t, err)
		ok(t, os.WriteFile(name, data, 0o600))
	}
}

// newest are the last step of the metric "x" and of the checkpoints of run 1, in
// the catalog and as the history lists them.
func newest(t *testing.T, home string) (logged, saved, listed int64) {
	t.Helper()
	db, err := history.Open(home)
	ok(t, err)
	defer db.Close()
	d, err := db.Get(1)
	ok(t, err)
	store, err := checkpoints.OpenReadOnly(home)
	ok(t, err)
	defer store.Close()
	info, _, err := store.Load(uid(t, home), checkpoints.Last, 0)
	ok(t, err)
	for _, c := range d.Checkpoints {
		listed = max(listed, c.Step)
	}
	return int64(d.Metrics["x"].Last), info.Step, listed
}

func uid(t *testing.T, home string) (uid string) {
	t.Helper()
	db, err := sql.Open("sqlite3", filepath.Join(home, "history.db"))
	ok(t, err)
	defer db.Close()
	ok(t, db.QueryRow("SELECT uid FROM runs WHERE id = 1").Scan(&uid))
	return uid
}

// A run that is resumed from a backup has all that was logged before its
// checkpoint, also what was still waiting for a locked history.
func TestWhatIsLoggedBeforeASaveIsInTheBackup(t *testing.T) {
	for _, locked := range []bool{false, true} {
		home := t.TempDir()
		db, err := history.Open(home)
		ok(t, err)
		defer db.Close()
		store, err := checkpoints.Open(home)
		ok(t, err)
		defer store.Close()
		r, err := db.Begin(history.RunInfo{Recipe: "x.star", WorldSize: 1})
		ok(t, err)
		step := func(i int64) {
			b := &history.Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Step: i, Value: float64(i), Time: time.Now()}}}}
			if locked {
				ok(t, r.Spool(b))
			} else {
				ok(t, r.Write(b))
			}
			_, err := store.Save(r.UID, i, nil, map[int][]checkpoints.Entry{0: {{Name: "w", Data: []byte{byte(i), byte(i >> 8)}}}})
			ok(t, err)
			if !locked {
				ok(t, r.Write(&history.Batch{Checkpoints: []history.Checkpoint{{Step: i, Bytes: 2, Time: time.Now()}}}))
			}
		}
		step(1)
		stop, stopped := make(chan bool), make(chan bool)
		go func() {
			defer close(stopped)
			for i := int64(2); ; i++ {
				select {
				case <-stop:
					return
				default:
					step(i)
				}
			}
		}()
		var paths []string
		for range 15 {
			paths = append(paths, filepath.Join(t.TempDir(), "b.tar"))
			_, err := Write(home, paths[len(paths)-1])
			ok(t, err)
		}
		close(stop)
		<-stopped
		for _, path := range paths {
			logged, saved, listed := newest(t, unpack(t, path))
			if logged < saved || listed > saved {
				t.Errorf("locked %v: logged to %d, saved to %d, listed to %d", locked, logged, saved, listed)
			}
		}
	}
}

// A backup replaces no file, and leaves nothing behind where there is one.
func TestNoFileIsReplaced(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	ok(t, db.Close())
	path := filepath.Join(folder, "b.tar")
	ok(t, os.WriteFile(path, []byte("mine"), 0o600))
	if _, err := Write(home, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	content, err := os.ReadFile(path)
	ok(t, err)
	all, err := os.ReadDir(folder)
	ok(t, err)
	if string(content) != "mine" || len(all) != 1 {
		t.Errorf("%.20q, %v", content, all)
	}
}

// The files of runs are in a backup; a write that goes on is not, nor what a link leads to.
func TestFilesAreInTheBackup(t *testing.T) {
	home := t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	ok(t, db.Close())
	for _, name := range []string{"outputs/1/deep/w.bin", "outputs/1/.w.bin.part", "artifacts/0/u/artifacts/model/MLmodel", "artifacts/0/u/artifacts/.drun-part-x", "other/x", "users.json"} {
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
		ok(t, os.WriteFile(filepath.Join(home, name), []byte(name), 0o600))
	}
	ok(t, os.Symlink("/etc/hostname", filepath.Join(home, "outputs/1/link")))
	path := filepath.Join(t.TempDir(), "b.tar")
	_, err = Write(home, path)
	ok(t, err)
	there := unpack(t, path)
	var found []string
	ok(t, filepath.WalkDir(there, func(path string, entry fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(there, path); !entry.IsDir() && name != "history.db" {
			found = append(found, name)
			if text, _ := os.ReadFile(path); string(text) != name {
				t.Errorf("%s is %q", name, text)
			}
		}
		return err
	}))
	if got := fmt.Sprint(found); got != "[artifacts/0/u/artifacts/model/MLmodel outputs/1/deep/w.bin users.json]" {
		t.Errorf("there are %s", got)
	}
}
