package shm_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

func TestAllReduceSmallAndLarge(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		disttest.Run(t, n, func(t *testing.T, rank int, comm collective.Comm) {
			for _, count := range []int{0, 1, 5, 1000, 5000, 300_001} {
				x := make([]float32, count)
				for i := range x {
					x[i] = float32(rank + 1 + i%7)
				}
				if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum)); err != nil {
					t.Fatal(err)
				}
				for i := range x {
					if want := float32(n*(n+1)/2 + n*(i%7)); x[i] != want {
						t.Fatalf("%d ranks, %d elements: [%d] is %v, not %v", n, count, i, x[i], want)
					}
				}
			}
		})
	}
}

// Ranks that pass a builtin different arguments are told so alike, whatever calls the arguments led to; nothing has
// been touched then, and the next call works.
func TestOtherArguments(t *testing.T) {
	ones := func(count int) collective.Buffer { return collective.Of(slices.Repeat([]float32{1}, count)) }
	kinds := []struct {
		name string
		call func(ranks int) collective.Call
	}{
		{"barrier", func(int) collective.Call { return collective.NewBarrier() }},
		{"all_reduce in a line", func(int) collective.Call { return collective.NewAllReduce(ones(24), dtype.Sum) }},
		{"small all_reduce", func(int) collective.Call { return collective.NewAllReduce(ones(100), dtype.Sum) }},
		{"large all_reduce", func(int) collective.Call { return collective.NewAllReduce(ones(300_001), dtype.Sum) }},
		{"broadcast", func(int) collective.Call { return collective.NewBroadcast(ones(300_001), 0) }},
		{"all_gather", func(n int) collective.Call { return collective.NewAllGather(ones(1), ones(n)) }},
	}
	for _, n := range []int{2, 3} {
		disttest.Run(t, n, func(t *testing.T, rank int, comm collective.Comm) {
			for i, kind := range kinds {
				for j, other := range kinds {
					call := kind.call(n)
					call.Arguments = 7
					if rank == 1 {
						call = other.call(n)
						call.Arguments = 7
						if i == j {
							call.Arguments = 8 // else the calls differ
						}
					}
					call.Builtin = "dist.helper"
					before := slices.Clone(call.Recv.Data)
					if err := disttest.Do(comm, call); !errors.Is(err, collective.ErrArguments) {
						t.Fatalf("%d ranks, %s beside %s, rank %d: %v", n, kind.name, other.name, rank, err)
					}
					if !bytes.Equal(call.Recv.Data, before) {
						t.Errorf("%d ranks, %s beside %s, rank %d: data was touched", n, kind.name, other.name, rank)
					}
					next := collective.NewAllReduce(ones(3), dtype.Sum)
					next.Builtin, next.Arguments = "dist.helper", 9
					if err := disttest.Do(comm, next); err != nil || collective.Slice[float32](next.Recv)[2] != float32(n) {
						t.Fatalf("%d ranks, after %s beside %s, rank %d: %v, %v", n, kind.name, other.name, rank, next.Recv, err)
					}
				}
			}
			call := collective.NewBarrier()
			call.Builtin, call.Arguments = []string{"dist.helper", "dist.header", "dist.helper"}[rank], 7
			if err := disttest.Do(comm, call); !errors.Is(err, collective.ErrFingerprint) {
				t.Errorf("another builtin: %v", err)
			}
		})
	}
}

// A call that the other rank has completed is complete, though that rank has failed since, just after this one had looked
// for it: what a run tells does not depend on which of two things a rank happened to see first.
func TestCompleteBeforeTheFailure(t *testing.T) {
	kinds := map[string][2]collective.Call{
		"all_reduce": {collective.NewAllReduce(collective.Of([]float32{1}), dtype.Sum), collective.NewAllReduce(collective.Of([]float32{1}), dtype.Sum)},
		"broadcast":  {collective.NewBroadcast(collective.Of([]float32{1}), 0), collective.NewBroadcast(collective.Of([]float32{1}), 0)},
		"message":    {collective.NewSend(collective.Of([]float32{1}), 1, 0), collective.NewRecv(collective.Of([]float32{0}), 0, 0)},
	}
	for name, calls := range kinds {
		t.Run(name, func(t *testing.T) {
			looked, failed := make(chan bool), make(chan bool)
			disttest.Run(t, 2, func(t *testing.T, rank int, comm collective.Comm) {
				if rank == 0 {
					<-looked
					if err := disttest.Do(comm, calls[0]); err != nil {
						t.Error(err)
					}
					comm.Abort(errors.New("it has failed"))
					close(failed)
					return
				}
				work, err := comm.Start(&calls[1])
				if err != nil {
					t.Fatal(err)
				}
				late := &collective.WaitLimit{Context: t.Context(), Check: func() error { // called after a look, before sleep
					close(looked)
					<-failed
					return errors.New("the run has been aborted")
				}}
				if err := work.Wait(late); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
