// Package disttest tests communication: [Run] gives a test several ranks in one process, [Conformance] is what every
// backend must pass.
package disttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/shm"
	"drun/internal/try"

	"golang.org/x/sys/unix"
)

// A Factory makes the communicators of a world of n ranks, which may all be in this process. It has t close them.
type Factory func(t testing.TB, n int) []collective.Comm

// Limit bounds every wait of a test that should succeed, even on a busy machine, where a world of 16 processes takes
// half a minute to start.
const Limit = 2 * time.Minute

// Context lets each wait last [Limit].
var Context = collective.Within(context.Background(), Limit)

// InProcess is the [Factory] of the shm backend.
func InProcess(t testing.TB, n int) []collective.Comm {
	t.Helper()
	f, err := shm.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	comms := make([]collective.Comm, n)
	for rank := range n {
		c, err := shm.Open(Dup(t, f), rank, n)
		if err != nil {
			t.Fatal(err)
		}
		comms[rank] = c
	}
	closeAtEnd(t, comms)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return comms
}

// Open makes a world of n ranks in this process, each of which opens its backend.
func Open(t testing.TB, n int, store collective.Store, deterministic bool, backend func(rank int) collective.Backend) []collective.Comm {
	t.Helper()
	comms := make([]collective.Comm, n)
	ctx, cancel := context.WithCancelCause(Context)
	defer cancel(nil)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			var err error
			comms[rank], err = backend(rank).Open(ctx, collective.World{
				Rank: rank, Size: n, LocalRank: rank, LocalSize: n, Store: store, Deterministic: deterministic})
			if err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err)) // the others need not wait for it
			}
		})
	}
	all.Wait()
	closeAtEnd(t, comms)
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	return comms
}

func closeAtEnd(t testing.TB, comms []collective.Comm) {
	t.Cleanup(func() {
		var all sync.WaitGroup
		for rank, c := range comms {
			all.Go(func() {
				if c == nil {
					return
				}
				if err := c.Close(); err != nil {
					t.Errorf("close of rank %d: %v", rank, err)
				}
			})
		}
		all.Wait()
	})
}

// Run runs body once per rank, on n ranks over shared memory.
func Run[T testing.TB](t T, n int, body func(t T, rank int, comm collective.Comm)) {
	t.Helper()
	RunWith(t, InProcess, n, body)
}

// RunWith runs body once per rank of the world that factory makes. A rank whose body fails or panics aborts the others,
// so that none waits for it.
func RunWith[T testing.TB](t T, factory Factory, n int, body func(t T, rank int, comm collective.Comm)) {
	t.Helper()
	var wg sync.WaitGroup
	for rank, comm := range factory(t, n) {
		wg.Go(func() {
			finished := false
			defer func() {
				if !finished {
					comm.Abort(fmt.Errorf("the test of rank %d failed", rank))
				}
			}()
			body(t, rank, comm)
			finished = true
		})
	}
	wg.Wait()
}

// Do makes a call and waits for it.
func Do(comm collective.Comm, call collective.Call) error {
	w, err := comm.Start(&call)
	if err != nil {
		return err
	}
	return w.Wait(Context)
}

// Each calls body once per rank at the same time, and fails the test on an error.
func Each(t testing.TB, comms []collective.Comm, body func(rank int, comm collective.Comm) error) {
	t.Helper()
	var wg sync.WaitGroup
	for rank, comm := range comms {
		wg.Go(func() {
			if err := body(rank, comm); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				comm.Abort(err)
			}
		})
	}
	wg.Wait()
}

// Dup returns another descriptor of f, as a process that inherits it would have.
func Dup(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// A Worker is what one rank does in a process of its own. What it prints goes back to the test; an error is printed
// too, with exit code 1.
type Worker func(comm collective.Comm, args []string) error

// Main runs a package's tests or, in a process that [Spawn] started, the requested worker, on the Comm that open
// returns. Call it from TestMain.
func Main(m interface{ Run() int }, open func(rank, size int) (collective.Comm, error), workers map[string]Worker) {
	worker, ok := workers[os.Getenv("DISTTEST_WORKER")]
	if !ok {
		os.Exit(m.Run())
	}
	if err := worker.run(open); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (w Worker) run(open func(rank, size int) (collective.Comm, error)) (err error) {
	defer try.Caught(&err)
	rank := try.To(strconv.Atoi(os.Getenv("RANK")))
	size := try.To(strconv.Atoi(os.Getenv("WORLD_SIZE")))
	comm := try.To(open(rank, size))
	try.Ok(w(comm, os.Args[1:]))
	return comm.Close()
}

// Processes are the ranks of a world, each a process.
type Processes struct {
	ranks  []*exec.Cmd
	output []*bytes.Buffer
}

// Spawn starts n processes of this test binary that run a worker given to [Main]. They inherit files as descriptors 3
// and up, and env in addition to this process's environment; they are killed when the test ends.
func Spawn(t testing.TB, n int, worker string, env []string, files []*os.File, args ...string) *Processes {
	t.Helper()
	p := &Processes{}
	for rank := range n {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "DISTTEST_WORKER="+worker, fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n))
		cmd.Env = append(cmd.Env, env...)
		cmd.ExtraFiles = files
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.ranks, p.output = append(p.ranks, cmd), append(p.output, out)
		t.Cleanup(func() {
			p.Kill(rank)
			_ = cmd.Wait()
		})
	}
	return p
}

// SpawnShared is [Spawn] for workers that get their Comm from [OpenShared]. It also returns the shared memory, as the
// agent of a run holds it; files follow it as descriptors 4 and up.
func SpawnShared(t testing.TB, n int, worker string, files []*os.File, args ...string) (*Processes, *os.File) {
	t.Helper()
	shared, err := shm.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Close() })
	return Spawn(t, n, worker, nil, append([]*os.File{shared}, files...), args...), shared
}

// OpenShared opens the shared memory that [SpawnShared] passed to this process.
func OpenShared(rank, size int) (collective.Comm, error) {
	return shm.Open(os.NewFile(3, "shm"), rank, size)
}

func (p *Processes) Kill(rank int) { _ = p.ranks[rank].Process.Kill() }

// Wait waits for a rank to end, and returns what it printed and its status. It kills a rank that has not ended within
// [Limit].
func (p *Processes) Wait(rank int) (output string, err error) {
	timer := time.AfterFunc(Limit, func() { p.Kill(rank) })
	defer timer.Stop()
	err = p.ranks[rank].Wait()
	return strings.TrimSpace(p.output[rank].String()), err
}

// Timing repeats call in ten batches of times/10, after one batch to warm up, and returns the median batch's
// nanoseconds per call, since the machine may be busy for a while.
func Timing(times int, call func() error) (float64, error) {
	batch := max(1, times/10)
	var batches []float64
	for i := range 11 {
		start := time.Now()
		for range batch {
			if err := call(); err != nil {
				return 0, err
			}
		}
		if i > 0 {
			batches = append(batches, float64(time.Since(start))/float64(batch))
		}
	}
	slices.Sort(batches)
	return batches[len(batches)/2], nil
}
