package recipetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"drun/collective"
	"drun/engine"
	"drun/plugins/client"
	"drun/plugins/host"
)

func TestMain(m *testing.M) { Main(m, start) }

// start is a worker's way to a plugin.
func start(p *engine.Plugin, onDeath func(error)) collective.Backend {
	return &client.Backend{Plugin: &host.Plugin{Name: p.Name, Path: p.Path, SHA256: p.SHA256, Mark: p.Mark}, Stderr: os.Stderr, OnDeath: onDeath}
}

func TestRecipes(t *testing.T) { Run(t, "testdata", "shm") }

// TestRecipesOnGloo runs the same recipes on a plugin, where its library is.
func TestRecipesOnGloo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	engines, err := exec.Command("sh", "../../plugins/engines.sh").Output()
	if err != nil || !strings.Contains(string(engines), "gloo") {
		t.Skip("Gloo's headers are not here: apt-get install libgloo-dev g++")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-tags", "gloo", "-o", dir, "drun/plugins/gloo/drun-backend-gloo")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("DRUN_PLUGIN_PATH", dir)
	Run(t, "testdata", "gloo")
}
