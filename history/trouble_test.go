package history

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/sqldb"
)

// storage checks that err is a storage error (exit code 7) that says want.
func storage(t *testing.T, err error, want string) {
	t.Helper()
	var failure *sqldb.Error
	if !errors.As(err, &failure) {
		t.Fatalf("want a storage error about %q, got %v", want, err)
	}
	if hint := exit.HintOf(err); !strings.Contains(failure.Error(), want) || hint == "" || exit.CodeOf(err) != exit.Storage {
		t.Errorf("want %q and a hint, got %v (hint %q)", want, failure, hint)
	}
}

func TestRefusedFilesStayAsTheyAre(t *testing.T) {
	plain := func(statements string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite3", path)
			ok(t, err)
			_, err = db.Exec(statements)
			ok(t, err)
			ok(t, db.Close())
		}
	}
	cases := []struct {
		name, want string
		make       func(t *testing.T, path string)
	}{
		{"text", "not a SQLite database", func(t *testing.T, path string) {
			ok(t, os.WriteFile(path, bytes.Repeat([]byte("this is no database\n"), 500), 0o666))
		}},
		{"a few bytes", "not a SQLite database", func(t *testing.T, path string) { ok(t, os.WriteFile(path, []byte("hi"), 0o666)) }},
		{"another program's", "not drun's history", plain("CREATE TABLE theirs (x)")},
		{"newer schema", "newer drun: its schema is version 99", func(t *testing.T, path string) {
			open(t, filepath.Dir(path)).Close()
			plain("PRAGMA user_version = 99")(t, path)
		}},
		{"a schema below 0", "damaged", func(t *testing.T, path string) {
			open(t, filepath.Dir(path)).Close()
			plain("PRAGMA user_version = -3")(t, path)
		}},
		{"damaged", "damaged", func(t *testing.T, path string) {
			open(t, filepath.Dir(path)).Close()
			content, err := os.ReadFile(path)
			ok(t, err)
			copy(content[4096:], bytes.Repeat([]byte{0xa5}, 4096*8)) // the pages after the first
			copy(content[100:], bytes.Repeat([]byte{0xa5}, 200))     // and the schema's root
			ok(t, os.WriteFile(path, content, 0o666))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			path := filepath.Join(home, "history.db")
			c.make(t, path)
			before, err := os.ReadFile(path)
			ok(t, err)
			_, err = Open(home)
			storage(t, err, c.want)
			_, err = OpenReadOnly(home)
			storage(t, err, c.want)
			after, err := os.ReadFile(path)
			ok(t, err)
			if !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestPlacesThatCannotHoldAHistory(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(dir+"/file", nil, 0o666))
	ok(t, os.MkdirAll(dir+"/home/history.db", 0o777))
	for home, want := range map[string]string{dir + "/file": "a file stands where a folder is needed",
		dir + "/file/below": "a file stands where a folder is needed", dir + "/home": "folder"} {
		_, err := Open(home)
		storage(t, err, want)
		_, err = OpenReadOnly(home)
		storage(t, err, want)
	}
	var none *ErrNone
	for _, home := range []string{dir + "/nothing", dir + "/empty"} {
		if strings.HasSuffix(home, "empty") {
			ok(t, os.MkdirAll(home, 0o777))
			ok(t, os.WriteFile(home+"/history.db", nil, 0o666))
		}
		if _, err := OpenReadOnly(home); !errors.As(err, &none) {
			t.Errorf("%s: %v", home, err)
		}
	}
	open(t, dir+"/empty") // an empty file is made a history
}

// asNobody runs fn with the file permissions of an ordinary user also where
// the tests run as root, whom permissions do not bind. They are those of one
// thread, which ends with fn.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is thrown away
		if os.Geteuid() == 0 {
			unix.SetfsuidRetUid(65534)
			if now, _ := unix.SetfsuidRetUid(-1); now != 65534 {
				done <- fmt.Errorf("setfsuid: still %d", now)
				return
			}
		}
		fn()
		done <- nil
	}()
	ok(t, <-done)
}

func TestReadersNeedNoWriteAccess(t *testing.T) {
	for _, left := range []string{"closed", "wal", "running", "lost", "old"} {
		t.Run(left, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "home")
			switch left {
			case "lost":
				hang(t, home)()
			case "running":
				hang(t, home)
			case "old": // which cannot be brought up to date where it is
				old := oldHistory(t, home, 6)
				_, err := old.Exec(`INSERT INTO runs (id, uid, name, recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command)
					VALUES (1, 'u', 'kept', 'a.star', 'done', 1, 'shm', 0, 1, '2026-01-02T03:04:05.000000Z', 'v1', 'h', 1, '/', '[]');
					INSERT INTO metrics VALUES (1, 1, 'm', 0, 0, 1, NULL, 1, '2026-01-02T03:04:05.000000Z');
					INSERT INTO metric_summaries VALUES (1, 'm', 1, 1, 1, 1, 1)`)
				ok(t, err)
				ok(t, old.Close())
			default:
				db := open(t, home)
				r := begin(t, db, RunInfo{Name: "kept"})
				ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "m", Value: 1, Time: time.Now()}}}}))
				ok(t, finish(r, Done, 0, ""))
				if left == "closed" {
					ok(t, db.Close())
				}
			}
			if left == "wal" {
				home = copyHome(t, home)
			}
			ok(t, filepath.Walk(home, func(path string, info os.FileInfo, err error) error {
				if err == nil && info.IsDir() {
					return os.Chmod(path, 0o555)
				}
				return os.Chmod(path, 0o444)
			}))
			t.Cleanup(func() { // so that they can be removed by whoever is not root
				os.Chmod(home, 0o777)
				os.Chmod(filepath.Join(home, "locks"), 0o777)
			})
			for dir := home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
				if dir != home {
					ok(t, os.Chmod(dir, 0o755)) // nobody must get there
				}
			}
			entries, err := os.ReadDir(home)
			ok(t, err)
			var list []Summary
			asNobody(t, func() {
				var db *DB
				if db, err = OpenReadOnly(home); err == nil {
					list, err = db.List(0)
					db.Close()
				}
			})
			ok(t, err)
			want := map[string]Status{"lost": Lost, "running": Running}[left]
			if want == "" {
				want = Done
			}
			if len(list) != 1 || list[0].Status != want || want == Done && list[0].Metrics["m"].Last != 1 {
				t.Errorf("list = %+v", list)
			}
			if now, _ := os.ReadDir(home); len(now) != len(entries) {
				t.Errorf("the folder held %v, now %v", entries, now)
			}
			asNobody(t, func() { _, err = Open(home) })
			storage(t, err, "cannot be opened")
		})
	}
}

// copyHome copies the database and its WAL, without the -shm file: what a
// backup or a read-only image holds.
func copyHome(t *testing.T, home string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	ok(t, os.MkdirAll(to, 0o777))
	for _, name := range []string{"history.db", "history.db-wal"} {
		content, err := os.ReadFile(filepath.Join(home, name))
		ok(t, err)
		if len(content) == 0 {
			t.Fatalf("%s is empty", name)
		}
		ok(t, os.WriteFile(filepath.Join(to, name), content, 0o666))
	}
	return to
}

// fill writes until the storage fails and returns the error and how many
// batches were accepted before it.
func fill(t *testing.T, r *Run) (int64, error) {
	t.Helper()
	text := strings.Repeat("x", 1000)
	for n := int64(0); n < 10000; n++ {
		lines := make([]LogLine, 10)
		for i := range lines {
			lines[i] = LogLine{Stream: "stdout", Time: time.Now(), Text: text}
		}
		if err := r.Write(&Batch{Lines: lines}); err != nil {
			return n, err
		}
	}
	t.Fatal("the disk never became full")
	return 0, nil
}

func checkFilled(t *testing.T, home string, batches int64) {
	t.Helper()
	ro := reader(t, home)
	count := int64(0)
	_, err := ro.Logs(1, LogFilter{}, func(LogLine) error { count++; return nil })
	if err != nil || count != batches*10 {
		t.Errorf("%d lines are readable, %d were accepted, %v", count, batches*10, err)
	}
}

// Readers wait for no writer, not even to note that a run is lost.
func TestReadersDoNotWait(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	hang(t, home)()
	holder := open(t, t.TempDir())
	_, err := holder.sql.Exec("ATTACH ? AS held", filepath.Join(home, "history.db"))
	ok(t, err)
	tx, err := holder.sql.Begin()
	ok(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("UPDATE held.runs SET name = 'x'")
	ok(t, err)
	start := time.Now()
	db := reader(t, home)
	list, err := db.List(0)
	ok(t, err)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(list) != 1 || list[0].Status != Lost {
		t.Errorf("list = %+v", list)
	}
}

func TestFullDatabase(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	r := begin(t, db, RunInfo{})
	_, err := db.sql.Exec("PRAGMA max_page_count = 100")
	ok(t, err)
	n, err := fill(t, r)
	storage(t, err, "disk is full")
	checkFilled(t, home, n)
	_, err = db.sql.Exec("PRAGMA max_page_count = 100000")
	ok(t, err)
	ok(t, finish(r, Failed, 7, "disk full")) // the handle still works
}

// smallDisk is a home on a disk of that size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	return filepath.Join(disk, "home")
}

func TestFullDisk(t *testing.T) {
	for _, size := range []string{"400k", "4k"} {
		home := smallDisk(t, size)
		db, err := Open(home)
		if size == "4k" {
			storage(t, err, "disk is full")
			continue
		}
		ok(t, err)
		n, err := fill(t, begin(t, db, RunInfo{}))
		storage(t, err, "disk is full")
		checkFilled(t, home, n)
		_, err = db.Begin(RunInfo{Recipe: strings.Repeat("y", 100000)})
		storage(t, err, "disk is full")
		ok(t, db.Close())
		checkFilled(t, home, n)
	}
}

// Every place of a history is damaged in turn: what reads it says so, or gives what is left, and never panics.
func TestDamageAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes on one goroutine")
	}
	home := t.TempDir()
	db := open(t, home)
	for range 5 {
		r := begin(t, db, RunInfo{})
		ok(t, r.Write(&Batch{Params: []Param{{"lr", 0.5}}, End: &End{Status: Done}, Batch: records.Batch{Tags: []string{"t"}, Points: []records.Point{{Name: "m", Value: 1, Time: time.Now()}}}}))
	}
	look := Selection{Params: Names{All: true}, Metrics: Names{All: true}, Tags: true, Checkpoints: true}
	// As where an index leads to the rows of another run.
	storage(t, db.attach(&look, map[int64]*Summary{}, []int64{1}), "is damaged")
	ok(t, db.Close())
	path := filepath.Join(home, "history.db")
	whole, err := os.ReadFile(path)
	ok(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		content := bytes.Clone(whole)
		for range 1 + random.IntN(6) {
			content[random.IntN(len(content))] ^= 1 << random.IntN(8)
		}
		ok(t, os.WriteFile(path, content, 0o600))
		damaged, err := OpenReadOnly(home)
		if err != nil {
			continue
		}
		_, _ = damaged.Select(look)
		for id := range int64(6) {
			_, _ = damaged.Get(id)
			_, _ = damaged.Points(id)
		}
		_, _ = damaged.Compare([]int64{1, 2})
		damaged.Close()
	}
}
