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

// The same recipes on plugins, where their libraries are.
func TestRecipesOnGloo(t *testing.T) { onPlugin(t, "testdata", "gloo", "libgloo-dev g++") }

// Every start over MPI takes a second, so that it has the collectives alone; DRUN_TEST_MPI=all for all.
func TestRecipesOnMPI(t *testing.T) {
	dir := "testdata"
	if os.Getenv("DRUN_TEST_MPI") != "all" {
		recipes, err := os.ReadFile("testdata/collectives.star")
		if dir = t.TempDir(); err == nil {
			err = os.WriteFile(dir+"/collectives.star", recipes, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	onPlugin(t, dir, "mpi", "libopenmpi-dev openmpi-bin pkgconf")
}

func onPlugin(t *testing.T, recipes, name, packages string) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	engines, err := exec.Command("sh", "../../plugins/engines.sh").Output()
	if err != nil || !strings.Contains(string(engines), name) {
		t.Skipf("%s is not here: apt-get install %s", name, packages)
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-tags", name, "-o", dir, "drun/plugins/"+name+"/drun-backend-"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("DRUN_PLUGIN_PATH", dir)
	Run(t, recipes, name)
}
