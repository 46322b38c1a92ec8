package cluster

import (
	"slices"
	"testing"
)

// Ranks are spread in order over the nodes that are there, in proportion to what each brings; every node has one.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		world int
		procs []int
		want  []int // ranks of each node
	}{
		{6, []int{2, 2, 2}, []int{2, 2, 2}},
		{6, []int{2, 2}, []int{3, 3}},
		{6, []int{2}, []int{6}},
		{7, []int{3, 1, 3}, []int{3, 1, 3}},
		{5, []int{4, 4}, []int{2, 3}},
		{8, []int{4, 2}, []int{5, 3}},
		{3, []int{9, 1, 1}, []int{1, 1, 1}},
		{3, []int{1, 1, 9}, []int{1, 1, 1}},
	} {
		places := Spread(c.world, c.procs)
		got := make([]int, len(c.procs))
		for rank, p := range places {
			if p.Rank != rank || p.WorldSize != c.world || p.Nodes != len(c.procs) || p.LocalRank != got[p.NodeRank] || p.LocalSize != c.want[p.NodeRank] || rank > 0 && p.NodeRank < places[rank-1].NodeRank {
				t.Errorf("%d over %v: rank %d has %+v", c.world, c.procs, rank, p)
			}
			got[p.NodeRank]++
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d over %v: %v, want %v", c.world, c.procs, got, c.want)
		}
	}
}
