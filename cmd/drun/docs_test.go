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

// The example of docs/checkpoints.md does what stands there: its commands print
// the lines.
func TestCheckpointsDocument(t *testing.T) {
	content, err := os.ReadFile("../../docs/checkpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string) string {
		m := regexp.MustCompile("(?s)```" + kind + "\n(.*?)```").FindSubmatch(content)
		if m == nil {
			t.Fatalf("no example in %s", kind)
		}
		return string(m[1])
	}
	dir := t.TempDir()
	script := fmt.Sprintf("exec sh all.sh\ncp stdout got\nexec sh lines.sh\n-- all.sh --\nset -e\nexec 2>&1\n%s-- train.star --\n%s-- want --\n%s-- lines.sh --\n%s",
		block("sh"), block("python"), block("text"), `
while read -r line; do
    grep -q -F -e "$line" got || { echo "not printed: $line"; cat got; exit 1; }
done < want
`)
	if err := os.WriteFile(filepath.Join(dir, "checkpoints.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Count(script, "drun ") < 5 {
		t.Fatal("the example has no commands")
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
		env.Setenv("NO_COLOR", "1")
		return nil
	}})
}
