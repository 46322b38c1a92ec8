package shm_test

import (
	"bytes"
	"slices"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

// The arena gives the same bits as other memory, also where only some ranks
// use it, or at different places in it.
func TestArena(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		disttest.Run(t, n, func(t *testing.T, rank int, comm collective.Comm) {
			arena := comm.(collective.Arena)
			if rank == 1 {
				if _, err := arena.Alloc(dtype.Int8, 0); err != nil {
					t.Error(err)
				}
			}
			for i, count := range []int{1, 3000, 100_003, 700_000} {
				b, err := arena.Alloc(dtype.Float32, count)
				if err != nil {
					t.Error(err)
					return
				}
				if rank == 0 && i == 3 { // from here on the ranks' places differ
					_, _ = arena.Alloc(dtype.Int8, 100)
				}
				heap := make([]float32, count)
				x := collective.Slice[float32](b)
				for k := range x {
					x[k] = float32(rank+1) / float32(k%13+3)
				}
				copy(heap, x)
				mixed := b
				if rank == 0 && count == 3000 {
					mixed = collective.Of(append([]float32(nil), x...))
				}
				for _, buffer := range []collective.Buffer{mixed, collective.Of(heap)} {
					if err := disttest.Do(comm, collective.NewAllReduce(buffer, dtype.Avg)); err != nil {
						t.Error(err)
						return
					}
				}
				if !bytes.Equal(mixed.Data, collective.Of(heap).Data) {
					t.Errorf("%d ranks, %d elements: the arena gives other bits", n, count)
				}
			}
			if _, err := arena.Alloc(dtype.Float64, 1<<40); err == nil {
				t.Error("an impossible size was allocated")
			}
			if _, err := arena.Alloc(dtype.None, 1); err == nil {
				t.Error("memory without a dtype was allocated")
			}
		})
	}
}

// A group reduces the world's memory where it lies.
func TestArenaOfAGroup(t *testing.T) {
	disttest.Run(t, 4, func(t *testing.T, rank int, comm collective.Comm) {
		b, err := comm.(collective.Arena).Alloc(dtype.Float32, 50_000)
		if err != nil {
			t.Error(err)
			return
		}
		members := []int{3, 1}
		group, err := comm.Split(disttest.Context, collective.Group{ID: 1, Ranks: members})
		if err != nil || group == nil {
			if err != nil || slices.Contains(members, rank) {
				t.Error(err)
			}
			return
		}
		defer group.Close()
		x := collective.Slice[float32](b)
		for i := range x {
			x[i] = float32(rank * i)
		}
		if err := disttest.Do(group, collective.NewAllReduce(b, dtype.Sum)); err != nil {
			t.Error(err)
		}
		for i := range x {
			if x[i] != float32(3*i)+float32(i) {
				t.Fatalf("element %d is %v", i, x[i])
			}
		}
	})
}
