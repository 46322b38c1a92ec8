package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever stands where a recipe should, check and run say what is wrong with it,
// soon.
func TestHostileRecipes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	end := "\ndef main(): pass\n"
	for name, text := range map[string]string{
		"parens": "x = " + strings.Repeat("(", 100_000) + strings.Repeat(")", 100_000) + end,
		"minus":  "x = " + strings.Repeat("-", 100_000) + "1" + end, "not": "x = " + strings.Repeat("not ", 100_000) + "1" + end,
		"lambda": "x = " + strings.Repeat("lambda: ", 100_000) + "1" + end, "sum": "x = " + strings.Repeat("1+", 200_000) + "1" + end,
		"binary": "\x7fELF\x00\xbe\xef", "empty": "", "loads": "load('fifo.star', 'x')" + end, "marked": "\ufeffdef main(:\r\n",
	} {
		if err := os.WriteFile(name+".star", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		syscall.Mkfifo("fifo.star", 0o644), os.Mkdir("folder.star", 0o755), os.Symlink("loop.star", "loop.star"), os.Symlink("/dev/zero", "zero.star"),
		os.WriteFile("large.star", nil, 0o644), os.Truncate("large.star", 100<<20),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"parens": "parens.star:1:82: ", "minus": "minus.star:1:994: ", "not": "not.star:1:3996: ", "lambda": "lambda.star:1:4011: ",
		"sum": "a chain or nesting of more than 10000 parts", "binary": "binary.star:1:6: ", "empty": "there is no function main()",
		"loads": `loads.star:1:6: `, "marked": "marked.star:1:10: ", "fifo": "it is not a regular file", "folder": "folder.star ",
		"loop": "too many symbolic links", "zero": "cannot read the recipe zero.star", "large": "a recipe at most 1048576", "missing": "no such file",
	} {
		refused(t, want, "check", name+".star")
		refused(t, want, "run", name+".star", "--home", filepath.Join(dir, "home"))
	}
	refused(t, "binary.star:1:6: ", "check", ".") // every one of them
}

// refused checks that a command of drun soon ends with an error.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	start := time.Now()
	code := execute(context.Background(), args, &out, &out)
	if code != 1 && code != 2 || !strings.Contains(out.String(), want) {
		t.Errorf("drun %s: exit code %d\n%.300s\nwant %s", args, code, out.String(), want)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("drun %s took %s", args, took)
	}
}
