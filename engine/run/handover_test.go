package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/record"
	"drun/engine/run"
	"drun/internal/exit"
	"drun/internal/testlimit"
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
    for step in range(6):  # both memory files are used again
        checkpoint.save(state(step), step = step, memory = p.memory)
    got = state(100)
    at = checkpoint.restore(got)
    for name, want in state(5).items():
        have = got[name]
        if have != want if type(want) == "int" else not (have == want).all().item():
            fail(name, "of rank", dist.rank(), "is not what was saved")
    print("restored", at)
`

// memoryFiles gives the sizes of the memory files for states that this process has open.
func memoryFiles(t *testing.T) (bytes []int64) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		name := "/proc/self/fd/" + f.Name()
		if to, _ := os.Readlink(name); strings.Contains(to, engine.StateMemory) {
			if info, err := os.Stat(name); err == nil {
				bytes = append(bytes, info.Size())
			}
		}
	}
	return bytes
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
				r, err := run.Run(run.Options{Recipe: file, Nproc: ranks, History: record.History{Home: home}, Parameters: run.Parameters{Params: []string{memory}}, Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: &out, Stderr: &out}})
				if err != nil || r.Code != 0 || strings.Count(out.String(), "restored 5\n") != ranks {
					t.Fatalf("%v %v\n%s", err, r.Failure.Text(ranks), out.String())
				}
				if n := len(memoryFiles(t)); n != 0 {
					t.Errorf("%d memory files are left", n)
				}
				if memory == "memory=False" {
					checkStored(t, home, ranks)
				}
			})
		}
	}
}

// A restored tensor that was none before keeps its values whatever is saved later, and is the rank's own.
func TestRestoredTensorsAreTheRanksOwn(t *testing.T) {
	for _, memory := range []string{"True", "False"} {
		dir := t.TempDir()
		r, out, err := startOn(t, dir, 2, `
def main():
    checkpoint.save({"t": tensor.full((1 << 19,), 7.0), "u": tensor.ones(1 << 18)}, step = 1, memory = `+memory+`)
    state = {"t": None, "u": None}
    checkpoint.restore(state)
    if dist.rank() == 0:
        state["u"].add_(1.0)
    for step in range(2, 6):
        checkpoint.save({"t": tensor.full((1 << 19,), float(step)), "u": tensor.zeros(1 << 18)}, step = step, memory = `+memory+`)
    checkpoint.restore({"t": None, "u": None})
    dist.barrier()
    print("has", state["t"].min().item(), state["t"].max().item(), state["u"].sum().item() / (1 << 18))
`)
		if err != nil || r.Code != 0 || !strings.Contains(out, "[0] has 7.0 7.0 2.0\n") || !strings.Contains(out, "[1] has 7.0 7.0 1.0\n") {
			t.Errorf("memory = %s: %v %+v\n%s", memory, err, r, out)
		}
	}
}

// checkStored reads each rank's part of the newest checkpoint.
func checkStored(t *testing.T, home string, ranks int) {
	t.Helper()
	_, uid, store := left(t, home)
	for rank := range ranks {
		_, entries, err := store.Load(uid, checkpoints.Last, rank)
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

// A checkpoint that cannot be stored is an error of the next call, or of the run's end.
func TestUnsavedIsToldLater(t *testing.T) {
	for _, c := range []struct{ name, then, want string }{
		{"at the end", "", "checkpoint of step 5: "},
		{"by the next save", "    checkpoint.save({'x': 2}, step = 6)\n", "recipe.star:3:20: checkpoint.save: checkpoint of step 5: "},
		{"by a restore", "    checkpoint.restore({'x': 2})\n", "recipe.star:3:23: checkpoint.restore: checkpoint of step 5: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "home"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "home", "checkpoints"), nil, 0o600); err != nil { // where the folder would be
				t.Fatal(err)
			}
			r, out, err := start(t, dir, "def main():\n    checkpoint.save({'x': 1}, step = 5)\n"+c.then)
			if err != nil || r.Code != exit.Storage || !strings.Contains(r.Failure.Text(1), c.want) {
				t.Fatalf("%v %v\n%s\nwant %q", err, r, out, c.want)
			}
		})
	}
}

// A rank that dies after it has handed over its state takes no checkpoint with it.
func TestDeathAfterHandingOver(t *testing.T) {
	for _, memory := range []string{"True", "False"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "recipe.star")
		source := "def main():\n    state = {'t': tensor.full((1 << 20,), dist.rank()), 'u': tensor.ones(1 << 21)}\n    at = checkpoint.restore(state)\n    if at == None:\n" +
			"        state['t'].add_(10)\n        checkpoint.save(state, step = 1, memory = " + memory + ")\n        dist.barrier()\n        testing.kill_self()\n" +
			"    print('has', at, state['t'].sum().item() / (1 << 20) - dist.rank(), state['u'].sum().item())\n"
		if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		r, err := run.Run(run.Options{Recipe: file, Nproc: 3, History: record.History{Home: filepath.Join(dir, "home")}, Timeout: time.Minute, Threads: 1, MaxRestarts: 1, Testing: true, Output: run.Output{Stdout: &out, Stderr: &out}})
		if err != nil || r.Code != 0 || strings.Count(out.String(), "has 1 10.0 2.097152e+06\n") != 3 {
			t.Errorf("memory = %s: %v %+v\n%s", memory, err, r, out.String())
		}
		if n := len(memoryFiles(t)); n != 0 {
			t.Errorf("%d memory files are left", n)
		}
	}
}

// A rank that is stopped while it hands over its state is waited for as long as for a collective, also by ranks that
// have nothing more to do, and the run goes on without what it has not handed over.
func TestStoppedWhileHandingOver(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "recipe.star")
	source := `
def main():
    state = {"t": tensor.full((1 << (24 if dist.rank() == 1 else 18),), dist.rank()), "n": 0}
    at = checkpoint.restore(state, strict = False)
    if at == None:
        checkpoint.save({"t": tensor.zeros(2), "n": 0}, step = 0)
        checkpoint.save(state, step = 1)
    else:
        print("restored", at)
`
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	pids := make(chan int, 4)
	go func() { // stops rank 1 as soon as there is memory for the large state: that of step 0 comes before rank 1 has one
		pid := <-pids
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			for _, bytes := range memoryFiles(t) {
				if bytes >= 1<<26 {
					_ = syscall.Kill(pid, syscall.SIGSTOP)
					return
				}
			}
		}
	}()
	var out strings.Builder
	r, err := run.Run(run.Options{Recipe: file, Nproc: 2, History: record.History{Home: filepath.Join(dir, "home")}, Timeout: min(testlimit.Time(5*time.Second), 15*time.Second), Threads: 1, MaxRestarts: 1, Output: run.Output{Stdout: &out, Stderr: &out},
		Hooks: run.Hooks{OnSpawn: func(rank, pid int) {
			if rank == 1 {
				pids <- pid
			}
		}}})
	if err != nil || r.Code != 0 || r.Restarts != 1 || strings.Count(out.String(), "restored 0\n") != 2 ||
		!regexp.MustCompile(`the checkpoint of step 1 has waited \S+ for rank 1 to hand over its state`).MatchString(out.String()) {
		t.Errorf("%v %+v\n%s", err, r, out.String())
	}
	if n := len(memoryFiles(t)); n != 0 {
		t.Errorf("%d memory files are left", n)
	}
}
