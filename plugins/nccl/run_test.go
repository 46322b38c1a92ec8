package nccl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/internal/freeport"
	"drun/internal/programs"
)

// installed gives what runs drun, with its plugins as they are installed, in a folder of its own.
func installed(t *testing.T) func(env []string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	drun := ""
	for _, name := range []string{"drun-plugin-host", "drun-backend-nccl", "drun-backend-example", "drun"} {
		var err error
		if drun, err = programs.Path(name); err != nil {
			t.Fatal(err)
		}
	}
	return func(env []string, args ...string) (string, error) {
		cmd := exec.Command(drun, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs and trains")
	}
	drun := installed(t)
	digits, err := filepath.Abs("../../examples/digits.star")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("without a GPU", func(t *testing.T) {
		out, err := drun([]string{"DRUN_CUDA_LIB=", "DRUN_NCCL_LIB="}, "run", digits, "-n", "2", "--backend", "nccl")
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 6 || !strings.Contains(out, "the NVIDIA driver is missing") || !strings.Contains(out, "pip install nvidia-nccl-cu12") {
			t.Errorf("%v: %s", err, out)
		}
		out, err = drun([]string{"DRUN_CUDA_LIB=", "DRUN_NCCL_LIB="}, "backends")
		if err != nil || !regexp.MustCompile(`(?m)^nccl: the NVIDIA driver is missing`).MatchString(out) {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("trains", func(t *testing.T) {
		out, err := drun(nil, "run", digits, "-n", "2", "--backend", "nccl")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		own, err := drun(nil, "run", digits, "-n", "2", "--backend", "shm")
		if err != nil {
			t.Fatalf("%v: %s", err, own)
		}
		show, err := drun(nil, "show", "2")
		if err != nil || !regexp.MustCompile(`nccl +nccl 2\.32\.3 +[0-9a-f]{64}`).MatchString(show) {
			t.Errorf("drun show does not tell the library's version: %v: %s", err, show)
		}
		got, err := drun(nil, "metrics", "2")
		want, err2 := drun(nil, "metrics", "3")
		when := regexp.MustCompile(` +[0-9-]+T[0-9:.]+Z`)
		got, want = when.ReplaceAllString(got, ""), when.ReplaceAllString(want, "")
		// Sums of two have the same bits in any order.
		if err != nil || err2 != nil || got != want || !regexp.MustCompile(`acc +19 +0 +0\.9[5-9]`).MatchString(got) {
			t.Errorf("%v, %v: nccl gives\n%s, shm\n%s", err, err2, got, want)
		}
	})
	// NCCL between two nodes, each of two ranks that share memory.
	nodes := func(t *testing.T, recipe string, more ...string) (out [2]string, errs [2]error) {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("swordfish"), 0o600); err != nil {
			t.Fatal(err)
		}
		address, err := freeport.Address()
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for node := range out {
			args := append([]string{"run", recipe, "-n", "2", "--nnodes", "2", "--node-rank", strconv.Itoa(node), "--rdzv", address, "--rdzv-secret-file", secret,
				"--backend", "nccl", "--timeout", "60s", "--home", filepath.Join(t.TempDir(), "home")}, more...)
			env := []string{fmt.Sprintf("NCCL_HOSTID=node%d", node)} // NCCL takes them for machines of their own
			all.Go(func() { out[node], errs[node] = drun(env, args...) })
		}
		all.Wait()
		return out, errs
	}
	write := func(t *testing.T, recipe string) string {
		path := filepath.Join(t.TempDir(), "recipe.star")
		if err := os.WriteFile(path, []byte(recipe), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("between nodes", func(t *testing.T) {
		recipe := write(t, `
def main():
    x = tensor.randn(300000)
    sums = [dist.all_reduce(x * (i + dist.rank())).sum().item() for i in range(3)]
    if dist.is_main():
        print("sums %r" % sums)
`)
		out, errs := nodes(t, recipe)
		one, err := drun(nil, "run", recipe, "-n", "4", "--backend", "shm")
		sums := regexp.MustCompile(`sums \[.*\]`)
		if err != nil || errs[0] != nil || errs[1] != nil || sums.FindString(out[0]) == "" || sums.FindString(out[0]) != sums.FindString(one) {
			t.Errorf("%v, %v: %s; on one machine, %v: %s", errs[0], errs[1], out, err, one)
		}
	})
	t.Run("a rank on another node fails", func(t *testing.T) {
		began := time.Now()
		out, errs := nodes(t, write(t, `
def main():
    x = tensor.ones(300000)
    for i in range(1000000):
        dist.all_reduce(x)
        if i == 3 and dist.rank() == 3:
            fail("no more")
`))
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
		for node := range out {
			if errs[node] == nil || !strings.Contains(out[node], "rank 3: ") || !strings.Contains(out[node], "no more") {
				t.Errorf("node %d: %v: %s", node, errs[node], out[node])
			}
		}
	})
	t.Run("a group's backend", func(t *testing.T) {
		recipe := write(t, `
params = run.params(backend = "nccl")

def main():
    r, sums = dist.rank(), []
    for members in [[3, 1], [1, 2, 3], [0, 2]]:
        g = dist.new_group(members, backend = params.backend)
        x = random.generator(7 + r).randn(300000)
        if g.rank() >= 0:
            x = dist.all_reduce(x, group = g, async_op = True).wait()
            work = dist.isend([r], members[(g.rank() + 1) % len(members)], group = g)
            if dist.recv(members[g.rank() - 1], group = g) != [members[g.rank() - 1]]:
                fail("another message")
            work.wait()
            dist.destroy_process_group(g)
        sums.append(dist.broadcast(x, src = members[0]).sum().item())
    dp = dist.init_parallelism(2, backends = {"dp": params.backend}).dp
    sums.append(dist.all_reduce(0.1 * r, group = dp))
    if dist.is_main():
        print("backends", dist.backend(), dist.backend(dp))
        print("sums %r" % sums)
`)
		sums := regexp.MustCompile(`sums \[.*\]`)
		want, err := drun(nil, "run", recipe, "-n", "4", "-p", "backend=shm")
		if err != nil || sums.FindString(want) == "" {
			t.Fatalf("%v: %s", err, want)
		}
		got, err := drun(nil, "run", recipe, "-n", "4", "--deterministic")
		if err != nil || !strings.Contains(got, "backends shm nccl") || sums.FindString(got) != sums.FindString(want) {
			t.Errorf("%v: %s\nwant %s", err, got, want)
		}
		out, errs := nodes(t, recipe, "--backend", "example")
		if errs[0] != nil || errs[1] != nil || !strings.Contains(out[0], "backends example nccl") || sums.FindString(out[0]) != sums.FindString(want) {
			t.Errorf("over two nodes: %v, %v: %s\nwant %s", errs[0], errs[1], out, want)
		}
	})
	t.Run("a group without a GPU", func(t *testing.T) {
		out, err := drun([]string{"DRUN_CUDA_LIB=", "DRUN_NCCL_LIB="}, "run", write(t, `
def main():
    dist.new_group([2, 1], backend = "nccl")
`), "-n", "3")
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 6 || !regexp.MustCompile(`backend nccl of group 1, of ranks 2, 1: .*the NVIDIA driver is missing`).MatchString(out) {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("suite", func(t *testing.T) {
		if os.Getenv("DRUN_TEST_LONG") == "" {
			t.Skip("make long runs it")
		}
		if out, err := drun(nil, "backends", "test", "nccl"); err != nil || !strings.Contains(out, "PASS") {
			t.Errorf("%v: %s", err, out)
		}
	})
}
