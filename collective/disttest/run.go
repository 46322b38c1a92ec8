// Package disttest tests communication: [Run] gives a test several ranks in
// one process, [Conformance] is what every backend must pass.
package disttest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/shm"

	"golang.org/x/sys/unix"
)

// A Factory makes the communicators of a world of n ranks, which may all be in
// this process. It registers their closing with t.
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

// closeAtEnd closes comms when the test ends.
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

// RunWith runs body once per rank of the world that factory makes. A rank
// whose body fails or panics aborts the others, so that none waits for it.
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
