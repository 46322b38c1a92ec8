// Package host finds the programs of communication engines that are plugins, and decides whether they can be trusted.
// engine/run looks for the one that a run asks for, `drun backends` lists and trusts them, and plugins/client starts
// them.
package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"drun/internal/exit"
	"drun/internal/try"

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
// program, ../lib/drun/plugins from there, where packages install them, and $PATH, of which only absolute folders count.
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
		add(filepath.Join(filepath.Dir(exe), "../lib/drun/plugins"), true)
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
		return fmt.Errorf("%s is not a regular file", path)
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
		programs, _ := fs.Glob(os.DirFS(dir.Path), Prefix+"*") // the pattern is valid
		for _, program := range programs {
			path := filepath.Join(dir.Path, program)
			if executable(path) != nil {
				continue
			}
			name := strings.TrimPrefix(program, Prefix)
			out = append(out, &Plugin{Name: name, Path: path, Hidden: seen[name], Named: dir.Named})
			seen[name] = true
		}
	}
	return out
}

// Sum computes the program's checksum.
func (p *Plugin) Sum() (err error) {
	defer try.Caught(&err)
	f := try.To(os.Open(p.Path))
	defer f.Close()
	before := try.To(mark(f))
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

// Program is the program that starts plugins: a drun worker linked with everything that this needs.
const Program = "drun-plugin-host"

// FindProgram returns the path of Program, which lies next to drun: one from anywhere else, or from another build of
// drun, is not used. If there is a program that must not be used, it returns the path with an error.
func FindProgram() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(exe), Program)
	if err := executable(path); err != nil {
		return "", unusable("make build installs it there", "%s, which starts plugins, is not beside drun: %v", Program, err)
	}
	theirs, err := buildinfo.ReadFile(path)
	if err != nil {
		return path, unusable("make build installs it", "%s is not drun's: %v", path, err)
	}
	ours, ok := debug.ReadBuildInfo()
	if !ok {
		return path, nil
	}
	return path, sameBuild(path, ours, theirs)
}

// unusable says why Program cannot be used, and what to do.
func unusable(hint, format string, args ...any) error {
	return exit.Permanent(exit.WithHint(exit.Errorf(exit.Backend, format, args...), hint))
}

// sameBuild compares the builds of drun and of the program at path: the protocol between them may change with every commit.
func sameBuild(path string, ours, theirs *debug.BuildInfo) error {
	if theirs.Path != "drun/cmd/"+Program {
		return unusable("make build installs it", "%s is not drun's, but %s", path, theirs.Path)
	}
	if a, b := commit(ours), commit(theirs); a != b && a != "" && b != "" {
		return unusable("make build makes both", "%s was built from a different version than drun: %.20s, not %.20s", path, b, a)
	}
	return nil
}

// commit is the commit that was built, if known.
func commit(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// HowToGet says where a plugin for runs over several nodes comes from.
const HowToGet = "make plugins builds gloo, where libgloo-dev is installed (Debian, Ubuntu: apt-get install libgloo-dev g++); drun backends lists what is found, and --plugin-dir adds a folder"

// askLimit is longer than the limit of a plugin's start, so that Program reports that first.
const askLimit = 15 * time.Second

// Ask has the program at a path, which is Program, start a plugin and ask it: "probe" (its version, and whether it can
// run here) or "properties" (its collective.Properties).
func Ask(ctx context.Context, program, what string, p *Plugin, reply any) error {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var out, words bytes.Buffer
	if err := Run(ctx, program, what, p, &out, &words); err != nil {
		if text := strings.TrimSpace(words.String()); text != "" {
			return errors.New(text)
		}
		return err
	}
	return json.Unmarshal(out.Bytes(), reply)
}

// Run has Program do something with a plugin. It ends with this process, even if that is killed.
func Run(ctx context.Context, program, what string, p *Plugin, out, words io.Writer) error {
	cmd := exec.CommandContext(ctx, program, what, p.Name, p.Path, p.SHA256, p.Mark)
	cmd.Stdout, cmd.Stderr = out, words
	// On SIGTERM it ends its plugin and removes its files.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the signal comes when the thread that starts it ends
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// LockFile keeps the checksums of the plugins that were used, in the history's folder.
const LockFile = "plugins.lock"

// pin is the lock file's entry for a plugin's name. It applies to that checksum, wherever the program lies.
type pin struct {
	SHA256  string    `json:"sha256"`
	Path    string    `json:"path"` // where it was then
	Trusted time.Time `json:"trusted"`
}

// A ChangedError says that a plugin's program is not the one that was used before, and in its hint how to trust it.
type ChangedError struct{ error }

func (e ChangedError) Unwrap() error { return e.error }

// compare reports whether a plugin is pinned; it is an error if another program of its name is.
func compare(pins map[string]pin, p *Plugin) (known bool, err error) {
	old, known := pins[p.Name]
	if known && old.SHA256 != p.SHA256 {
		return false, ChangedError{unusable("if you changed it yourself: drun backends trust "+p.Name,
			"the plugin %s has changed since it was first used: %s has the SHA-256 %.12s…, trusted is %.12s…", p.Name, p.Path, p.SHA256, old.SHA256)}
	}
	return known, nil
}

// Verify computes the plugin's checksum and compares it with the one pinned in home, which it pins on first use.
func Verify(home string, p *Plugin) error {
	if err := p.Sum(); err != nil {
		return err
	}
	return locked(home, func(pins map[string]pin) (bool, error) {
		known, err := compare(pins, p)
		if !known && err == nil {
			pins[p.Name] = pinOf(p)
		}
		return !known, err
	})
}

// Check is Verify without pinning. It reports whether the plugin, as it is now, was used or trusted before.
func Check(home string, p *Plugin) (trusted bool, err error) {
	defer try.Caught(&err)
	try.Ok(p.Sum())
	return compare(try.To(readPins(filepath.Join(home, LockFile))), p)
}

// Trust pins the plugin's checksum, whatever was pinned before.
func Trust(home string, p *Plugin) error {
	return locked(home, func(pins map[string]pin) (bool, error) {
		if err := p.Sum(); err != nil {
			return false, err
		}
		pins[p.Name] = pinOf(p)
		return true, nil
	})
}

func pinOf(p *Plugin) pin { return pin{p.SHA256, p.Path, time.Now().UTC().Truncate(time.Second)} }

// locked reads the lock file, lets edit change it, and writes it if edit says so, while holding the lock.
func locked(home string, edit func(pins map[string]pin) (write bool, err error)) (err error) {
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(home, 0o700))
	path := filepath.Join(home, LockFile)
	dir := try.To(os.Open(home))
	defer dir.Close() // and with it the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	pins := try.To(readPins(path))
	write, err := edit(pins)
	if err != nil || !write {
		return err
	}
	data := try.To(json.MarshalIndent(pins, "", "  "))
	tmp := path + ".new"
	try.Ok(os.WriteFile(tmp, append(data, '\n'), 0o600))
	return os.Rename(tmp, path)
}

func readPins(path string) (map[string]pin, error) {
	pins := map[string]pin{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return pins, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &pins)
	}
	if err != nil {
		return nil, exit.WithHint(exit.Errorf(exit.Storage, "%s cannot be read: %w", path, err),
			"put it right, or remove it: then each plugin is trusted as it is when it is next used")
	}
	return pins, nil
}
