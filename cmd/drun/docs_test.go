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

func TestDebuggingDocument(t *testing.T) { examples(t, "debugging.md", 5, "") }

func TestDevicesDocument(t *testing.T) {
	needOpenCL(t)
	examples(t, "devices.md", 1, "")
}

func TestDataDocument(t *testing.T) { examples(t, "data.md", 6, "") }

func TestFromPyTorchDocument(t *testing.T) { examples(t, "from-pytorch.md", 4, "") }

func TestModelsDocument(t *testing.T) { examples(t, "models.md", 3, "") }

func TestProofDocument(t *testing.T) { examples(t, "proof.md", 1, "") }

func TestRecipesDocument(t *testing.T) { examples(t, "recipes.md", 3, "") }

func TestTensorsDocument(t *testing.T) { examples(t, "tensors.md", 5, "") }

func TestThreatsDocument(t *testing.T) { examples(t, "threats.md", 1, "") }

func TestParallelismDocument(t *testing.T) { examples(t, "parallelism.md", 16, "") }

// The lines that parallelism.md changes in gpt.star train it on a mesh: with the bits of a repeat and, but for rounding, the results
// of one rank.
func TestGPTOnAMesh(t *testing.T) {
	page, err := os.ReadFile("../../docs/parallelism.md")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile("../../examples/gpt.star")
	if err != nil {
		t.Fatal(err)
	}
	diff := regexp.MustCompile("(?s)```diff\n(.*?)```").FindStringSubmatch(string(page))
	changed, lines := string(recipe), func(part string) string { return regexp.MustCompile("(?m)^[-+]").ReplaceAllString(part, "") }
	for _, m := range regexp.MustCompile(`(-.*\n)((?:\+.*\n)+)`).FindAllStringSubmatch(diff[1], -1) {
		if strings.Count(changed, lines(m[1])) != 1 {
			t.Fatalf("gpt.star has not just one line %q", lines(m[1]))
		}
		changed = strings.Replace(changed, lines(m[1]), lines(m[2]), 1)
	}
	settings := "-p epochs=1 -p batch=512 -p context=8 -p width=8 -p heads=2 -p sample=12"
	dir := t.TempDir()
	script := fmt.Sprintf(`cp $EXAMPLES/data/lighthouse.txt data/lighthouse.txt
drun run $EXAMPLES/gpt.star %[1]s -p dropout=0
drun run mesh.star -n 8 %[1]s -p dropout=0
drun sql 'select count(*), max(abs(a.value - b.value)) < 2e-6 as same from metrics a join metrics b on a.step = b.step and a.name = b.name where a.run = 1 and b.run = 2'
stdout '^10 +1$'
drun run mesh.star -n 8 %[1]s
drun replay last
stdout 'the same bits'
! drun run turned.star -n 8 %[1]s --resume 2
stderr 'this rank saved the part "tp . of 2, pp . of 2" of a model, and has "tp . of 2, pp . of 2" now: restore it on the same mesh'
-- data/none --
-- mesh.star --
%[2]s-- turned.star --
%[3]s`, settings, changed, strings.Replace(changed, `("dp", "tp", "pp")`, `("tp", "dp", "pp")`, 1))
	if err := os.WriteFile(filepath.Join(dir, "mesh.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
		root, err := os.Getwd()
		env.Setenv("EXAMPLES", root+"/../../examples")
		return err
	}})
}

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
		name := regexp.MustCompile(`drun (?:run|debug) (\w+)\.star`).FindStringSubmatch(commands)
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
		programCache(env)
		return nil
	}, Cmds: commands(map[string]func(*testscript.TestScript, []string){"plugins DIR": buildPlugins, "sshd NAME…": startSSH})})
}
