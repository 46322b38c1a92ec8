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

// Documents with ```console blocks: their commands are run one after the other in one folder, and print
// what the documents show, but for names, times and spaces. A recipe that the text before it names is a file from there on.
func TestConsoleDocuments(t *testing.T) {
	scripts := t.TempDir()
	for _, name := range []string{"docs/commands", "docs/history-for-mlflow-users", "docs/tutorial"} {
		content, err := os.ReadFile("../../" + name + ".md")
		ok(t, err)
		commands, files, n := clone, "", 0
		for _, block := range regexp.MustCompile("(?s)(?:`([^`]+\\.star)`[^\n]*:\n\n```python|```console)\n(.*?)```").FindAllStringSubmatch(string(content), -1) {
			if block[1] != "" {
				n++
				commands += fmt.Sprintf("cp %d.star %s\n", n, block[1])
				files += fmt.Sprintf("-- %d.star --\n%s\n", n, block[2])
				continue
			}
			for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
				command, want, _ := strings.Cut(part, "\n")
				n++
				commands += fmt.Sprintf("exec sh %d.sh\nlooks %d.want\n", n, n)
				files += fmt.Sprintf("-- %d.sh --\nexec 2>&1\n%s\nexit 0\n-- %d.want --\n%s\n", n, command, n, want)
			}
		}
		if n < 3 {
			t.Fatalf("%s.md: %d commands", name, n)
		}
		ok(t, os.WriteFile(filepath.Join(scripts, filepath.Base(name)+".txtar"), []byte(commands+files), 0o600))
	}
	testscript.Run(t, testscript.Params{Dir: scripts, Setup: func(env *testscript.Env) error {
		root, err := os.Getwd()
		env.Setenv("EXAMPLES", root+"/../../examples")
		env.Setenv("NO_COLOR", "1")
		return err
	}, Cmds: commands(map[string]func(*testscript.TestScript, []string){"looks FILE": func(ts *testscript.TestScript, args []string) {
		if got, want := shape(ts.ReadFile("stdout")), shape(ts.ReadFile(args[0])); got != want {
			ts.Fatalf("printed\n%s\nwant\n%s", got, want)
		}
	}})})
}

// clone makes what a reader has who has cloned drun: the examples, in a repository.
const clone = `exec cp -r $EXAMPLES examples
exec git init -q
exec git add examples
exec git -c user.name=somebody -c user.email=somebody@example.com commit -q -m examples
`

// shape is a command's output without what differs from run to run.
func shape(text string) string {
	for _, r := range []struct{ of, to string }{
		{`[a-z]+-[a-z]+(-\d+)?`, "NAME"},
		{`\b([\d.]+ (µs|ms|s)|\d+m\d\ds)\b`, "TIME"},
		{`(now|\d+ \w+ ago) +\d+\.\d`, "WHEN"},
		{`(?m) +\d+\.\d$`, " SECONDS"},
		{`the rest, \d+ values`, "the rest"},
		{`[ \t]+`, " "},
		{` ?\n`, "\n"},
	} {
		text = regexp.MustCompile(r.of).ReplaceAllString(text, r.to)
	}
	return strings.TrimSpace(text)
}
