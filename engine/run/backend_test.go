package run

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"drun/collective"
	"drun/engine/cluster"
	"drun/engine/record"
	"drun/history"
	"drun/history/records"
	"drun/plugins/host"
)

// A plugin that does not answer may have been the better one: the user is told that another is taken. One that has
// answered is not started again only to be asked.
func TestUnansweredPluginIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file(host.Prefix+"broken", "")
	file(host.Prefix+"works", "")
	asks := file("asks", `#!/bin/sh
echo "$2" >>"$(dirname "$0")/asked"
case $2 in
works) echo '{"between_nodes": 1}' ;;
*) echo "libbroken.so is missing" >&2; exit 1 ;;
esac
`)
	t.Setenv("PATH", "/usr/bin:/bin")
	t.Setenv("DRUN_PLUGIN_PATH", "")
	recipe := file("recipe.star", "def main():\n    pass\n")
	for _, asked := range []string{"broken works ", "broken works broken "} {
		var out bytes.Buffer
		p, err := newPlan(Options{Recipe: recipe, Nproc: 1, Join: &cluster.Joining{Count: 2},
			Communication: Communication{Plugins: []string{dir}, PluginHost: func() (string, error) { return asks, nil }},
			History:       record.History{Home: filepath.Join(dir, "home")}, Output: Output{Stdout: &out, Stderr: &out}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Backend != "works" || !strings.Contains(out.String(), "broken: libbroken.so is missing") {
			t.Errorf("the backend is %s, and the user is told %q", p.Backend, out.String())
		}
		data, _ := os.ReadFile(filepath.Join(dir, "asked"))
		names := strings.Fields(string(data))
		slices.Sort(names[:min(2, len(names))]) // both are asked at once
		if got := strings.Join(names, " ") + " "; got != asked {
			t.Errorf("these were asked: %s, want %s", got, asked)
		}
	}
}

// A plugin that is only in $PATH, and that nobody has used, is not taken, though it was asked once.
func TestKnownPluginIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	home, folder, program := filepath.Join(dir, "home"), filepath.Join(dir, "bin"), filepath.Join(dir, "asks")
	recipe := filepath.Join(dir, "recipe.star")
	plugin := &host.Plugin{Name: "works", Path: filepath.Join(folder, host.Prefix+"works")}
	for path, text := range map[string]string{plugin.Path: "", program: "#!/bin/sh\nexit 1\n", recipe: "def main():\n    pass\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(plugin.Sum(), host.Remember(home, program, plugin, collective.Properties{BetweenNodes: 1})); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
	t.Setenv("DRUN_PLUGIN_PATH", "")
	_, err := newPlan(Options{Recipe: recipe, Nproc: 1, Join: &cluster.Joining{Count: 2},
		Communication: Communication{PluginHost: func() (string, error) { return program, nil }}, History: record.History{Home: home}})
	if err == nil || !strings.Contains(err.Error(), "only in $PATH") {
		t.Errorf("the error is %v", err)
	}
}

// Rank order is the default unless a backend says otherwise, and a replay adds in the order of the run.
func TestOrderOfReduction(t *testing.T) {
	yes, no := true, false
	nodes := func(numbers ...int) *history.Detail {
		d := &history.Detail{}
		d.WorldSize, d.Recipe = len(numbers), "recipe.star"
		for rank, node := range numbers {
			d.Ranks = append(d.Ranks, records.RankPlace{Rank: rank, Node: node})
		}
		return d
	}
	for _, test := range []struct {
		name     string
		about    collective.Properties
		asked    *bool
		replayed *history.Detail
		own      bool
	}{
		{"the default", collective.Properties{}, nil, nil, false},
		{"of a backend that has its own", collective.Properties{OwnOrder: true}, nil, nil, true},
		{"that is asked", collective.Properties{OwnOrder: true}, &yes, nil, false},
		{"its own is asked for", collective.Properties{}, &no, nil, true},
		{"of one node", collective.Properties{}, &no, nodes(0, 0, 0, 0), true},
		{"of nodes of two", collective.Properties{}, &no, nodes(0, 0, 1, 1), false},
		{"of nodes of one", collective.Properties{}, &no, nodes(0, 1, 2, 3), true},
		{"of a whole world", collective.Properties{WholeWorld: true}, &no, nodes(0, 0, 1, 1), true},
	} {
		p := &plan{plugin: &host.Plugin{}, properties: &test.about}
		p.Deterministic = test.asked
		if test.replayed != nil {
			p.Replay = &record.Replay{Spread: record.Spread(test.replayed)}
		}
		if got := p.ownOrder(); got != test.own {
			t.Errorf("%s: its own order: %v", test.name, got)
		}
	}
}
