package starlib

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"drun/internal/try"
)

// Files gives access to what a recipe may read: the files in its own folder and in the --data folders. A symbolic link may lead
// from one of these to another; one that leads elsewhere is refused.
type Files struct {
	dirs  []string // absolute, the recipe's own first
	roots []*os.Root

	// Largest is how many bytes a reader may turn into a plain value; 0 for no limit.
	Largest int
	// OnRead, if set, is called for each file that was read to its end, with its path in the recipe's folder, or an
	// absolute path in a --data folder; only once for an unchanged file.
	OnRead func(FileRead)

	mu      sync.Mutex
	told    map[string]fileState // files that OnRead was called for, by path
	perRank map[string]bool      // by the name that the recipe gave
}

// FileRead describes a file that was read to its end.
type FileRead struct {
	Path     string // in the recipe's folder; absolute in a --data folder
	SHA256   string
	Bytes    int64
	Modified time.Time // when it was last changed
	PerRank  bool      // the recipe says that ranks may have different ones
}

// PerRank notes that ranks may read different files of that name.
func (f *Files) PerRank(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.perRank == nil {
		f.perRank = map[string]bool{}
	}
	f.perRank[name] = true
}

// OpenFiles opens the folders that a recipe may read.
func OpenFiles(recipeDir string, dataDirs ...string) (_ *Files, err error) {
	defer try.Caught(&err)
	f := &Files{}
	for _, dir := range append([]string{recipeDir}, dataDirs...) {
		abs := try.To(filepath.Abs(dir))
		root, err := os.OpenRoot(abs)
		if err != nil {
			return nil, fmt.Errorf("cannot open the folder %s: %w", dir, Cause(err))
		}
		f.dirs, f.roots = append(f.dirs, abs), append(f.roots, root)
	}
	return f, nil
}

// Open opens a file for reading. A relative name is looked for in the recipe's folder, then in the --data folders.
func (f *Files) Open(name string) (file *File, err error) {
	err = f.find(name, "file", func(i int, rel string) error {
		opened, err := OpenRegular(f.roots[i], rel)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(filepath.Clean(rel))
		if i > 0 {
			path = filepath.Join(f.dirs[i], rel)
		}
		file, err = f.follow(opened, path)
		return err
	})
	if err == nil {
		f.mu.Lock()
		file.perRank = f.perRank[name]
		f.mu.Unlock()
	}
	return file, err
}

// find calls try for each folder that may hold the file or folder of that name, with the folder's number and the name
// relative to it, until try succeeds.
func (f *Files) find(name, kind string, try func(i int, rel string) error) error {
	if f == nil {
		return fmt.Errorf("%s: no folder to read from", name)
	}
	var first error
	var leads string // says where a symbolic link leads, if that is the reason
	for i, dir := range f.dirs {
		rel := name
		if filepath.IsAbs(name) {
			var err error
			if rel, err = filepath.Rel(dir, name); err != nil || !filepath.IsLocal(rel) {
				continue
			}
		}
		err := try(i, rel)
		if Cause(err) == ErrEscapes && filepath.IsLocal(rel) {
			if target, e := filepath.EvalSymlinks(filepath.Join(dir, rel)); e == nil {
				leads = fmt.Sprintf(", since a symbolic link leads to %s", target)
				err = f.beneath(target, err, try)
			}
		}
		if err == nil {
			return nil
		}
		if first == nil || errors.Is(first, fs.ErrNotExist) && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	switch {
	case first == nil || Cause(first) == ErrEscapes || errors.Is(first, fs.ErrInvalid):
		return fmt.Errorf("%s is outside the recipe's folder%s: a recipe may read only beneath its own folder and the --data folders", name, leads)
	case errors.Is(first, fs.ErrNotExist):
		return missing(fmt.Sprintf("%s: no such %s (looked in %s; drun run --data FOLDER adds a folder)", name, kind, strings.Join(f.dirs, ", ")))
	}
	return fmt.Errorf("%s: %w", name, Cause(first))
}

// beneath calls try for the folder that a link's target is in; if there is none, it returns err.
func (f *Files) beneath(target string, err error, try func(i int, rel string) error) error {
	for i, dir := range f.dirs {
		if real, e := filepath.EvalSymlinks(dir); e == nil {
			if rel, e := filepath.Rel(real, target); e == nil && filepath.IsLocal(rel) {
				return try(i, rel)
			}
		}
	}
	return err
}

// missing is the error of a file that is in none of the folders: fs.ErrNotExist.
type missing string

func (m missing) Error() string        { return string(m) }
func (m missing) Is(target error) bool { return target == fs.ErrNotExist }

// File is a file that a recipe reads.
type File struct {
	file    *os.File
	files   *Files
	path    string
	state   fileState
	size    int64
	sum     hash.Hash // of what was read; nil: OnRead need not be called
	read    int64
	quiet   bool // Report calls OnRead
	perRank bool
	owed    func() // calls OnRead; set by the end of a file that was opened quietly
}

// OpenQuietly is Open for threads other than the recipe's: OnRead is not called at the end of the file, but by Report.
func (f *Files) OpenQuietly(name string) (*File, error) {
	file, err := f.Open(name)
	if err == nil {
		file.quiet = true
	}
	return file, err
}

// Report calls OnRead for a file that was opened quietly, if it was read to its end. It is called on the recipe's thread.
func (f *File) Report() {
	if f.owed != nil {
		f.owed()
		f.owed = nil
	}
}

// SeekTo moves the position. OnRead is not called for a file that was not read from start to end.
func (f *File) SeekTo(offset int64) error {
	f.sum = nil
	_, err := f.file.Seek(offset, io.SeekStart)
	return err
}

// ReadAt reads at an offset, independently of Read.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.file.ReadAt(p, offset) }

// Finish reads what Read has left, so that OnRead is called for a file that ReadAt has read.
func (f *File) Finish() error {
	if f.sum == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, struct{ io.Reader }{f})
	return err
}

// List names the regular files beneath a folder, relative to it, in the order of their names. The folder is looked for as
// Open does; links are not followed.
func (f *Files) List(dir string) (names []string, err error) {
	err = f.find(dir, "folder", func(i int, rel string) error {
		names = nil
		rel = filepath.ToSlash(filepath.Clean(rel))
		return fs.WalkDir(f.roots[i].FS(), rel, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				names = append(names, strings.TrimPrefix(strings.TrimPrefix(name, rel), "/"))
			}
			return err
		})
	})
	return names, err
}

// fileState is compared to notice that a file's content has changed.
type fileState struct {
	device, inode    uint64
	size             int64
	written, changed syscall.Timespec
}

// settled is how old a change must be for a later one to be sure to have another time: file systems' clocks are coarse.
const settled = 2 * time.Second

// follow computes the checksum of what is read of a file, unless OnRead has been called for it.
func (f *Files) follow(file *os.File, path string) (*File, error) {
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, Cause(err))
	}
	out := &File{file: file, files: f, path: path, size: info.Size()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		out.state = fileState{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim}
	}
	f.mu.Lock()
	told, known := f.told[path]
	f.mu.Unlock()
	if f.OnRead != nil && (!known || told != out.state) {
		out.sum = sha256.New()
	}
	return out, nil
}

// Size is how many bytes the file had when it was opened.
func (f *File) Size() int64 { return f.size }

func (f *File) Close() error { return f.file.Close() }

// Read reads on from the position. At the end of the file it calls OnRead.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if f.sum == nil {
		return n, err
	}
	f.sum.Write(p[:n])
	f.read += int64(n)
	if err == io.EOF {
		sum := hex.EncodeToString(f.sum.Sum(nil))
		f.sum = nil
		f.owed = func() {
			f.files.OnRead(FileRead{f.path, sum, f.read, time.Unix(f.state.written.Unix()), f.perRank})
			if time.Since(time.Unix(f.state.changed.Unix())) > settled {
				f.files.mu.Lock()
				defer f.files.mu.Unlock()
				if f.files.told == nil {
					f.files.told = map[string]fileState{}
				}
				f.files.told[f.path] = f.state
			}
		}
		if !f.quiet {
			f.Report()
		}
	}
	return n, err
}

// OpenRegular opens a file for reading. It refuses anything but regular files: opening a pipe would wait for its writer,
// and still may if a pipe replaces the file in the meantime.
func OpenRegular(root *os.Root, rel string) (_ *os.File, err error) {
	defer try.Caught(&err)
	try.Ok(regular(root.Stat(rel)))
	file := try.To(root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if err := regular(file.Stat()); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func regular(info fs.FileInfo, err error) error {
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a folder")
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	}
	return nil
}

// ErrEscapes stands for the error of os.Root that it does not export.
var ErrEscapes = errors.New("a symbolic link leads out of the folder")

// Cause strips the operation and the path that os adds.
func Cause(err error) error {
	p := (*fs.PathError)(nil)
	switch {
	case !errors.As(err, &p):
		return err
	case strings.Contains(p.Err.Error(), "escapes"):
		return ErrEscapes
	}
	return p.Err
}
