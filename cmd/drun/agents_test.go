package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/internal/freeport"
)

// TestManyAgents runs turns.star, in which each rank in turn computes for a second
// while all others wait, on as many agents of one rank as DRUN_TEST_AGENTS says, over
// Gloo, five times: nobody takes that for a circle, and what goes to the head stays
// below 1 MB/s. Few agents do so in the script turns.
func TestManyAgents(t *testing.T) {
	agents, err := strconv.Atoi(os.Getenv("DRUN_TEST_AGENTS"))
	if err != nil {
		t.Skip("make agents runs it: it starts sixteen agents")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	recipe := filepath.Join(t.TempDir(), "turns.star")
	if err := os.WriteFile(recipe, []byte(`
def main():
    x = tensor.full([2], 1.0)
    for turn in range(dist.world_size()):
        if dist.rank() == turn:
            start, n = run.elapsed(), 0
            for _ in range(100000):
                if run.elapsed() - start > 1:
                    break
                for i in range(10000):
                    n += i
        dist.all_reduce(x, op = "max")
    print("sum", dist.all_reduce(x)[0].item())
`), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for round := range 5 {
		count := new(relayed)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		head, err := freeport.Address()
		if err != nil {
			t.Fatal(err)
		}
		go count.forward(l, head)
		all := make([]*exec.Cmd, agents)
		outputs := make([]bytes.Buffer, agents)
		start := time.Now()
		for i := range all {
			address := l.Addr().String()
			if i == 0 {
				address = head
			}
			all[i] = exec.CommandContext(t.Context(), filepath.Join(bin, "drun"), "run", recipe, "--nnodes", strconv.Itoa(agents), "--node-rank", strconv.Itoa(i),
				"--rdzv", address, "--backend", "gloo", "--plugin-dir", filepath.Join(bin, "plugins"), "--home", t.TempDir(), "--timeout", "3m")
			all[i].Stdout, all[i].Stderr = &outputs[i], &outputs[i]
			if err := all[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		for i, agent := range all {
			if err := agent.Wait(); err != nil {
				t.Errorf("round %d, agent %d: %v\n%s", round, i, err, outputs[i].String())
			}
		}
		l.Close()
		took := time.Since(start).Seconds()
		if want := fmt.Sprintf("sum %d.0", agents); !strings.Contains(outputs[0].String(), want) {
			t.Errorf("round %d: no %q in\n%s", round, want, outputs[0].String())
		}
		rate := float64(count.n.Load()) / took
		t.Logf("round %d: %.0f kB/s to and from the coordinator in %.0f s", round, rate/1e3, took)
		if rate > 1e6 {
			t.Errorf("round %d: %.0f bytes a second", round, rate)
		}
	}
}
