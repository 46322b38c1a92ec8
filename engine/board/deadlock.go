package board

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/collective/sharedmem"
)

// Ranks that wait for each other in a circle would wait for ever. Each rank that
// sleeps in a wait writes on the board which ranks it needs; the ranks that are
// left when all that can go on are crossed out are in a deadlock, if the picture
// stays the same for a while: a message may be on its way.

const (
	// looks at the needs are this far apart, and deadlockAfter the same ones in
	// a row make a deadlock.
	deadlockEvery = 100 * time.Millisecond
	deadlockAfter = 4
)

// needs are the ranks that a rank waits for. mark is 0 when it does not sleep.
type needs struct {
	mark  atomic.Uint64 // counts the waits, so that a new one looks new
	any   atomic.Uint32 // one of the ranks will do
	ranks [maxWorld / 64]atomic.Uint64
}

func (b *Board) needsOf(rank int) *needs {
	return sharedmem.At[needs](b.mem, needsAt+rank*needsSize)
}

// picket is a guard's watch for deadlocks during one wait.
type picket struct {
	next time.Time
	seen []uint64 // the marks of the ranks in the circle, as last seen
	same int      // looks in a row that saw these
}

// deadlock writes what this wait needs, and looks for a circle.
func (g *guard) deadlock() error {
	t := time.Now()
	if t.Before(g.picket.next) {
		return nil
	}
	g.picket.next = t.Add(deadlockEvery)
	own := g.board.needsOf(g.board.rank)
	any := g.waiting.seq == 0 && g.waiting.peer < 0
	for i := range own.ranks {
		own.ranks[i].Store(0)
	}
	for i, r := range g.ranks {
		switch {
		case r == g.board.rank,
			g.waiting.seq > 0 && g.win.line(r).arrived.Load() >= g.waiting.seq,
			g.waiting.seq == 0 && !any && i != g.waiting.peer:
			continue
		}
		own.ranks[r/64].Store(own.ranks[r/64].Load() | 1<<(r%64))
	}
	own.any.Store(0)
	if any {
		own.any.Store(1)
	}
	if own.mark.Load() == 0 {
		g.board.waits++
		own.mark.Store(g.board.waits)
	}
	circle := g.board.circle()
	if !slices.Contains(circle, g.board.rank) {
		g.picket.same = 0
		return nil
	}
	var marks []uint64
	for _, r := range circle {
		marks = append(marks, uint64(r), g.board.needsOf(r).mark.Load())
	}
	if !slices.Equal(marks, g.picket.seen) {
		g.picket.seen, g.picket.same = marks, 0
	}
	if g.picket.same++; g.picket.same < deadlockAfter {
		return nil
	}
	return &circleError{circle}
}

// awake takes the needs back when a wait ends.
func (g *guard) awake() {
	if !g.picket.next.IsZero() {
		g.board.needsOf(g.board.rank).mark.Store(0)
		g.picket = picket{}
	}
}

// circle lists the ranks that can only go on when another of them does.
func (b *Board) circle() []int {
	var stuck []int
	for r := range b.world {
		if b.needsOf(r).mark.Load() != 0 && b.State(r) == collective.Waiting {
			stuck = append(stuck, r)
		}
	}
	for {
		left := slices.DeleteFunc(slices.Clone(stuck), func(r int) bool { return !b.needsOf(r).stuck(stuck) })
		if len(left) == len(stuck) {
			return stuck
		}
		stuck = left
	}
}

// stuck tells whether the needs cannot be met while these ranks wait.
func (n *needs) stuck(waiting []int) bool {
	met, unmet := 0, 0
	for i := range n.ranks {
		for word := n.ranks[i].Load(); word != 0; word &= word - 1 {
			rank := i*64 + bits.TrailingZeros64(word)
			if slices.Contains(waiting, rank) {
				unmet++
			} else {
				met++
			}
		}
	}
	if n.any.Load() != 0 {
		return met == 0 && unmet > 0
	}
	return unmet > 0
}

// list gives the ranks that are needed.
func (n *needs) list() (ranks []int) {
	for i := range n.ranks {
		for word := n.ranks[i].Load(); word != 0; word &= word - 1 {
			ranks = append(ranks, i*64+bits.TrailingZeros64(word))
		}
	}
	return ranks
}

// circleError ends a wait in a circle of waiting ranks.
type circleError struct{ ranks []int }

func (e *circleError) Error() string { return fmt.Sprintf("ranks %v wait for each other", e.ranks) }

// stalemate is the error that all ranks get for a circle.
func (g *guard) stalemate(circle []int) error {
	var who []string
	rows := make([]collective.Row, 0, g.board.world)
	for _, r := range circle {
		who = append(who, fmt.Sprintf("rank %d for rank %s", r, strings.Trim(fmt.Sprint(g.board.needsOf(r).list()), "[]")))
	}
	for r := range g.board.world {
		rows = append(rows, g.board.Row(r))
	}
	return &collective.MismatchError{Group: g.group, Seq: g.waiting.seq, Rows: rows,
		Reason: "ranks wait for each other in a circle: " + strings.Join(who, ", ")}
}
