// Package backup puts a home, its history and its checkpoints, into one file while
// runs go on.
package backup

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"drun/checkpoints"
	"drun/history"
)

// Size says what a backup holds.
type Size struct {
	Packs int
	Bytes int64
}

// Write makes a tar archive at path, which must not exist, of history.db,
// checkpoints.db and the packs that hold the checkpoints' data: a home, once it is
// unpacked. It appears when it is complete and durable. The history is copied
// before the catalog, so each checkpoint that it lists is in the backup unless it
// was replaced meanwhile. Without a history the error is *history.ErrNone.
func Write(home, path string) (size Size, err error) {
	temp, err := os.MkdirTemp(filepath.Dir(path), ".drun-backup-")
	if err != nil {
		return size, err
	}
	defer os.RemoveAll(temp)
	out, err := os.OpenFile(filepath.Join(temp, "archive"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return size, err
	}
	defer out.Close()
	w := &writer{home: home, temp: temp, tar: tar.NewWriter(out), done: map[string]bool{}}
	if err := w.all(); err != nil {
		return size, err
	}
	if err := errors.Join(w.tar.Close(), out.Sync()); err != nil {
		return size, err
	}
	info, err := out.Stat()
	if err != nil {
		return size, err
	}
	// A link, unlike a rename, does not replace what is there by now.
	if err := os.Link(out.Name(), path); err != nil {
		return size, err
	}
	return Size{len(w.done), info.Size()}, syncFolder(filepath.Dir(path))
}

type writer struct {
	home, temp string
	tar        *tar.Writer
	done       map[string]bool // packs that are in the archive
}

// attempts bounds how often a catalog is copied again since a pack that it refers
// to was removed before it could be read.
const attempts = 100

func (w *writer) all() error {
	for n := 1; ; n++ {
		databases, err := w.once()
		if err == nil {
			for _, name := range databases {
				if err := w.add(name, func() (*os.File, error) { return os.Open(filepath.Join(w.temp, name)) }); err != nil {
					return err
				}
			}
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) || n == attempts {
			return err
		}
	}
}

// once copies the databases beside the archive, and the packs into it.
func (w *writer) once() (databases []string, err error) {
	for _, name := range []string{"history.db", "checkpoints.db"} {
		if err := os.Remove(filepath.Join(w.temp, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := history.Copy(w.home, filepath.Join(w.temp, "history.db")); err != nil {
		return nil, err
	}
	packs, err := checkpoints.Copy(w.home, filepath.Join(w.temp, "checkpoints.db"))
	if errors.As(err, new(*checkpoints.ErrNone)) {
		return []string{"history.db"}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range packs {
		if w.done[name] {
			continue
		}
		if err := w.add("checkpoints/"+name, func() (*os.File, error) { return checkpoints.OpenPack(w.home, name) }); err != nil {
			return nil, err
		}
		w.done[name] = true
	}
	return []string{"checkpoints.db", "history.db"}, nil
}

// add puts a file into the archive.
func (w *writer) add(name string, open func() (*os.File, error)) error {
	in, err := open()
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime(), Format: tar.FormatPAX}
	if err := w.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w.tar, in)
	return err
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
