package recipetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/internal/programs"
	"drun/plugins/client"
	"drun/plugins/host"
)

func TestMain(m *testing.M) { Main(m, start) }

// start is how a worker starts a plugin.
func start(p *engine.Plugin, onDeath func(error)) collective.Backend {
	b := &client.Backend{Plugin: &host.Plugin{Name: p.Name, Path: p.Path, SHA256: p.SHA256, Mark: p.Mark}, Stderr: os.Stderr, OnDeath: onDeath}
	if os.Getenv(closesSlowly) != "" {
		return slow{b}
	}
	return b
}

// closesSlowly is set for runs in which the last rank's plugin takes long to close, as on a busy machine.
const closesSlowly = "DRUN_TEST_CLOSES_SLOWLY"

type slow struct{ collective.Backend }

func (b slow) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	comm, err := b.Backend.Open(ctx, world)
	if err == nil && world.Rank == world.Size-1 {
		comm = slowComm{comm}
	}
	return comm, err
}

type slowComm struct{ collective.Comm }

func (c slowComm) Close() error {
	time.Sleep(2 * time.Second)
	return c.Comm.Close()
}

// When one rank's failure ends the others, each has already reported its own error, however long its plugin takes to
// close.
func TestErrorsComeBeforeTheBackendCloses(t *testing.T) {
	dir, recipes := t.TempDir(), t.TempDir()
	if err := programs.Link(dir, host.Prefix+"example"); err != nil {
		t.Fatal(err)
	}
	const recipe = `# name: sync_grad of another number of parameters
# ranks: 2 3
# exit: 5
# everywhere: yes
def main():
    dist.sync_grad([tensor.ones(1)] * (dist.rank() + 1))  ### "different numbers of parameters"
---
# name: the last rank's own error
# ranks: 3
def main():
    if dist.rank() == 2:
        fail("this is the reason")  ### "fail: this is the reason\nTraceback"
    dist.barrier()
`
	if err := os.WriteFile(filepath.Join(recipes, "slow.star"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DRUN_PLUGIN_PATH", dir)
	t.Setenv(closesSlowly, "1")
	Run(t, recipes, "example")
}

func TestRecipes(t *testing.T) { Run(t, "testdata", "shm") }

// The same recipes with plugins, where their libraries are installed: those that test what backends implement, since
// plugins take longer to start; with MPI, which takes a second, only the collectives. make recipes runs all.
func TestRecipesOnGloo(t *testing.T) {
	onPlugin(t, "gloo", "Gloo is not installed: apt-get install libgloo-dev g++",
		"agreement", "collectives", "exchanges", "failure", "groups", "messages")
}

func TestRecipesOnMPI(t *testing.T) {
	onPlugin(t, "mpi", "Open MPI is not installed: apt-get install libopenmpi-dev openmpi-bin pkgconf", "collectives")
}

func onPlugin(t *testing.T, name, missing string, files ...string) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	engines, err := exec.Command("sh", "../../plugins/engines.sh").Output()
	if err != nil || !strings.Contains(string(engines), name) {
		t.Skip(missing)
	}
	recipes := "testdata"
	if !whole {
		recipes = t.TempDir()
		if err := os.CopyFS(recipes+"/files", os.DirFS("testdata/files")); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			recipe, err := os.ReadFile("testdata/" + file + ".star")
			if err == nil {
				err = os.WriteFile(recipes+"/"+file+".star", recipe, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	if err := programs.Link(dir, host.Prefix+name); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DRUN_PLUGIN_PATH", dir)
	Run(t, recipes, name)
}
