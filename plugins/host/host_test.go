package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
)

// programs is where TestMain has put the example plugin.
var programs string

func TestMain(m *testing.M) {
	if name := os.Getenv("HOSTTEST_PLUGIN"); name != "" && os.Getenv("DRUN_BACKEND_PLUGIN") != "" {
		act(name)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "plugins")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs = dir
		build := exec.Command("go", "build", "-o", filepath.Join(dir, Prefix+"example"), "drun/plugins/example")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return 1
		}
		return m.Run()
	}())
}

// world opens a plugin n times, as the ranks of a world.
func world(t testing.TB, p *Plugin, n int) []collective.Comm {
	t.Helper()
	store := rendezvous.Memory()
	comms, errs := make([]collective.Comm, n), make(chan error, n)
	for rank := range n {
		go func() {
			b := &Backend{Plugin: p, Stderr: t.Output()}
			var err error
			comms[rank], err = b.Open(disttest.Context, collective.World{Rank: rank, Size: n, LocalRank: rank, LocalSize: n, Store: store})
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for rank, c := range comms {
			if err := c.Close(); err != nil {
				t.Errorf("close of rank %d: %v", rank, err)
			}
		}
	})
	return comms
}

func example(t testing.TB) *Plugin {
	t.Helper()
	p, err := Find("example", []string{programs})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	disttest.Conformance(t, func(t testing.TB, n int) []collective.Comm { return world(t, example(t), n) })
}
