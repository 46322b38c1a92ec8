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

// The recipes of docs/cookbook.md are the files in examples/cookbook, all of them; the commands print the lines
// below them, and drun check finds nothing.
func TestCookbookDocument(t *testing.T) {
	content, err := os.ReadFile("../../docs/cookbook.md")
	ok(t, err)
	files, err := filepath.Glob("../../examples/cookbook/*.star")
	ok(t, err)
	blocks := regexp.MustCompile("(?s)```python\n(.*?)```\n\n```sh\n(.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(string(content), -1)
	if len(blocks) < 19 || len(blocks) != len(files) || len(blocks) != strings.Count(string(content), "```python") {
		t.Fatalf("%d recipes with commands and lines on the page, %d in examples/cookbook", len(blocks), len(files))
	}
	examples, err := filepath.Abs("../../examples")
	ok(t, err)
	dir := t.TempDir()
	for _, b := range blocks {
		name := regexp.MustCompile(`cookbook/(\w+)\.star`).FindStringSubmatch(b[2])
		if name == nil {
			t.Fatalf("no recipe is run:\n%s", b[2])
		}
		recipe, err := os.ReadFile(filepath.Join(examples, "cookbook", name[1]+".star"))
		ok(t, err)
		if string(recipe) != b[1] {
			t.Errorf("the page has another cookbook/%s.star than examples/cookbook", name[1])
		}
		script := fmt.Sprintf("exec cp -r %s/cookbook %s/data .\nexec drun check cookbook/%s.star\n! stdout .\nexec sh all.sh\nprinted want\n-- all.sh --\nset -e\nexec 2>&1\n%s-- want --\n%s",
			examples, examples, name[1], b[2], b[3])
		ok(t, os.WriteFile(filepath.Join(dir, name[1]+".txtar"), []byte(script), 0o600))
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
		env.Setenv("NO_COLOR", "1")
		return nil
	}, Cmds: commands(map[string]func(*testscript.TestScript, []string){"printed FILE": func(ts *testscript.TestScript, args []string) {
		got := ts.ReadFile("stdout")
		for _, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
			if !strings.Contains(got, line) {
				ts.Fatalf("not printed: %s\n%s", line, got)
			}
		}
	}})})
}
