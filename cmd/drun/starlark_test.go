package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The recipes of docs/starlark.md print what stands below them, or fail with it, if they are marked as py; and of its table the first
// column fails with the message in the third, while the second runs.
func TestStarlarkDocument(t *testing.T) {
	content, err := os.ReadFile("../../docs/starlark.md")
	ok(t, err)
	var script, files strings.Builder
	add := func(n int, recipe, want string, fails bool) {
		fmt.Fprintf(&files, "-- r%d.star --\n%s\n-- r%d.want --\n%s\n", n, recipe, n, want)
		fmt.Fprintf(&script, "said %v r%d.star r%d.want\n", fails, n, n)
	}
	n := 0
	blocks := regexp.MustCompile("(?s)```(py|python)\n(.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(string(content), -1)
	for _, b := range blocks {
		n++
		add(n, b[2], b[3], b[1] == "py")
	}
	if n < 9 || n != strings.Count(string(content), "```py") {
		t.Fatalf("%d recipes with what they print", n)
	}
	rows := 0
	code := func(cell string) []string {
		var all []string
		for _, c := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
			all = append(all, strings.ReplaceAll(c[1], `\|`, "|"))
		}
		return all
	}
	for _, line := range strings.Split(string(content), "\n") {
		cells := regexp.MustCompile(`^\| (.*[^\\]) \| (.*[^\\]) \| (.*) \|$`).FindStringSubmatch(line)
		if cells == nil || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for i, cell := range cells[1:3] {
			for _, c := range code(cell) {
				n++
				want := ""
				if i == 0 {
					want = code(cells[3])[0]
				}
				add(n, "def main():\n    x = tensor.ones(2, 2)\n    y = 1.0\n    a = {\"a\": 1}\n    "+c+"\n", want, i == 0)
			}
		}
	}
	if rows < 20 {
		t.Fatalf("%d rows of the table", rows)
	}
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "starlark.txtar"), []byte(script.String()+files.String()), 0o600))
	testscript.Run(t, testscript.Params{Dir: dir, Cmds: commands(map[string]func(*testscript.TestScript, []string){"said FAILS RECIPE WANT": func(ts *testscript.TestScript, args []string) {
		err := ts.Exec("drun", "run", args[1])
		got := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if (err != nil) != (args[0] == "true") {
			ts.Fatalf("%s\nfails: want %s\n%s", ts.ReadFile(args[1]), args[0], got)
		}
		for _, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[2])), "\n") {
			if !strings.Contains(got, line) {
				ts.Fatalf("%s\nwant %s\n%s", ts.ReadFile(args[1]), line, got)
			}
		}
	}})})
}
