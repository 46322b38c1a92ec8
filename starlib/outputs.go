package starlib

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"drun/internal/exit"
	"drun/internal/try"
)

// Outputs is the folder, within the home, for files that a run's recipe writes. It is created when the first is written;
// no symbolic link may lead out of the home.
type Outputs struct {
	home string // absolute
	dirs []string
}

// NewOutputs returns the folder of a run.
func NewOutputs(home string, run int64) *Outputs {
	return &Outputs{home, []string{"outputs", strconv.FormatInt(run, 10)}}
}

// Home returns the folder of all runs, which only the coordinator's machine is sure to have; "": there is none.
func (o *Outputs) Home() string {
	if o == nil {
		return ""
	}
	return o.home
}

func (o *Outputs) Dir() string { return filepath.Join(append([]string{o.home}, o.dirs...)...) }

// Path returns the full path of a file in the folder; an error if the name leads out of it. name may also be a full path.
func (o *Outputs) Path(name string) (_ string, err error) {
	defer try.Caught(&err)
	try.FailIf(o == nil, "%s: no folder to write to", name)
	local := name
	if filepath.IsAbs(name) {
		local, _ = strings.CutPrefix(filepath.Clean(name), o.Dir()+string(filepath.Separator))
	}
	try.FailIf(strings.Contains(name, "\x00"), "%q has a null character, which no file's name can have", name)
	try.FailIf(!filepath.IsLocal(local) || filepath.Clean(local) == ".", "%s is outside the run's outputs folder: want a path beneath it, such as weights/last.safetensors", name)
	return filepath.Join(o.Dir(), local), nil
}

// Open opens a file beneath the folder for reading; fs.ErrNotExist if there is none.
func (o *Outputs) Open(name string) (_ *File, err error) {
	defer try.Caught(&err)
	path := try.To(o.Path(name))
	dir, err := o.folder(filepath.Dir(path), false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, Cause(err))
	}
	defer dir.Close()
	err = regular(dir.Lstat(filepath.Base(path)))
	if err == nil {
		var file *os.File
		if file, err = OpenRegular(dir, filepath.Base(path)); err == nil {
			return (&Files{}).follow(file, path)
		}
	}
	return nil, fmt.Errorf("%s: %w", path, Cause(err))
}

// Write writes a file beneath the folder atomically: after a crash at any moment there
// is the old file, the new one, or none, but never a part of one.
func (o *Outputs) Write(name string, write func(io.Writer) error) (err error) {
	defer try.Caught(&err)
	path := try.To(o.Path(name))
	dir, err := o.folder(filepath.Dir(path), true)
	if err == nil {
		err = replace(dir, filepath.Base(path), write)
		dir.Close()
	}
	if err != nil {
		return exit.WithCode(fmt.Errorf("%s: %w", path, Cause(err)), exit.Storage)
	}
	return nil
}

// Change replaces a file beneath the folder with what fn makes of its contents, which are empty at first, while no other
// process changes it.
func (o *Outputs) Change(name string, fn func(content []byte) ([]byte, error)) (err error) {
	defer try.Caught(&err)
	path := try.To(o.Path(name))
	dir, err := o.folder(filepath.Dir(path), true)
	if err != nil {
		return fmt.Errorf("%s: %w", path, Cause(err))
	}
	defer dir.Close()
	lock, err := dir.OpenFile("."+filepath.Base(path)+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", path, Cause(err))
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	before, err := dir.ReadFile(filepath.Base(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, Cause(err))
	}
	after, err := fn(before)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	return o.Write(name, func(w io.Writer) error {
		_, err := w.Write(after)
		return err
	})
}

// replace writes a new file beside the old one, and then renames it.
func replace(dir *os.Root, name string, write func(io.Writer) error) (err error) {
	defer try.Caught(&err)
	if err := regular(dir.Lstat(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	part := "." + name + ".part"
	_ = dir.Remove(part) // left by a rank that was killed
	file := try.To(dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600))
	if err = write(file); err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = dir.Rename(part, name)
	}
	if err != nil {
		_ = dir.Remove(part)
		return err
	}
	return syncFolder(dir, ".")
}

// folder opens a folder beneath the home; os.Root keeps links from leading out of it. Folders that it creates are
// synced to disk.
func (o *Outputs) folder(path string, create bool) (_ *os.Root, err error) {
	defer try.Caught(&err)
	rel := try.To(filepath.Rel(o.home, path))
	home := try.To(os.OpenRoot(o.home))
	defer home.Close()
	for i, c := range rel + string(filepath.Separator) {
		if c != filepath.Separator || !create {
			continue
		}
		if err := home.Mkdir(rel[:i], 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		try.Ok(syncFolder(home, filepath.Dir(rel[:i])))
	}
	return home.OpenRoot(rel)
}

func syncFolder(at *os.Root, name string) (err error) {
	defer try.Caught(&err)
	folder := try.To(at.Open(name))
	defer folder.Close()
	return folder.Sync()
}
