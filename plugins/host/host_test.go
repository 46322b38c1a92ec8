package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	dirs := []string{a, filepath.Join(a, "missing"), b}
	for name, want := range map[string]string{"two": a, "later": b} {
		if p, err := Find(name, dirs); err != nil || p.Path != filepath.Join(want, Prefix+name) {
			t.Errorf("%s: %v %v", name, p, err)
		}
	}
	for name, want := range map[string]string{
		"none": `no backend "none" was found`, "plain": "is not executable: chmod +x", "folder": "is a folder",
		"../two": "was found", "": "was found",
	} {
		var missing *NotFoundError
		if _, err := Find(name, dirs); !errors.As(err, &missing) || !strings.Contains(err.Error(), want) || missing.ExitCode() != 6 {
			t.Errorf("%s: %v", name, err)
		} else if name == "none" && !strings.Contains(missing.Advice(), b) {
			t.Errorf("it does not say where it looked: %s", missing.Advice())
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
	if p.Unchanged() == nil {
		t.Error("a change after the checksum is not seen")
	}
	var changed *ChangedError
	if err := Verify(home, p); !errors.As(err, &changed) || changed.Pinned != first || !strings.Contains(changed.Advice(), "trust x") {
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

func TestDirs(t *testing.T) {
	t.Setenv("DRUN_PLUGIN_PATH", "/b:/a")
	t.Setenv("PATH", "/c:/b")
	got := strings.Join(Dirs("/a"), ":")
	if !strings.HasPrefix(got, "/a:/b:") || !strings.HasSuffix(got, "/plugins:/c") {
		t.Error(got)
	}
}
