package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The examples of docs/checkpoints.md do what stands there: a recipe, commands that run
// it, and lines that these print.
func TestCheckpointsDocument(t *testing.T) {
	content, err := os.ReadFile("../../docs/checkpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(python|sh|text)\n(.*?)```").FindAllStringSubmatch(string(content), -1)
	if len(blocks) != 18 {
		t.Fatalf("%d blocks make no six examples", len(blocks))
	}
	dir := t.TempDir()
	for ; len(blocks) > 0; blocks = blocks[3:] {
		recipe, commands, want := blocks[0][2], blocks[1][2], blocks[2][2]
		name := regexp.MustCompile(`drun run (\w+)\.star`).FindStringSubmatch(commands)
		if name == nil || blocks[0][1]+blocks[1][1]+blocks[2][1] != "pythonshtext" {
			t.Fatalf("not a recipe, commands and lines:\n%s%s%s", recipe, commands, want)
		}
		script := fmt.Sprintf("exec sh all.sh\ncp stdout got\nexec sh lines.sh\n-- all.sh --\nset -e\nexec 2>&1\n%s-- %s.star --\n%s-- want --\n%s-- lines.sh --\n%s",
			commands, name[1], recipe, want, `
while read -r line; do
    grep -q -F -e "$line" got || { echo "not printed: $line"; cat got; exit 1; }
done < want
`)
		if err := os.WriteFile(filepath.Join(dir, name[1]+".txtar"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
		env.Setenv("NO_COLOR", "1")
		return nil
	}})
}
