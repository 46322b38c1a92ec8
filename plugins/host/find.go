// Package host finds the programs of communication engines that are plugins, and
// decides whether they can be trusted. engine/run looks for the one that a
// run asks for, `drun backends` lists and trusts them, and plugins/client starts them.
package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Prefix begins the name of every plugin's program.
const Prefix = "drun-backend-"

// Plugin is a plugin's program, as found.
type Plugin struct {
	Name   string // what --backend calls it
	Path   string // absolute
	SHA256 string // of the file, hexadecimal; "" until Sum
	Mark   string // identifies the file whose checksum was taken: see Open
	Hidden bool   // another of the same name takes precedence
	Named  bool   // it lies in drun's own folder, or in one that the user named
}

// Dir is a folder to look for plugins in. A program in a folder that is neither drun's own nor named by the user, but
// just in $PATH, is executed only if a run asks for it by name, or it is trusted.
type Dir struct {
	Path  string
	Named bool
}

// Dirs returns the folders to look for plugins in: those given, then $DRUN_PLUGIN_PATH, the folder plugins next to the
// program, and $PATH, of which only absolute folders count.
func Dirs(given ...string) []Dir {
	var out []Dir
	add := func(dir string, named bool) {
		if dir == "" {
			return
		}
		abs, err := filepath.Abs(dir)
		if err == nil && !slices.ContainsFunc(out, func(d Dir) bool { return d.Path == abs }) {
			out = append(out, Dir{abs, named})
		}
	}
	for _, dir := range append(slices.Clone(given), filepath.SplitList(os.Getenv("DRUN_PLUGIN_PATH"))...) {
		add(dir, true)
	}
	if exe, err := os.Executable(); err == nil {
		add(filepath.Join(filepath.Dir(exe), "plugins"), true)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			add(dir, false)
		}
	}
	return out
}

// A NotFoundError says that a plugin was not found, and in its hint where it was looked for.
type NotFoundError struct{ error }

func (e NotFoundError) Unwrap() error { return e.error }

// Find returns the first plugin of that name.
func Find(name string, dirs []Dir) (*Plugin, error) {
	problem, folders := "", []string{}
	for _, dir := range dirs {
		folders = append(folders, dir.Path)
		path := filepath.Join(dir.Path, Prefix+name)
		err := executable(path)
		switch {
		case name == "" || name != filepath.Base(name):
		case err == nil:
			return &Plugin{Name: name, Path: path, Named: dir.Named}, nil
		case problem == "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			problem = ": " + err.Error()
		}
	}
	hint := ""
	if problem == "" {
		hint = fmt.Sprintf("built in is shm; looked for %s%s in %s (add a folder with --plugin-dir or $DRUN_PLUGIN_PATH)",
			Prefix, name, strings.Join(folders, ", "))
	}
	return nil, NotFoundError{unusable(hint, "no backend %q was found%s", name, problem)}
}

// executable reports why a path cannot be a plugin.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", path)
	case unix.Access(path, unix.X_OK) != nil:
		return fmt.Errorf("%s is not executable: chmod +x %s", path, path)
	}
	return nil
}

// List returns all plugins, including those hidden by an earlier one of the same name.
func List(dirs []Dir) []*Plugin {
	var out []*Plugin
	seen := map[string]bool{}
	for _, dir := range dirs {
		paths, _ := filepath.Glob(filepath.Join(globEscape(dir.Path), Prefix+"*")) // a bad pattern cannot be
		for _, path := range paths {
			if executable(path) != nil {
				continue
			}
			name := strings.TrimPrefix(filepath.Base(path), Prefix)
			out = append(out, &Plugin{Name: name, Path: path, Hidden: seen[name], Named: dir.Named})
			seen[name] = true
		}
	}
	return out
}

func globEscape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// Sum computes the program's checksum.
func (p *Plugin) Sum() error {
	f, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := mark(f)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	p.SHA256, p.Mark = hex.EncodeToString(h.Sum(nil)), before
	return p.Unchanged(f)
}

// Open opens the program to execute it, and refuses any file other than the one whose checksum was taken, even at the
// same path, or if it was written to since. The program is executed by its descriptor, so that it stays the file that
// was checked; Unchanged checks again once it runs, since nobody can write to it then.
func (p *Plugin) Open() (*os.File, error) {
	f, err := os.Open(p.Path)
	if err != nil {
		return nil, err
	}
	if err := p.Unchanged(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Unchanged returns an error if an open file is not, or no longer, the one whose checksum was taken.
func (p *Plugin) Unchanged(f *os.File) error {
	now, err := mark(f)
	if err == nil && p.SHA256 != "" && now != p.Mark {
		err = fmt.Errorf("%s was changed while the run started", p.Path)
	}
	return err
}

// mark differs between files, and changes whenever the file does.
func mark(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("%s: %w", f.Name(), err)
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim), nil
}
