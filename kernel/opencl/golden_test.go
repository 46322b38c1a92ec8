package opencl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/internal/try"
)

func TestGoldenCases(t *testing.T) {
	d := open(t)
	if difference, err := d.Check(); difference != "" || err != nil {
		t.Error(difference, err)
	}
}

// A program that was cached is used again; a broken file is not, and is replaced.
func TestCache(t *testing.T) {
	open(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	files := func() []string {
		names, _ := filepath.Glob(os.Getenv("XDG_CACHE_HOME") + "/drun/opencl/*")
		return names
	}
	check := func() {
		d, err := Open(device.Found)
		if err != nil {
			t.Fatal(err)
		}
		g := &golden{d: d}
		g.moves()
		if g.difference != "" {
			t.Error(g.difference)
		}
	}
	check()
	if len(files()) != 1 {
		t.Fatalf("the cache has %v", files())
	}
	whole, _ := os.ReadFile(files()[0])
	check()
	for _, broken := range [][]byte{{}, whole[:len(whole)/2], append([]byte("x"), whole...)} {
		if err := os.WriteFile(files()[0], broken, 0o644); err != nil {
			t.Fatal(err)
		}
		check()
		if now, _ := os.ReadFile(files()[0]); len(now) < len(whole)/2 || string(now) == string(broken) {
			t.Errorf("a broken file of %d bytes became one of %d", len(broken), len(now))
		}
	}
}

func TestCompilerFails(t *testing.T) {
	d := open(t)
	err := func() (err error) {
		defer try.Caught(&err)
		d.build("move.cl", " -DWORD=no_such_type")
		return nil
	}()
	if err == nil || !strings.Contains(err.Error(), "cannot compile move.cl") || !strings.Contains(err.Error(), "error: ") {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "cpu": true, "auto": true, "opencl": true, "opencl:0": true, "opencl:12": true, "opencl:": false, "opencl:-1": false,
		"opencl:01": false, "opencl:x": false, "gpu": false, "cuda": false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	t.Setenv("DRUN_OPENCL_LIB", "")
	if d, err := Choose("cpu", 3); d != nil || err != nil {
		t.Error("cpu:", d, err)
	}
	if device != nil {
		if d, err := Choose("opencl:99", 0); d != nil || err == nil || !strings.Contains(err.Error(), "drun devices") {
			t.Error("opencl:99:", d, err)
		}
	}
}
