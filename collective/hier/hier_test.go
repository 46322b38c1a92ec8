package hier

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/shm"
)

// placed makes worlds whose ranks are on nodes as place says; between them the links are
// shared memory as well, of another region each.
func placed(place func(rank, size int) int, links int) disttest.Factory {
	return func(t disttest.TB, n int) []collective.Comm {
		t.Helper()
		nodes := make([]int, n)
		for rank := range nodes {
			nodes[rank] = place(rank, n)
		}
		return open(t, nodes, links)
	}
}

// open makes a world on these nodes.
func open(t disttest.TB, nodes []int, links int) []collective.Comm {
	t.Helper()
	l := newLayout(nodes, links)
	region := func(size int) *os.File {
		f, err := shm.Create(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	var memory, far []*os.File
	for _, m := range l.members {
		memory = append(memory, region(len(m)))
	}
	for range l.links {
		far = append(far, region(len(l.members)))
	}
	comms, errs := make([]collective.Comm, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	for rank := range nodes {
		b := &Backend{Memory: disttest.Dup(t, memory[l.node[rank]]), Nodes: nodes, Links: links}
		if place := l.place[rank]; place < l.links {
			b.Far = &shm.Backend{File: disttest.Dup(t, far[place])}
		}
		all.Go(func() {
			comms[rank], errs[rank] = b.Open(disttest.Context, collective.World{Rank: rank, Size: len(nodes)})
		})
	}
	all.Wait()
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
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return comms
}

var placements = map[string]func(rank, size int) int{
	"two nodes":      func(rank, size int) int { return 2 * rank / size },
	"pairs":          func(rank, size int) int { return rank / 2 },
	"round robin":    func(rank, size int) int { return rank % 2 },
	"one more":       func(rank, size int) int { return min(rank/2, 1) },
	"one each":       func(rank, size int) int { return rank },
	"there and back": func(rank, size int) int { return (rank + 1) / 2 % 2 },
}

func TestConformance(t *testing.T) {
	for name, place := range placements {
		t.Run(name, func(t *testing.T) { disttest.Conformance(t, placed(place, 0)) })
	}
}

func TestConformanceWithOneLink(t *testing.T) {
	disttest.Conformance(t, placed(placements["two nodes"], 1))
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		nodes       []int
		most, links int
		members     [][]int
	}{
		{[]int{0, 0, 1, 1}, 0, 2, [][]int{{0, 1}, {2, 3}}},
		{[]int{7, 3, 7, 3, 7}, 0, 2, [][]int{{0, 2, 4}, {1, 3}}},
		{[]int{0, 0, 0, 1}, 0, 1, [][]int{{0, 1, 2}, {3}}},
		{slices.Repeat([]int{0, 1}, 16), 0, MostLinks, nil},
		{slices.Repeat([]int{0, 1}, 16), 3, 3, nil},
	} {
		l := newLayout(c.nodes, c.most)
		if l.links != c.links || c.members != nil && fmt.Sprint(l.members) != fmt.Sprint(c.members) {
			t.Errorf("%v: %d links, members %v", c.nodes, l.links, l.members)
		}
	}
}
