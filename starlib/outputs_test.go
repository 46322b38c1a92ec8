package starlib

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"drun/internal/exit"
)

func put(o *Outputs, name, content string) error {
	return o.Write(name, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
}

func TestOutputs(t *testing.T) {
	home := t.TempDir()
	o := NewOutputs(home, 7)
	if _, err := o.Open("a/b.txt"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, content := range []string{"one", "2"} {
		if err := put(o, "a/b.txt", content); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a/b.txt", filepath.Join(home, "outputs/7/a/b.txt")} {
			f, err := o.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(f); string(got) != content || f.Size() != int64(len(content)) {
				t.Errorf("%s: %q", name, got)
			}
			f.Close()
		}
	}
	for name, want := range map[string]fs.FileMode{"outputs": 0o700, "outputs/7/a": 0o700, "outputs/7/a/b.txt": 0o600} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := put(o, "a\x00b", "x"); err == nil || exit.CodeOf(err) != exit.Recipe || !strings.Contains(err.Error(), "null character") {
		t.Errorf("a null character in the name: %v", err)
	}
	for _, name := range []string{"", ".", "..", "../x", "a/../../x", "/etc/x", home, filepath.Join(home, "outputs/70/x")} {
		if err := put(o, name, "x"); err == nil || !strings.Contains(err.Error(), "is outside the run's outputs folder") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := o.Open(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// No link leads out of the home, and nothing but a regular file is replaced.
func TestOutputsStayInTheHome(t *testing.T) {
	home, elsewhere := t.TempDir(), t.TempDir()
	o := NewOutputs(home, 7)
	if err := put(o, "file", "old"); err != nil {
		t.Fatal(err)
	}
	dir := o.Dir()
	if err := errors.Join(os.WriteFile(filepath.Join(elsewhere, "file"), []byte("theirs"), 0o600), os.Symlink(elsewhere, filepath.Join(dir, "out")), os.Symlink("file", filepath.Join(dir, "in")),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.Symlink(filepath.Join(elsewhere, "file"), filepath.Join(dir, ".file.part"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"out/file": "a symbolic link leads out of the folder", "in": "in: it is not a regular file",
		"folder": "it is a folder", "fifo": "it is not a regular file", "file/x": "not a directory",
	} {
		if err := put(o, name, "new"); err == nil || !strings.Contains(err.Error(), want) || exit.CodeOf(err) != exit.Storage {
			t.Errorf("writing %s: %v", name, err)
		}
		if _, err := o.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reading %s: %v", name, err)
		}
	}
	if err := put(o, "file", "new"); err != nil { // over the link that is in its way
		t.Error(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "file"): "new", filepath.Join(elsewhere, "file"): "theirs"} {
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if err := os.Rename(filepath.Join(home, "outputs"), filepath.Join(elsewhere, "outputs")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "outputs"), filepath.Join(home, "outputs")); err != nil {
		t.Fatal(err)
	}
	if err := put(o, "file", "new"); err == nil || !strings.Contains(err.Error(), "a symbolic link leads out of the folder") {
		t.Error(err)
	}
}

// A failed write leaves the old file and nothing beside it. So does a write that was killed, as the next write finds.
func TestOutputsAreWhole(t *testing.T) {
	o := NewOutputs(t.TempDir(), 7)
	if err := put(o, "file", "old"); err != nil {
		t.Fatal(err)
	}
	err := o.Write("file", func(w io.Writer) error {
		if _, err := io.WriteString(w, "ne"); err != nil {
			return err
		}
		if got, err := os.ReadFile(filepath.Join(o.Dir(), "file")); err != nil || string(got) != "old" {
			t.Errorf("while the new file is written, the old one is %q, %v", got, err)
		}
		return fmt.Errorf("no more: %w", syscall.ENOSPC)
	})
	if err == nil || !errors.Is(err, syscall.ENOSPC) || exit.CodeOf(err) != exit.Storage {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(o.Dir(), ".file.part"), []byte("left by a kill"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := put(o, "file", "new"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(o.Dir())
	if err != nil || len(entries) != 1 || entries[0].Name() != "file" {
		t.Errorf("%v, %v", entries, err)
	}
}

// The bytes are durable before the rename, and the rename before Write returns.
func TestOutputsAreDurableInOrder(t *testing.T) {
	if home := os.Getenv("DRUN_TEST_OUTPUTS"); home != "" {
		if err := put(NewOutputs(home, 7), "file", "new"); err != nil {
			t.Fatal(err)
		}
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: apt-get install strace")
	}
	home, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-y", "-qq", "-o", trace, "-e", "trace=write,fsync,rename,renameat,renameat2,mkdirat", os.Args[0], "-test.run=^TestOutputsAreDurableInOrder$")
	cmd.Env = append(os.Environ(), "DRUN_TEST_OUTPUTS="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(strings.ToLower(string(out)), "ptrace") {
			t.Skip("strace may not trace here: run as root (in a container, CAP_SYS_PTRACE)")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, m := range regexp.MustCompile(`(\w+)\(\d+<`+regexp.QuoteMeta(home)+`([^>]*)>`).FindAllStringSubmatch(string(text), -1) {
		calls = append(calls, strings.TrimSuffix(m[1], "2")+" "+m[2])
	}
	want := []string{"mkdirat ", "fsync ", "mkdirat /outputs", "fsync /outputs", "write /outputs/7/.file.part", "fsync /outputs/7/.file.part", "renameat /outputs/7", "fsync /outputs/7"}
	if !slices.Equal(calls, want) {
		t.Errorf("the calls are\n%q, want\n%q", calls, want)
	}
}
