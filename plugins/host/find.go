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

// Plugin is a plugin's program as it was found.
type Plugin struct {
	Name   string // what --backend calls it
	Path   string // absolute
	SHA256 string // of the file, hexadecimal; "" until Sum
	Mark   string // of the file when its checksum was taken: see unchanged
	Hidden bool   // another of the same name comes before it
}

// Dirs are the folders to look for plugins in: those given, then those of
// $DRUN_PLUGIN_PATH, the folder plugins beside the program, and $PATH.
func Dirs(given ...string) []string {
	dirs := slices.Clone(given)
	dirs = append(dirs, filepath.SplitList(os.Getenv("DRUN_PLUGIN_PATH"))...)
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "plugins"))
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	var out []string
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if abs, err := filepath.Abs(dir); err == nil && !slices.Contains(out, abs) {
			out = append(out, abs)
		}
	}
	return out
}

// A NotFoundError says where a plugin was looked for in vain.
type NotFoundError struct {
	Name    string
	Dirs    []string
	Problem string // of a file that has the name but cannot be it
}

func (e *NotFoundError) Error() string {
	s := fmt.Sprintf("no backend %q was found", e.Name)
	if e.Problem != "" {
		s += ": " + e.Problem
	}
	return s
}

// Advice says where it was looked for.
func (e *NotFoundError) Advice() string {
	if e.Problem != "" {
		return ""
	}
	return fmt.Sprintf("built in is shm; looked for %s%s in %s (add a folder with --plugin-dir or $DRUN_PLUGIN_PATH)",
		Prefix, e.Name, strings.Join(e.Dirs, ", "))
}

// ExitCode is that of a backend that failed.
func (e *NotFoundError) ExitCode() int { return 6 }

// Find gives the first plugin of that name.
func Find(name string, dirs []string) (*Plugin, error) {
	missing := &NotFoundError{Name: name, Dirs: dirs}
	if name == "" || name != filepath.Base(name) {
		return nil, missing
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, Prefix+name)
		err := executable(path)
		if err == nil {
			return &Plugin{Name: name, Path: path}, nil
		}
		if missing.Problem == "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			missing.Problem = err.Error()
		}
	}
	return nil, missing
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

// List gives all plugins, those that are hidden by an earlier one of the same
// name included.
func List(dirs []string) []*Plugin {
	var out []*Plugin
	seen := map[string]bool{}
	for _, dir := range dirs {
		paths, _ := filepath.Glob(filepath.Join(globEscape(dir), Prefix+"*")) // a bad pattern cannot be
		for _, path := range paths {
			if executable(path) != nil {
				continue
			}
			name := strings.TrimPrefix(filepath.Base(path), Prefix)
			out = append(out, &Plugin{Name: name, Path: path, Hidden: seen[name]})
			seen[name] = true
		}
	}
	return out
}

func globEscape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// Sum takes the program's checksum.
func (p *Plugin) Sum() error {
	f, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := mark(p.Path)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	p.SHA256, p.Mark = hex.EncodeToString(h.Sum(nil)), before
	return p.unchanged()
}

// unchanged reports an error if the file is another one than that whose
// checksum was taken.
func (p *Plugin) unchanged() error {
	now, err := mark(p.Path)
	if err == nil && p.SHA256 != "" && now != p.Mark {
		err = fmt.Errorf("%s was changed while the run started", p.Path)
	}
	return err
}

// mark is different after any change of the file.
func mark(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim), nil
}
