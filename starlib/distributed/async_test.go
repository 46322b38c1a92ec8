package distributed_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/universe"

	"go.starlark.net/starlark"
)

// held is a backend that makes this rank's asynchronous calls late, and keeps
// how they began.
type held struct {
	collective.Comm
	late   time.Duration
	starts []begun
}

type begun struct {
	at   time.Time
	took time.Duration
	done bool // at once
}

func (h *held) Start(c *collective.Call) (collective.Work, error) {
	if !c.Async {
		return h.Comm.Start(c)
	}
	time.Sleep(h.late)
	at := time.Now()
	w, err := h.Comm.Start(c)
	if err == nil {
		h.starts = append(h.starts, begun{at, time.Since(at), w.Done()})
	}
	return w, err
}

// recipe runs a recipe's main on ranks of this process, the second of which is
// late, and gives what the first began.
func recipe(t *testing.T, late time.Duration, source string) []begun {
	t.Helper()
	var first *held
	var wg sync.WaitGroup
	for rank, comm := range disttest.InProcess(t, 2) {
		h := &held{Comm: comm}
		if rank == 0 {
			first = h
		} else {
			h.late = late
		}
		wg.Go(func() {
			if err := execute(&starlib.Rank{Rank: rank, WorldSize: 2, LocalRank: rank, LocalSize: 2, NumNodes: 1}, h, source); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				comm.Abort(err)
			}
		})
	}
	wg.Wait()
	return first.starts
}

func execute(rank *starlib.Rank, comm collective.Comm, source string) error {
	u := universe.New(universe.Host{Rank: rank, Comm: comm, Context: context.Background(), Timeout: disttest.Limit})
	parsed, err := lang.Parse("test.star", []byte(source))
	if err != nil {
		return err
	}
	program, err := parsed.Compile(u.Env)
	if err != nil {
		return err
	}
	thread := &starlark.Thread{}
	globals, err := program.Init(thread, u.Env)
	if err != nil {
		return err
	}
	rank.Stage = starlib.Running
	if _, err = starlark.Call(thread, globals["main"], nil, nil); err != nil {
		return lang.Explain(thread, err)
	}
	return nil
}

// With a peer that comes 200 ms late, an asynchronous call returns at once, and
// its work is not done, whatever the call and this rank's part in it.
func TestAsyncReturnsAtOnce(t *testing.T) {
	const late = 200 * time.Millisecond
	for name, call := range map[string]string{
		"all_reduce":           `dist.all_reduce(tensor.ones(N), async_op = True)`,
		"all_reduce, a number": `dist.all_reduce(1, async_op = True)`,
		"broadcast, the root":  `dist.broadcast(tensor.ones(N), 0, async_op = True)`,
		"broadcast, another":   `dist.broadcast(tensor.ones(N), 1, async_op = True)`,
		"reduce, the root":     `dist.reduce(tensor.ones(N), 0, async_op = True)`,
		"reduce, another":      `dist.reduce(tensor.ones(N), 1, async_op = True)`,
		"irecv, isend":         `dist.irecv(1) if dist.rank() == 0 else dist.isend(tensor.ones(N), 0)`,
	} {
		for _, size := range []string{"3", "1000000"} {
			t.Run(name+"/"+size, func(t *testing.T) {
				t.Parallel()
				begun := recipe(t, late, `
N = `+size+`
def main():
    for i in range(3):
        start = run.elapsed()
        dist.barrier()
        work = `+call+`
        if dist.rank() == 0 and work.done() and run.elapsed() - start < 0.19:
            fail("the work is done before the other rank came")
        work.wait()
        if not work.done():
            fail("the work is not done after wait")
`)
				quickest, open := time.Hour, 0
				for _, b := range begun {
					quickest = min(quickest, b.took)
					if !b.done {
						open++
					}
				}
				// Of three, since the machine may be busy.
				if open == 0 || quickest > 5*time.Millisecond {
					t.Errorf("%d of %d calls were not done when they began; the quickest began in %v", open, len(begun), quickest)
				}
			})
		}
	}
}

// In ddp, backward goes on while a peer has not come to the first bucket yet.
func TestBackwardDoesNotWait(t *testing.T) {
	const late = 2 * time.Second // longer than a busy machine takes for the pass
	begun := recipe(t, late, `
def main():
    model = dist.ddp(nn.sequential(*[nn.linear(600, 600) for i in range(6)])) # a bucket each
    model(tensor.ones(2, 600)).sum().backward()
`)
	if len(begun) < 6 {
		t.Fatalf("backward began %d calls", len(begun))
	}
	if took := begun[len(begun)-1].at.Sub(begun[0].at); took > late/2 {
		t.Errorf("from the first bucket to the last it took %v: it waited for the other rank", took)
	}
	quickest := time.Hour
	for _, b := range begun {
		quickest = min(quickest, b.took)
	}
	if begun[0].done {
		t.Error("the first bucket was done before the other rank came")
	}
	if quickest > 5*time.Millisecond {
		t.Errorf("no bucket began within 5 ms, the quickest in %v", quickest)
	}
}

// read_file reads on rank 0 alone, and gives all the same bytes.
func TestReadFileOnRank0(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("a\x00\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := starlib.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	disttest.Run(t, 3, func(t *testing.T, rank int, comm collective.Comm) {
		place := &starlib.Rank{Rank: rank, WorldSize: 3, LocalRank: rank, LocalSize: 3, NumNodes: 1}
		if rank == 0 {
			place.Files = files // the others have none
		}
		err := execute(place, comm, "def main():\n    if dist.read_file(\"data\") != b\"a\\x00\\xff\" or dist.all_gather(dist.read_file(\"data\"))[2] != b\"a\\x00\\xff\": fail(\"other bytes\")\n")
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			comm.Abort(err)
		}
	})
}
