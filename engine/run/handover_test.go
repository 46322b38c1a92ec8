package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine/run"
	"drun/history"
)

// The states of these ranks are too large to travel over the control channel: what is equal
// on all, what is each rank's own, what two of them have, and what is no contiguous tensor.
const largeStates = `
p = run.params(memory = False)

def state(step):
    r = dist.rank()
    full = tensor.arange(1 << 19).to("float32") + step
    return {
        "equal": full, "tied": full, "own": full + 1000 * r, "pair": full - r % 2, "as int": (full + 1000 * r).to("int32"),
        "transposed": full.reshape(512, 1024).transpose(0, 1), "row": (full * (r + 1)).reshape(1024, 512)[1], "empty": tensor.zeros(0, 3),
        "zeros": tensor.zeros(1 << 19), "zeros too": tensor.zeros(1 << 18, dtype = "float64"), "step": step, "rank": r,
    }

def main():
    for step in range(3):
        checkpoint.save(state(step), step = step, memory = p.memory)
    got = state(100)
    at = checkpoint.restore(got)
    for name, want in state(2).items():
        have = got[name]
        if have != want if type(want) == "int" else not (have == want).all().item():
            fail(name, "of rank", dist.rank(), "is not what was saved")
    print("restored", at)
`

// memoryFiles counts this process's open memory files of states.
func memoryFiles(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(name, "drun-state") {
			n++
		}
	}
	return n
}

// Every rank gets back the bits that it saved, whoever handed them over, and no memory is left.
func TestLargeStates(t *testing.T) {
	for _, ranks := range []int{1, 4} {
		for _, memory := range []string{"memory=True", "memory=False"} {
			t.Run(fmt.Sprint(ranks, memory), func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "recipe.star")
				if err := os.WriteFile(file, []byte(largeStates), 0o644); err != nil {
					t.Fatal(err)
				}
				var out strings.Builder
				home := filepath.Join(dir, "home")
				r, err := run.Run(run.Options{Recipe: file, Nproc: ranks, Home: home, Params: []string{memory}, Timeout: time.Minute, Threads: 1, Stdout: &out, Stderr: &out})
				if err != nil || r.Code != 0 || strings.Count(out.String(), "restored 2\n") != ranks {
					t.Fatalf("%v %v\n%s", err, r.Failure.Text(ranks), out.String())
				}
				if n := memoryFiles(t); n != 0 {
					t.Errorf("%d memory files are left", n)
				}
				if memory == "memory=False" {
					checkStored(t, home, ranks)
				}
			})
		}
	}
}

// checkStored reads each rank's part of the newest checkpoint.
func checkStored(t *testing.T, home string, ranks int) {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	show, err := db.Get(1)
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoints.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for rank := range ranks {
		_, entries, err := store.Load(show.UID, checkpoints.Last, rank)
		if err != nil {
			t.Fatal(err)
		}
		data := map[string]string{}
		for _, e := range entries {
			data[e.Name] = string(e.Data)
		}
		if len(data["own"]) != 4<<19 || (data["own"] == data["equal"]) != (rank == 0) || data["tied"] != data["equal"] {
			t.Errorf("rank %d: %d entries are not as they were saved", rank, len(entries))
		}
	}
}
