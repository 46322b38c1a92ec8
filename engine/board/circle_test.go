package board

import (
	"strings"
	"testing"
	"time"

	"drun/collective"
)

// observer is a board of which this process has no rank.
func observer(t *testing.T, world int) *Board {
	t.Helper()
	f, err := Create(world)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(f, Observer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// halves makes the two halves of a world wait for each other, but for some ranks at its end, which compute.
func halves(t *testing.T, world, compute int) *Board {
	t.Helper()
	b := observer(t, world)
	for r := range world - compute {
		n := b.needsOf(r)
		n.mark.Store(1)
		for o := range world - compute {
			if (o < world/2) != (r < world/2) {
				n.ranks.add(o)
			}
		}
		b.slot(r).state.Store(uint32(collective.Waiting))
	}
	return b
}

// Of thousands of ranks that wait for each other the circle is found at once, and told in a few lines.
func TestLargeCircle(t *testing.T) {
	for _, world := range []int{6, 2048} {
		b := halves(t, world, 2)
		began := time.Now()
		circle := b.circle()
		if took := time.Since(began); len(circle) != world-2 || circle[0] != 0 || took > 5*time.Second {
			t.Errorf("%d ranks: after %v a circle of %d", world, took, len(circle))
		}
		text := b.inCircle(circle)
		want := "rank 0 for rank 3, rank 1 for rank 3, rank 2 for rank 3, rank 3 for rank 0 1 2"
		if world == 2048 {
			want = "rank 7 for rank 1024 1025 1026 1027 1028 1029 1030 1031 and 1014 more; and 2038 more ranks"
		}
		if !strings.HasSuffix(text, want) || len(text) > 1000 {
			t.Errorf("%d ranks: %s", world, text)
		}
		// One that can go on frees all that wait for it, and those that wait for these.
		for o := range world - 2 {
			b.needsOf(0).ranks[o/64].Store(0)
		}
		b.needsOf(0).ranks.add(world - 1)
		for r := range world - 2 {
			b.needsOf(r).any.Store(1)
		}
		if circle := b.circle(); len(circle) != 0 {
			t.Errorf("%d ranks: a circle of %d, one of whom waits for a rank that computes", world, len(circle))
		}
	}
}

// What a node is told for a report grows with the ranks alone; of those that the report names it is told whom they wait for.
func TestShortened(t *testing.T) {
	for _, world := range []int{64, 4096} {
		b := halves(t, world, 0)
		m := b.Show(nil, false)
		m.Shorten([]Wait{{3, 1}, {world - 1, 1}})
		bytes := 0
		for _, r := range m.Ranks {
			for _, part := range r.Parts {
				bytes += len(part)
			}
		}
		if bytes > 200*world {
			t.Errorf("%d ranks take %d bytes", world, bytes)
		}
		f, err := Create(world)
		if err != nil {
			t.Fatal(err)
		}
		other, err := Open(f, Observer)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		other.Near(0, 1)
		other.Adopt(m)
		for r := 1; r < world; r++ {
			n, told := other.needsOf(r), r == 3 || r == world-1
			if n.mark.Load() != 1 || n.ranks.has(world/2) != (told && r < world/2) || n.ranks.has(0) != (told && r >= world/2) {
				t.Fatalf("%d ranks: of rank %d the other board has mark %d and %v", world, r, n.mark.Load(), n.ranks.has(0))
			}
		}
		m.Shorten(nil) // the same wait again, and then another
		for i, known := range []bool{true, false} {
			if needs := m.Ranks[3].Parts[needsPart]; needs[0]+byte(i) == 0 {
				t.Fatal("no mark")
			} else {
				needs[0] += byte(i)
			}
			if other.Adopt(m); other.needsOf(3).ranks.has(world/2) != known {
				t.Errorf("%d ranks: whom rank 3 waits for is known: %v", world, !known)
			}
		}
	}
}
