package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"drun/internal/sshtest"
)

// The examples of these pages do what stands there: a recipe, commands that run it, and lines that these print.
func TestCheckpointsDocument(t *testing.T) { examples(t, "checkpoints.md", 7, "") }

func TestDataDocument(t *testing.T) { examples(t, "data.md", 6, "") }

func TestFromPyTorchDocument(t *testing.T) { examples(t, "from-pytorch.md", 4, "") }

func TestModelsDocument(t *testing.T) { examples(t, "models.md", 3, "") }

func TestRecipesDocument(t *testing.T) { examples(t, "recipes.md", 3, "") }

func TestTensorsDocument(t *testing.T) { examples(t, "tensors.md", 5, "") }

func TestThreatsDocument(t *testing.T) { examples(t, "threats.md", 1, "") }

func TestParallelismDocument(t *testing.T) { examples(t, "parallelism.md", 16, "") }

func TestBackendsDocument(t *testing.T) {
	if !haveGloo() {
		t.Skip("Gloo is not installed: apt-get install libgloo-dev g++")
	}
	examples(t, "backends.md", 1, "plugins bin\nenv DRUN_PLUGIN_PATH=$WORK/bin\n")
}

func TestNodesDocument(t *testing.T) {
	if !haveGloo() {
		t.Skip("Gloo is not installed: apt-get install libgloo-dev g++")
	}
	begin := ""
	if sshtest.Missing() == "" {
		begin = "sshd a b\n"
	}
	examples(t, "nodes.md", 2, begin+"plugins bin\nenv DRUN_PLUGIN_PATH=$WORK/bin\nenv XDG_CONFIG_HOME=$WORK/config\n")
}

// examples runs those of a page, each after the same beginning of a script.
func examples(t *testing.T, page string, want int, begin string) {
	content, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```python\n([^`]*)```\n\n```sh\n([^`]*)```\n\n```text\n([^`]*)```").FindAllStringSubmatch(string(content), -1)
	if len(found) != want || strings.Count(string(content), "```python") != want {
		t.Fatalf("%d of %d examples are a recipe, commands and lines; want %d", len(found), strings.Count(string(content), "```python"), want)
	}
	dir := t.TempDir()
	for _, block := range found {
		recipe, commands, want := block[1], block[2], block[3]
		if strings.Contains(commands, "--hosts") && sshtest.Missing() != "" {
			t.Run("hosts", func(t *testing.T) {
				t.Skip(sshtest.Missing())
			})
			continue
		}
		name := regexp.MustCompile(`drun run (\w+)\.star`).FindStringSubmatch(commands)
		if name == nil {
			t.Fatalf("no recipe is run:\n%s", commands)
		}
		script := fmt.Sprintf("%sexec sh all.sh\ncp stdout got\nexec sh lines.sh\n-- all.sh --\nset -e\nexec 2>&1\n%s-- %s.star --\n%s-- want --\n%s-- lines.sh --\n%s",
			begin, commands, name[1], recipe, want, `
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
	}, Cmds: commands(map[string]func(*testscript.TestScript, []string){"plugins DIR": buildPlugins, "sshd NAME…": startSSH})})
}
