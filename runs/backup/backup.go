// Package backup puts a home, its history and its checkpoints, into one file while runs go on.
package backup

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/scratch"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Size says what a backup contains.
type Size struct {
	Packs int
	Bytes int64
	// Damaged are the checkpoints in the backup with chunks that differ from what was saved.
	Damaged []Damaged
}

// Damaged is a checkpoint with the first of its faults.
type Damaged struct {
	Checkpoint checkpoints.Info
	Fault      error
}

// Write makes a tar archive at path, which must not exist, of history.db, checkpoints.db, the packs with the
// checkpoints' data and the files of runs: once unpacked, it is a home. It appears when it is complete and durable. Without a history the
// error is *history.ErrNone.
func Write(home, path string) (size Size, err error) {
	defer try.Caught(&err)
	folder := try.To(scratch.MakeIn(filepath.Dir(path), ".drun-backup-")) // also removes what a killed backup left
	defer folder.Remove()
	temp := folder.Path
	out := try.To(os.OpenFile(filepath.Join(temp, "archive"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600))
	defer out.Close()
	w := &writer{home: home, temp: temp, tar: tar.NewWriter(out), done: map[string]bool{}}
	try.Ok(w.all())
	try.Ok(errors.Join(w.tar.Close(), out.Sync()))
	info := try.To(out.Stat())
	// A link, unlike a rename, does not replace a file that has appeared meanwhile.
	try.Ok(os.Link(out.Name(), path))
	size = Size{Packs: len(w.done), Bytes: info.Size()}
	try.Ok(sqldb.Sync(filepath.Dir(path)))
	size.Damaged, err = w.damaged()
	return size, err
}

// damaged checks the copied checkpoints at their source.
func (w *writer) damaged() (found []Damaged, err error) {
	defer try.Caught(&err)
	copied, err := checkpoints.OpenIfAny(w.temp)
	if copied == nil || err != nil {
		return nil, err
	}
	defer copied.Close()
	list := try.To(copied.All())
	store := try.To(checkpoints.OpenReadOnly(w.home))
	defer store.Close()
	for _, info := range list {
		_, faults, err := store.Verify(info.Run, info.Ref())
		switch {
		case errors.As(err, new(*checkpoints.ErrNone)): // a running run has removed it
		case checkpoints.IsElsewhere(err) || len(faults) > 0 && checkpoints.IsElsewhere(faults[0].Err): // its chunks are in a bucket
		case err != nil:
			found = append(found, Damaged{info, err})
		case len(faults) > 0:
			found = append(found, Damaged{info, faults[0].Err})
		}
	}
	return found, nil
}

type writer struct {
	home, temp string
	tar        *tar.Writer
	done       map[string]bool // packs that are in the archive
}

// beside are files and folders of the home beside its databases: who may use a server of it, its rules and views, what recipes wrote, and
// what MLflow's clients have kept there.
var beside = []string{"users.json", "rules.json", "views.json", "outputs", "artifacts"}

// attempts limits how often a catalog is copied again because a pack that it refers to was removed before it could
// be read.
const attempts = 100

func (w *writer) all() error {
	names, err := w.once()
	for n := 1; n < attempts && errors.Is(err, fs.ErrNotExist); n++ {
		names, err = w.once()
	}
	for _, name := range names {
		if err == nil {
			err = w.add(name, func() (*os.File, error) { return os.Open(filepath.Join(w.temp, name)) })
		}
	}
	for _, name := range beside {
		if err == nil {
			err = fs.WalkDir(os.DirFS(w.home), name, w.beside)
		}
	}
	return err
}

// beside adds a file of the home, if it is there still and no write of it goes on.
func (w *writer) beside(name string, entry fs.DirEntry, err error) error {
	if err == nil && entry.Type().IsRegular() && !strings.HasPrefix(entry.Name(), ".") {
		err = w.add(name, func() (*os.File, error) { return os.Open(filepath.Join(w.home, name)) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// once copies the databases to files beside the archive, and the packs into it. The catalog comes first: records
// logged before a save are stored before it, so they are in the history, which is copied later. Checkpoints that
// are not in the copy of the catalog are then removed from that of the history.
func (w *writer) once() (names []string, err error) {
	defer try.Caught(&err)
	for _, name := range []string{"history.db", "checkpoints.db", "spool"} {
		try.Ok(os.RemoveAll(filepath.Join(w.temp, name)))
	}
	packs, err := checkpoints.Copy(w.home, filepath.Join(w.temp, "checkpoints.db"))
	if errors.As(err, new(*checkpoints.ErrNone)) {
		return history.Copy(w.home, w.temp, func(string, int64) bool { return false })
	}
	if err != nil {
		return nil, err
	}
	catalog := try.To(checkpoints.OpenReadOnly(w.temp))
	defer catalog.Close()
	names = try.To(history.Copy(w.home, w.temp, func(uid string, step int64) bool {
		_, err := catalog.Find(uid, checkpoints.Step(step))
		return !errors.As(err, new(*checkpoints.ErrNone))
	}))
	for _, name := range packs {
		if w.done[name] {
			continue
		}
		try.Ok(w.add("checkpoints/"+name, func() (*os.File, error) { return checkpoints.OpenPack(w.home, name) }))
		w.done[name] = true
	}
	return append(names, "checkpoints.db"), nil
}

func (w *writer) add(name string, open func() (*os.File, error)) (err error) {
	defer try.Caught(&err)
	in := try.To(open())
	defer in.Close()
	info := try.To(in.Stat())
	header := &tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime(), Format: tar.FormatPAX}
	try.Ok(w.tar.WriteHeader(header))
	_, err = io.Copy(w.tar, in)
	return err
}
