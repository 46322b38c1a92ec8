package starlib

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// write creates a file and its folder.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFilesStayBeneathTheirFolders(t *testing.T) {
	top := t.TempDir()
	recipe, data := filepath.Join(top, "recipe"), filepath.Join(top, "data")
	for _, path := range []string{filepath.Join(recipe, "sub", "own.txt"), filepath.Join(data, "extra.txt"), filepath.Join(top, "secret.txt")} {
		write(t, path, filepath.Base(path))
	}
	for link, target := range map[string]string{"link.txt": "../secret.txt", "folder": "..", "shared": data, "own": filepath.Join(recipe, "sub"), "nowhere": "/no/such"} {
		if err := os.Symlink(target, filepath.Join(recipe, link)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := OpenFiles(recipe, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub/own.txt", "extra.txt", filepath.Join(data, "extra.txt"), filepath.Join(recipe, "sub/own.txt"), "shared/extra.txt", "own/own.txt"} {
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
		"link.txt":                       "link.txt is outside the recipe's folder, since a symbolic link leads to " + filepath.Join(top, "secret.txt") + ": a recipe",
		"folder/secret.txt":              "since a symbolic link leads to " + filepath.Join(top, "secret.txt"),
		"../data/extra.txt":              "../data/extra.txt is outside the recipe's folder: a recipe",
		"nowhere":                        "nowhere is outside the recipe's folder: a recipe",
		filepath.Join(top, "secret.txt"): "outside the recipe's folder",
		"missing.txt":                    "no such file",
		"sub":                            "it is a folder",
	} {
		if _, err := files.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
	if names, err := files.List("shared"); err != nil || !slices.Equal(names, []string{"extra.txt"}) {
		t.Errorf("a folder that a link leads to: %v, %v", names, err)
	}
}

// A file that was read to its end is reported with its checksum: once, and again after it has changed.
func TestFilesThatWereReadAreTold(t *testing.T) {
	top := t.TempDir()
	recipe, data := filepath.Join(top, "recipe"), filepath.Join(top, "data")
	own, extra := filepath.Join(recipe, "own.txt"), filepath.Join(data, "extra.txt")
	write(t, own, "abc")
	write(t, extra, "")
	files, err := OpenFiles(recipe, data)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	files.OnRead = func(f FileRead) {
		path, sha256, bytes := f.Path, f.SHA256, f.Bytes
		told = append(told, fmt.Sprint(path, " ", sha256[:8], " ", bytes))
	}
	read := func(name string, most int64, want ...string) {
		t.Helper()
		f, err := files.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.ReadAll(io.LimitReader(f, most)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, want) {
			t.Errorf("of %s: told %q, want %q", name, told, want)
		}
		told = nil
	}
	read("./own.txt", 2) // not to its end
	read("./own.txt", 9, "own.txt ba7816bf 3")
	write(t, own, "abd") // at once: the file's time may not have moved
	read(own, 9, "own.txt a52d159f 3")
	read("extra.txt", 9, extra+" e3b0c442 0")
	for start := time.Now(); time.Since(start) < settled+100*time.Millisecond; {
		time.Sleep(100 * time.Millisecond)
	}
	read("own.txt", 9, "own.txt a52d159f 3")
	read("own.txt", 9)
	read(own, 9)
	write(t, own, "abcd")
	read("own.txt", 9, "own.txt 88d4266f 4")
}
