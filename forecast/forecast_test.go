package forecast

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/run"
	"drun/engine/worker"
)

func TestMain(m *testing.M) {
	if worker.Invoked() {
		os.Exit(worker.Main())
	}
	os.Exit(m.Run())
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

// What must hold of large calls: a link carries its part of the data, whatever the latency, and small ones
// cost their messages.
func TestModel(t *testing.T) {
	const bytes = 64 << 20
	slow := Link{Bandwidth: 1e8, Latency: 1e-6}
	far := Link{Bandwidth: 1e12, Latency: 1e-3}
	for _, tc := range []struct {
		what      string
		m         Model
		kind      collective.Kind
		bytes     float64
		ranks     int
		want      float64
		tolerance float64
	}{
		{"a rank alone", Model{Link: slow, PerNode: 1}, collective.AllReduce, bytes, 1, 0, 0},
		{"a ring of 4", Model{Link: slow, PerNode: 1}, collective.AllReduce, bytes, 4, 2 * 3.0 / 4 * bytes / 1e8, 0.01},
		{"a ring of 64", Model{Link: slow, PerNode: 1}, collective.AllReduce, bytes, 64, 2 * 63.0 / 64 * bytes / 1e8, 0.01},
		{"2 nodes send everything once", Model{Link: slow, PerNode: 4}, collective.AllReduce, bytes, 8, bytes / 1e8, 0.1},
		{"nodes between others send everything twice", Model{Link: slow, PerNode: 4}, collective.AllReduce, bytes, 16, 2 * bytes / 1e8, 0.35},
		{"a broadcast goes once", Model{Link: slow, PerNode: 4}, collective.Broadcast, bytes, 16, bytes / 1e8, 0.35},
		{"all_gather brings what the others have", Model{Link: slow, PerNode: 4}, collective.AllGather, bytes, 16, 12 * bytes / 1e8, 0.01},
		{"a small call of 8 nodes takes 3 rounds", Model{Link: far, PerNode: 2}, collective.AllReduce, 4, 16, 3e-3, 0.01},
		{"a small call of a ring", Model{Link: far, PerNode: 1}, collective.AllReduce, 4, 5, 12e-3, 0.01},
		{"a barrier", Model{Link: far, PerNode: 2}, collective.Barrier, 0, 16, 3e-3, 0.01},
		{"shared memory", Model{Link: slow, PerNode: 8, Costs: Costs{Call: 1e-6, PerByte: 1e-9, Ranks: 2}}, collective.AllReduce, 1e9, 8, 4 + 3e-6, 0.001},
	} {
		near(t, tc.what, tc.m.call(tc.kind, tc.bytes, tc.ranks), tc.want, tc.tolerance)
	}
	for _, kind := range []collective.Kind{collective.AllReduce, collective.Broadcast, collective.Reduce, collective.AllGather, collective.Gather, collective.Scatter, collective.ReduceScatter, collective.AllToAll, collective.Barrier} {
		for _, perNode := range []int{1, 2, 8} {
			before := 0.0
			for _, ranks := range []int{2, 4, 8, 16, 64, 1024} {
				m := Model{Link: slow, PerNode: perNode, Costs: Costs{Message: 1e-5, Call: 1e-6, PerByte: 1e-10, Ranks: 2}}
				took := m.call(kind, 1<<20, ranks)
				if math.IsNaN(took) || math.IsInf(took, 0) || took <= 0 || took < 0.7*before {
					t.Errorf("%v on %d ranks, %d a node: %g s, after %g s on fewer", kind, ranks, perNode, took, before)
				}
				before = took
			}
		}
	}
}

// Asynchronous calls go on while the rank computes, one after the other.
func TestReplay(t *testing.T) {
	const second = 1e8 / 2 // bytes of a ring's all_reduce of 2 ranks that take half a second
	step := []engine.Moment{
		{Compute: 1, Kind: "all_reduce", Bytes: second, Ranks: 2, Async: 1},
		{Compute: 0.2, Kind: "all_reduce", Bytes: second, Ranks: 2, Async: 2},
		{Compute: 0.1, Waits: 1},
		{Compute: 0, Waits: 2},
		{Compute: 0.3, Kind: "all_reduce", Bytes: second, Ranks: 2},
		{Compute: 0.4},
	}
	m := &Measured{Ranks: 2, Steps: 1, steps: [][]engine.Moment{step}}
	model := &Model{Link: Link{Bandwidth: 1e8}, PerNode: 1}
	now, compute := m.replay(step, 2, model)
	near(t, "compute", compute, 2, 1e-9)
	// 1, then both calls until 2; 0.3, a call of 0.5, 0.4.
	near(t, "step", now, 3.2, 1e-9)
	f := m.Predict(1, 1, model.Link)
	near(t, "a rank alone", f.Step, 2, 1e-9)
	near(t, "its efficiency", f.Efficiency, 1, 1e-9)
	f = m.Predict(2, 1, Link{Bandwidth: 1e8 / payload})
	near(t, "efficiency", f.Efficiency, 2/3.2, 1e-6)
}

// What a recipe does is seen: its calls, their sizes and places, and how long it computes between them.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	file := func(name, source string) run.Options {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		return run.Options{Recipe: path, Nproc: 2, Timeout: time.Minute, Threads: 1, Testing: true}
	}
	const recipe = `def main():
    group = dist.new_group([0, 1])
    for i in range(100):
        testing.sleep(0.02)
        dist.all_reduce(tensor.ones(1000))
        work = dist.all_reduce(tensor.ones(10), async_op = True)
        testing.sleep(0.01)
        work.wait()
        dist.barrier(group)
        run.log(i = i)
`
	m, err := Measure(file("logs.star", recipe), 4)
	if err != nil {
		t.Fatal(err)
	}
	if m.Steps != 4 || m.Ranks != 2 || len(m.Calls) != 3 {
		t.Fatalf("%+v", m)
	}
	if c := m.Calls[0]; c.Op != "all_reduce" || c.Bytes != 4000 || c.Count != 1 || c.Ranks != 2 || !strings.HasSuffix(c.At, "logs.star:5:24") {
		t.Errorf("the first call is %+v", c)
	}
	if m.Costs.Call <= 0 || m.Costs.PerByte <= 0 {
		t.Errorf("shared memory costs %+v", m.Costs)
	}
	f := m.Predict(1, 1, Link{Bandwidth: 1e9})
	if f.Compute < 0.03 || f.Compute > 0.3 || f.Step != f.Compute {
		t.Errorf("alone a step takes %+v, and sleeps 0.03 s", f)
	}
	if f := m.Predict(4, 1, Link{Bandwidth: 1e9, Latency: 0.1}); f.Step < 1 || f.Efficiency > 0.1 {
		t.Errorf("over a slow link a step takes %+v", f)
	}

	for _, tc := range []struct{ name, source, want string }{
		{"none.star", "def main():\n    dist.barrier()\n", "made fewer than 4 steps"},
		{"send.star", "def main():\n    for i in range(9):\n        if dist.is_main():\n            dist.send(1, 1)\n        else:\n            dist.recv(0)\n        run.log(i = i)\n", "send.star:4:22: a step has messages between two ranks"},
		{"fails.star", "def main():\n    fail(\"no\")\n", "no"},
		{"dies.star", "def main():\n    testing.kill_self()\n", "killed"},
	} {
		if _, err := Measure(file(tc.name, tc.source), 4); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}
