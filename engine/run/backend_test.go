package run

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/engine/cluster"
	"drun/plugins/host"
)

// A plugin that does not answer may have been the better one: the user is told that another is taken.
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
case $2 in
works) echo '{"between_nodes": 1}' ;;
*) echo "libbroken.so is missing" >&2; exit 1 ;;
esac
`)
	t.Setenv("PATH", "/usr/bin:/bin")
	t.Setenv("DRUN_PLUGIN_PATH", "")
	var out bytes.Buffer
	p, err := newPlan(Options{Recipe: file("recipe.star", "def main():\n    pass\n"), Nproc: 1, Join: &cluster.Joining{Count: 2},
		Communication: Communication{Plugins: []string{dir}, PluginHost: func() (string, error) { return asks, nil }},
		History:       History{Home: filepath.Join(dir, "home")}, Output: Output{Stdout: &out, Stderr: &out}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Backend != "works" || !strings.Contains(out.String(), "broken: libbroken.so is missing") {
		t.Errorf("the backend is %s, and the user is told %q", p.Backend, out.String())
	}
}
