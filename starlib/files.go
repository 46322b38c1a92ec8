package starlib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Files are what a recipe may read: the files beneath its own folder and beneath
// the --data folders. A symbolic link that leads out of them is refused.
type Files struct {
	dirs  []string // absolute, the recipe's own first
	roots []*os.Root

	// Largest is how many bytes a reader may make a plain value of; 0 for any number.
	Largest int
}

// OpenFiles opens the folders that a recipe may read.
func OpenFiles(recipeDir string, dataDirs ...string) (*Files, error) {
	f := &Files{}
	for _, dir := range append([]string{recipeDir}, dataDirs...) {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		root, err := os.OpenRoot(abs)
		if err != nil {
			return nil, fmt.Errorf("cannot open the folder %s: %w", dir, cause(err))
		}
		f.dirs, f.roots = append(f.dirs, abs), append(f.roots, root)
	}
	return f, nil
}

// Open opens a file for reading. A relative name is looked for in the recipe's
// folder, then in the --data folders.
func (f *Files) Open(name string) (*os.File, error) {
	if f == nil {
		return nil, fmt.Errorf("%s: no folder to read from", name)
	}
	var first error
	for i, root := range f.roots {
		rel := name
		if filepath.IsAbs(name) {
			var ok bool
			if rel, ok = strings.CutPrefix(filepath.Clean(name), f.dirs[i]+string(filepath.Separator)); !ok {
				continue
			}
		}
		file, err := open(root, rel)
		if err == nil {
			return file, nil
		}
		if first == nil || errors.Is(first, fs.ErrNotExist) && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	switch {
	case first == nil || escapes(first):
		return nil, fmt.Errorf("%s is outside the recipe's folder: a recipe reads beneath its own folder and beneath --data folders", name)
	case errors.Is(first, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file (looked in %s)", name, strings.Join(f.dirs, ", "))
	}
	return nil, fmt.Errorf("%s: %w", name, cause(first))
}

// open refuses what is no regular file: opening a pipe would wait for its writer,
// and may still where a pipe takes the file's place meanwhile.
func open(root *os.Root, rel string) (*os.File, error) {
	if err := regular(root.Stat(rel)); err != nil {
		return nil, err
	}
	file, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
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

// escapes recognises os.Root's refusal, which has no exported value.
func escapes(err error) bool { return strings.Contains(cause(err).Error(), "escapes") }

// cause strips the operation and the path that os adds.
func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
