// Package objects keeps files by name, in a folder or in a bucket: a team's server (runs/serve) keeps artifacts and the chunks of
// checkpoints there. A name is a path with slashes, without empty elements, . and ..
package objects

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Store keeps files. A file that is not there is fs.ErrNotExist. A store that cannot be reached, or refuses, is *Unavailable.
type Store interface {
	// Put writes a whole file, or nothing. size is in bytes; -1: unknown.
	Put(ctx context.Context, name string, content io.Reader, size int64) error
	Get(ctx context.Context, name string) (content io.ReadSeekCloser, size int64, err error)
	// List lists what is directly in a folder, in order of names: files and folders. "" is the whole store.
	List(ctx context.Context, folder string) ([]Info, error)
	// Remove removes a file, or a folder with all that is in it. What is not there is no error.
	Remove(ctx context.Context, name string) error
}

// Info is a file or a folder.
type Info struct {
	Name string // its last element
	Dir  bool
	Size int64
	// Modified is when a file was written last.
	Modified time.Time
}

// Unavailable says that a store cannot be reached, or refuses what was asked (exit code 7).
type Unavailable struct {
	What, Do string // Do is a hint
	Err      error
}

func (e *Unavailable) Error() string       { return e.What + ": " + e.Err.Error() }
func (e *Unavailable) Unwrap() error       { return e.Err }
func (e *Unavailable) Hint() string        { return e.Do }
func (e *Unavailable) ExitCode() exit.Code { return exit.Storage }

// mostName is how many bytes a name may have, as in S3.
const mostName = 1024

// CheckName refuses what is no name.
func CheckName(name string) error {
	valid := name != "" && len(name) <= mostName && utf8.ValidString(name) && path.Clean("/"+name) == "/"+name &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f })
	for element := range strings.SplitSeq(name, "/") {
		valid = valid && len(element) <= 255 && !strings.HasPrefix(element, temporary)
	}
	if !valid {
		return exit.Errorf(exit.Usage, "%.200q is no path of a file: want one without .., empty elements, backslashes and control characters, of at most %d bytes", name, mostName)
	}
	return nil
}

// Folder keeps files in a folder of the file system.
type Folder struct{ Path string }

// temporary begins the names of files that are not whole yet.
const temporary = ".drun-part-"

// inside calls fn with the folder, out of which no name leads, not by links either. An error of the file system is a storage error.
func (f *Folder) inside(name string, fn func(root *os.Root)) error {
	err := CheckName(name)
	if err != nil {
		return err
	}
	err = func() (err error) {
		defer try.Caught(&err)
		root := try.To(os.OpenRoot(f.Path))
		defer root.Close()
		fn(root)
		return nil
	}()
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return sqldb.Wrap(f.Path, err)
}

func (f *Folder) Put(_ context.Context, name string, content io.Reader, _ int64) error {
	if err := os.MkdirAll(f.Path, sqldb.FolderMode); err != nil {
		return sqldb.Wrap(f.Path, err)
	}
	return f.inside(name, func(root *os.Root) {
		dir := path.Dir(name)
		try.Ok(root.MkdirAll(dir, sqldb.FolderMode))
		part := path.Join(dir, temporary+rand.Text())
		file := try.To(root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, sqldb.FileMode))
		_, err := io.Copy(file, content)
		if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
			err = root.Rename(part, name)
		}
		if err != nil {
			_ = root.Remove(part)
		}
		try.Ok(err)
	})
}

func (f *Folder) Get(_ context.Context, name string) (content io.ReadSeekCloser, size int64, err error) {
	err = f.inside(name, func(root *os.Root) {
		file := try.To(root.Open(name))
		info := try.To(file.Stat())
		if !info.Mode().IsRegular() {
			file.Close()
			try.Ok(fs.ErrNotExist)
		}
		content, size = file, info.Size()
	})
	return content, size, err
}

func (f *Folder) List(_ context.Context, folder string) (list []Info, err error) {
	if folder == "" {
		f, folder = &Folder{filepath.Dir(f.Path)}, filepath.Base(f.Path)
	}
	err = f.inside(folder, func(root *os.Root) {
		if info := try.To(root.Stat(folder)); !info.IsDir() {
			return
		}
		for _, e := range try.To(fs.ReadDir(root.FS(), folder)) {
			info, err := e.Info()
			if err == nil && !strings.HasPrefix(e.Name(), temporary) && (info.IsDir() || info.Mode().IsRegular()) {
				list = append(list, Info{e.Name(), e.IsDir(), info.Size(), info.ModTime()})
			}
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

func (f *Folder) Remove(_ context.Context, name string) error {
	err := f.inside(name, func(root *os.Root) { try.Ok(root.RemoveAll(name)) })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// In is the store of a home: its folder of that name.
func In(home string) *Folder { return &Folder{filepath.Join(home, "artifacts")} }
