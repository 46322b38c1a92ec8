package host

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"drun/internal/exit"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, filepath.Join(a, Prefix+"two"), "first", 0o755)
	write(t, filepath.Join(b, Prefix+"two"), "second", 0o755)
	write(t, filepath.Join(a, Prefix+"plain"), "", 0o644)
	write(t, filepath.Join(a, Prefix+"folder", "x"), "", 0o644)
	write(t, filepath.Join(b, Prefix+"later"), "", 0o755)
	write(t, filepath.Join(a, Prefix+"later"), "", 0o644)
	dirs := []Dir{{a, true}, {filepath.Join(a, "missing"), true}, {b, false}, {filepath.Join(a, Prefix+"plain"), false}}
	for name, want := range map[string]string{"two": a, "later": b} {
		if p, err := Find(name, dirs); err != nil || p.Path != filepath.Join(want, Prefix+name) {
			t.Errorf("%s: %v %v", name, p, err)
		}
	}
	for name, want := range map[string]string{
		"none": `no backend "none" was found`, "plain": "is not executable: chmod +x", "folder": "is a folder",
		"../two": "was found", "": "was found",
	} {
		if _, err := Find(name, dirs); !errors.As(err, new(NotFoundError)) || !strings.Contains(err.Error(), want) || exit.CodeOf(err) != exit.Backend {
			t.Errorf("%s: %v", name, err)
		} else if name == "none" && !strings.HasSuffix(err.Error(), want) { // a folder that is a file is none
			t.Error(err)
		} else if name == "none" && !strings.Contains(exit.HintOf(err), b) {
			t.Errorf("it does not say where it looked: %s", exit.HintOf(err))
		}
	}
	hidden := map[string]bool{}
	for _, p := range List(dirs) {
		hidden[p.Path] = p.Hidden
	}
	if len(hidden) != 3 || hidden[filepath.Join(a, Prefix+"two")] || !hidden[filepath.Join(b, Prefix+"two")] {
		t.Errorf("%v", hidden)
	}
}

func TestTrust(t *testing.T) {
	home, path := t.TempDir(), filepath.Join(t.TempDir(), Prefix+"x")
	write(t, path, "one", 0o755)
	p := &Plugin{Name: "x", Path: path}
	for range 2 {
		if err := Verify(home, p); err != nil {
			t.Fatal(err)
		}
	}
	first := p.SHA256
	write(t, path, "other", 0o755)
	if _, err := p.Open(); err == nil {
		t.Error("a change after the checksum is not seen")
	}
	if err := Verify(home, p); !errors.As(err, new(ChangedError)) || !strings.HasSuffix(err.Error(), "trusted is "+first[:12]+"…") || !strings.Contains(exit.HintOf(err), "trust x") {
		t.Fatalf("%v", err)
	}
	if err := Trust(home, p); err != nil {
		t.Fatal(err)
	}
	if err := Verify(home, p); err != nil || p.SHA256 == first {
		t.Errorf("%v", err)
	}
	write(t, filepath.Join(home, LockFile), "{", 0o644)
	if err := Verify(home, p); err == nil || !strings.Contains(err.Error(), LockFile) {
		t.Errorf("a broken lock file: %v", err)
	}
}

// A pin is that of a name and a checksum: the same program may move, another one
// of the name is refused in any folder.
func TestPinsAreOfChecksums(t *testing.T) {
	home, a, b := t.TempDir(), filepath.Join(t.TempDir(), Prefix+"x"), filepath.Join(t.TempDir(), Prefix+"x")
	write(t, a, "one", 0o755)
	write(t, b, "one", 0o755)
	if trusted, err := Check(home, &Plugin{Name: "x", Path: a}); trusted || err != nil {
		t.Errorf("never used: %v %v", trusted, err)
	}
	if err := Verify(home, &Plugin{Name: "x", Path: a}); err != nil {
		t.Fatal(err)
	}
	if trusted, err := Check(home, &Plugin{Name: "x", Path: b}); !trusted || err != nil {
		t.Errorf("the same program elsewhere: %v %v", trusted, err)
	}
	write(t, b, "two", 0o755)
	if trusted, err := Check(home, &Plugin{Name: "x", Path: b}); trusted || !errors.As(err, new(ChangedError)) {
		t.Errorf("another program of the name: %v %v", trusted, err)
	}
	if trusted, _ := Check(home, &Plugin{Name: "y", Path: a}); trusted {
		t.Error("the checksum is trusted under another name")
	}
}

// What is executed is the file whose checksum was taken: not what has taken its
// path since, not what was written into it.
func TestOpenGivesWhatWasSummed(t *testing.T) {
	for name, change := range map[string]func(path string){
		"replaced": func(path string) {
			write(t, path+".new", "evil", 0o755)
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
		"written to": func(path string) { write(t, path, "evil", 0o755) },
	} {
		path := filepath.Join(t.TempDir(), Prefix+"x")
		write(t, path, "good", 0o755)
		p := &Plugin{Name: "x", Path: path}
		if err := p.Sum(); err != nil {
			t.Fatal(err)
		}
		f, err := p.Open()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // the kernel's clock for files is coarse
		change(path)
		if _, err := p.Open(); err == nil || !strings.Contains(err.Error(), "was changed") {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.Unchanged(f); name == "written to" && err == nil {
			t.Errorf("%s after it was opened: not noticed", name)
		}
		f.Close()
	}
}

func TestProgram(t *testing.T) {
	if path, err := FindProgram(); err == nil || !strings.Contains(err.Error(), "is not beside drun") {
		t.Errorf("%s %v", path, err)
	}
	dir := t.TempDir() // not looked at, though it is in the path
	write(t, filepath.Join(dir, Program), "#!/bin/sh", 0o755)
	t.Setenv("PATH", dir)
	t.Setenv("DRUN_PLUGIN_PATH", dir)
	if path, err := FindProgram(); err == nil {
		t.Errorf("it took %s", path)
	}
	build := func(path, revision string) *debug.BuildInfo {
		return &debug.BuildInfo{Path: path, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}}}
	}
	ours := build("drun/cmd/drun", "abc")
	for _, c := range []struct {
		theirs *debug.BuildInfo
		want   string
	}{
		{build("drun/cmd/drun-plugin-host", "abc"), ""},
		{build("drun/cmd/drun-plugin-host", "abd"), "a different version than drun: abd, not abc"},
		{build("example.com/evil", "abc"), "is not drun's, but example.com/evil"},
		{&debug.BuildInfo{Path: "drun/cmd/drun-plugin-host"}, ""}, // built outside of a repository
	} {
		err := sameBuild("host", ours, c.theirs)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.theirs, err, c.want)
		}
	}
}

func TestDirs(t *testing.T) {
	t.Setenv("DRUN_PLUGIN_PATH", "/b:/a")
	t.Setenv("PATH", "/c:/b:.:d:")
	got := Dirs("/a")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Dir(exe)
	want := []Dir{{"/a", true}, {"/b", true}, {here + "/plugins", true}, {filepath.Dir(here) + "/lib/drun/plugins", true}, {"/c", false}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestKnown(t *testing.T) {
	type properties struct{ N int }
	dir := t.TempDir()
	home, program := filepath.Join(dir, "home"), filepath.Join(dir, Program)
	p := &Plugin{Name: "mine", Path: filepath.Join(dir, Prefix+"mine")}
	write(t, program, "asks", 0o755)
	write(t, p.Path, "answers", 0o755)
	known := func() int {
		var got properties
		if !Known(home, program, p, &got) {
			return -1
		}
		return got.N
	}
	remember := func(n int) {
		t.Helper()
		if err := Remember(home, program, p, properties{n}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want int) {
		t.Helper()
		if got := known(); got != want {
			t.Errorf("%s: %d is known, want %d", what, got, want)
		}
	}
	check("nothing was asked", -1)
	if err := p.Sum(); err != nil {
		t.Fatal(err)
	}
	remember(7)
	check("it was asked", 7)
	write(t, p.Path, "answers in another way", 0o755)
	check("the plugin has changed", -1)
	remember(8)
	check("it changed while it was asked", -1)
	if err := p.Sum(); err != nil {
		t.Fatal(err)
	}
	remember(9)
	check("the new one was asked", 9)
	write(t, program, "asks in another way", 0o755)
	check("drun has changed", -1)
	remember(10)
	other := *p
	p = &Plugin{Name: "other", Path: filepath.Join(dir, Prefix+"other")}
	check("another plugin", -1)
	p = &other
	check("the same", 10)
	write(t, filepath.Join(home, KnownFile), "{", 0o600)
	check("a damaged file", -1)
	remember(11)
	check("written again", 11)
}
