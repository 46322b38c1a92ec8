package client

import (
	"fmt"
	"os"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/internal/programs"
	"drun/kernel/dtype"
	"drun/plugins/host"
	"drun/plugins/internal/wire"
)

// plugins is the folder in which TestMain has put the example plugin.
var plugins string

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
		plugins = dir
		if err := programs.Link(dir, host.Prefix+"example"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// world opens a plugin n times, as the ranks of a world.
func world(t testing.TB, p *host.Plugin, n int) []collective.Comm {
	t.Helper()
	return disttest.Open(t, n, rendezvous.Memory(), false, func(int) collective.Backend {
		return &Backend{Plugin: p, Stderr: t.Output()}
	})
}

func example(t testing.TB) *host.Plugin {
	t.Helper()
	p, err := host.Find("example", []host.Dir{{Path: plugins}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func examples(t testing.TB, n int) []collective.Comm { return world(t, example(t), n) }

func TestConformance(t *testing.T) {
	disttest.Conformance(t, examples)
}

// What a plugin has done is counted without its doing.
func TestStatistics(t *testing.T) {
	comms := world(t, example(t), 2)
	done := make(chan error, 2)
	for _, c := range comms {
		go func() {
			err := disttest.Do(c, collective.NewAllReduce(collective.Of(make([]float32, 100)), dtype.Sum))
			if err == nil {
				err = disttest.Do(c, collective.NewBarrier())
			}
			done <- err
		}()
	}
	for range comms {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for rank, c := range comms {
		got := c.(*Comm).Statistics()
		if got["all_reduce calls"] != 1 || got["all_reduce bytes"] != 400 || got["barrier calls"] != 1 || got["send calls"] != 0 {
			t.Errorf("rank %d: %v", rank, got)
		}
	}
}

func TestCloseAtAnyTime(t *testing.T) {
	disttest.Disorder(t, examples)
}

// A plugin is executed by a descriptor that it inherits. One of this process would be in the way of those that Go's start of a
// process moves about, once in some thousand starts beside others.
func TestExecutedByInheritedDescriptor(t *testing.T) {
	p := example(t)
	x, err := start(t.Context(), p, collective.World{}, wire.DescribeRequest{}, t.Output(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { x.shut(); x.release() }()
	if want := fmt.Sprintf("/proc/self/fd/%d", wire.ProgramFD); x.cmd.Path != want {
		t.Errorf("%s is executed, not %s", x.cmd.Path, want)
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", x.cmd.Process.Pid, wire.ProgramFD))
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(p.Path); err != nil || !os.SameFile(theirs, file) {
		t.Errorf("it inherits %v, not its program (%v)", theirs.Name(), err)
	}
}
