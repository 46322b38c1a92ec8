package disttest

import (
	"slices"
	"testing"

	"drun/collective"
)

// groups splits a world of four in several ways, uses the groups in turn and
// at the same time, and closes them.
func groups(t *testing.T, factory Factory, s suite) {
	RunWith(t, factory, 4, func(t *testing.T, rank int, world collective.Comm) {
		var made []collective.Comm
		for i, sets := range [][][]int{{{1, 2}}, {{0, 1}, {2, 3}}, {{3, 0}, {1}}, {{0, 1, 2, 3}}, {{2, 1, 0}}} {
			group := collective.Group{ID: uint32(i + 1)}
			for _, ranks := range sets {
				if slices.Contains(ranks, rank) {
					group.Ranks = ranks
				}
			}
			comm, err := world.Split(Context, group)
			if err != nil {
				t.Errorf("split %v: %v", group, err)
				return
			}
			if (comm != nil) != (group.Ranks != nil) {
				t.Errorf("rank %d got %v for %v", rank, comm, group)
				return
			}
			if comm == nil {
				continue
			}
			if got, want := comm.Rank(), slices.Index(group.Ranks, rank); got != want || comm.Size() != len(group.Ranks) {
				t.Errorf("rank %d of %v is %d of %d", rank, group.Ranks, got, comm.Size())
			}
			made = append(made, comm)
		}
		for range 3 { // in the order in which they were made, on every rank
			for _, comm := range made {
				s.sequence(t, comm, uint64(comm.Size()), 20, 5000)
			}
			s.sequence(t, world, 3, 5, 5000)
		}
		for _, comm := range made {
			if err := comm.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		s.sequence(t, world, 4, 10, 5000)

		for _, ranks := range [][]int{{0, 4}, {1, 1}, {-1}} {
			if _, err := world.Split(Context, collective.Group{ID: 9, Ranks: ranks}); err == nil {
				t.Errorf("a group of %v was made", ranks)
			}
		}
	})
}
