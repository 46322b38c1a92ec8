package starlib

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesStayBeneathTheirFolders(t *testing.T) {
	top := t.TempDir()
	recipe, data := filepath.Join(top, "recipe"), filepath.Join(top, "data")
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(filepath.Base(path)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(recipe, "sub", "own.txt"))
	write(filepath.Join(data, "extra.txt"))
	write(filepath.Join(top, "secret.txt"))
	if err := os.Symlink("../secret.txt", filepath.Join(recipe, "link.txt")); err != nil {
		t.Fatal(err)
	}
	files, err := OpenFiles(recipe, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub/own.txt", "extra.txt", filepath.Join(data, "extra.txt"), filepath.Join(recipe, "sub/own.txt")} {
		f, err := files.Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, _ := io.ReadAll(f); string(got) != filepath.Base(name) {
			t.Errorf("%s: read %q", name, got)
		}
		f.Close()
	}
	for name, want := range map[string]string{
		"../secret.txt":                  "outside the recipe's folder",
		"link.txt":                       "outside the recipe's folder",
		filepath.Join(top, "secret.txt"): "outside the recipe's folder",
		"missing.txt":                    "no such file",
		"sub":                            "it is a folder",
	} {
		if _, err := files.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
}
