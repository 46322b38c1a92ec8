package board

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
)

// Ranks that wait for each other in a circle would wait for ever. Each rank that sleeps in a wait writes on the
// board which ranks it needs. Remove all ranks that can go on: those that remain are in a deadlock, provided that
// this stays the same while each of them checks again, since a rank that is stopped or gets no core may have
// received what it needs without having seen it. A message whose send and receive were both called moves by itself,
// however long it takes: its two ranks do not wait for each other. traffic.go tells how that is known.

const (
	// The needs are checked this often, and a result that is seen deadlockAfter more times means a deadlock.
	deadlockEvery = 100 * time.Millisecond
	deadlockAfter = 4
)

// needs are the ranks that a rank waits for. mark is 0 while it does not sleep.
type needs struct {
	mark    atomic.Uint64 // counts the waits, to tell a new one from the last
	looks   atomic.Uint64 // counts how often the rank wrote this
	any     atomic.Uint32 // one of the ranks will do
	outside atomic.Uint32 // the wait is not a call: see Watchdog
	message atomic.Uint64 // the message that it waits for, 0: none; see messageOf
	group   atomic.Uint32 // of the collective that it waits for
	joined  atomic.Uint32 // the rank has joined the others: see JoinWatch
	spoke   atomic.Uint32 // it has exchanged messages: see flow
	process atomic.Uint32 // its number; of a rank on another node 1 if that is stopped, else 0
	seq     atomic.Uint64 // the collective's number; 0: the call is not one
	// confirmed is the mark of a wait that the coordinator found to be in a circle.
	confirmed atomic.Uint64
}

// rankNeeds is a rank's needs, with the sets that follow them in memory.
type rankNeeds struct {
	*needs
	ranks  rankSet
	moving rankSet // ranks that wait for a message whose other end this rank has called
}

// rankSet has a bit for each rank of the world.
type rankSet []atomic.Uint64

func (s rankSet) clear() {
	for i := range s {
		s[i].Store(0)
	}
}

func (s rankSet) add(rank int)      { s[rank/64].Store(s[rank/64].Load() | 1<<(rank%64)) }
func (s rankSet) has(rank int) bool { return s[rank/64].Load()&(1<<(rank%64)) != 0 }

func (s rankSet) all(yield func(int) bool) {
	for i := range s {
		for word := s[i].Load(); word != 0; word &= word - 1 {
			if !yield(i*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

func (b *Board) needsOf(rank int) rankNeeds { return needsIn(b.needsBytes(rank), b.world) }

func (b *Board) needsBytes(rank int) []byte {
	return b.mem[b.needsAt+rank*b.needsSize:][:needsBytes(b.world)]
}

// headBytes is the size of the part before the sets.
const headBytes = int(unsafe.Sizeof(needs{}))

// needsBytes is the size of a rank's needs in a world of that size.
func needsBytes(world int) int { return headBytes + 2*8*((world+63)/64) }

func needsIn(mem []byte, world int) rankNeeds {
	words, at := (world+63)/64, headBytes
	set := func(at int) rankSet { return unsafe.Slice(sharedmem.At[atomic.Uint64](mem, at), words) }
	return rankNeeds{sharedmem.At[needs](mem, 0), set(at), set(at + 8*words)}
}

type deadlockWatch struct {
	next time.Time
	CircleWatch
}

// deadlock writes the needs of this wait on the board and looks for a circle.
func (g *guard) deadlock() error {
	t := time.Now()
	if t.Before(g.watch.next) {
		return nil
	}
	g.watch.next = t.Add(deadlockEvery)
	g.board.settle()
	any := g.waiting.seq == 0 && g.waiting.peer < 0
	g.board.need(messageOf(g.waiting.kind, g.group, g.waiting.tag), any, g.group, g.waiting.seq, func(yield func(int) bool) {
		for i, r := range g.ranks {
			switch {
			case r == g.board.rank,
				g.waiting.seq > 0 && g.win.line(r).arrived.Load() >= g.waiting.seq,
				g.waiting.seq == 0 && !any && i != g.waiting.peer,
				any && g.board.State(r) == collective.Returned:
				continue
			}
			if g.waiting.seq == 0 {
				g.board.ended(g.board.rank, r).Store(g.ended(g.waiting, i))
			}
			if !yield(r) {
				return
			}
		}
	})
	g.board.move(g)
	if circle := g.watch.detect(g.board); circle != nil {
		if g.board.OnStuck != nil && g.board.OnStuck("the ranks wait for each other: "+g.board.inCircle(circle)) {
			return nil
		}
		return &circleError{circle}
	}
	return nil
}

// need writes which ranks this one waits for, whether any or all of them, and for which message or collective.
func (b *Board) need(message uint64, any bool, group uint32, seq uint64, ranks iter.Seq[int]) {
	own := b.needsOf(b.rank)
	own.message.Store(message)
	own.group.Store(group)
	own.seq.Store(seq)
	own.ranks.clear()
	for r := range ranks {
		own.ranks.add(r)
	}
	own.any.Store(0)
	if any {
		own.any.Store(1)
	}
	if taken := b.taken.Load(); own.mark.Load() == 0 || taken != b.takenThen { // a message that was taken in may let its sender go on
		b.waits++
		own.mark.Store(b.waits)
		b.takenThen = taken
	}
	own.looks.Add(1)
}

// detect gives the circle in which this rank waits for ever, or nil.
func (d *deadlockWatch) detect(b *Board) []int {
	circle := b.circle()
	far := slices.ContainsFunc(circle, func(r int) bool { return !b.isNear(r) })
	if far {
		circle = b.confirmed()
	}
	if !slices.Contains(circle, b.rank) {
		circle = nil
	}
	if !far && d.lasting(b, circle) == nil {
		return nil
	}
	return circle
}

func (g *guard) clearNeeds() {
	if !g.watch.next.IsZero() {
		g.board.needsOf(g.board.rank).mark.Store(0)
		g.watch = deadlockWatch{}
	}
}

// circle lists the ranks that can go on only if another of them does.
func (b *Board) circle() (stuck []int) {
	waiting := make([]bool, b.world) // whether a rank is in stuck
	for r := range b.world {
		n, state := b.needsOf(r), b.State(r)
		if n.mark.Load() != 0 && (state == collective.Waiting || n.outside.Load() != 0 && !state.Over()) {
			stuck, waiting[r] = append(stuck, r), true
		}
	}
	for before := -1; len(stuck) != before; {
		before = len(stuck)
		stuck = slices.DeleteFunc(stuck, func(r int) bool {
			waiting[r] = b.stuck(r, waiting)
			return !waiting[r]
		})
	}
	return stuck
}

// stuck reports whether a rank's needs cannot be met while these ranks wait.
func (b *Board) stuck(rank int, waiting []bool) bool {
	met, unmet := 0, 0
	for r := range b.unmet(rank) {
		if waiting[r] && !b.needsOf(r).moving.has(rank) {
			unmet++
		} else {
			met++
		}
	}
	if b.needsOf(rank).any.Load() != 0 {
		return met == 0 && unmet > 0
	}
	return unmet > 0
}

// unmet yields the ranks that a rank waits for, except those that have since entered the collective: the waiting
// rank may not have seen them yet.
func (b *Board) unmet(rank int) iter.Seq[int] {
	n := b.needsOf(rank)
	seq := n.seq.Load()
	var w *window
	if seq > 0 {
		w, _ = b.window(n.group.Load()) // without a window, the needs as the rank wrote them
	}
	return func(yield func(int) bool) {
		for r := range n.ranks.all {
			if (w == nil || w.line(r).arrived.Load() < seq) && !yield(r) {
				return
			}
		}
	}
}

// Wait names one wait of a rank.
type Wait struct {
	Rank int
	Mark uint64
}

// CircleWatch finds circles that last.
type CircleWatch struct {
	seen  []Wait
	looks []uint64 // of those ranks, when they were seen again
	same  int      // how often these waits were seen again in a row
}

// Check is called by the coordinator after each round in which all nodes have shown their ranks. A need that a rank
// showed in two rounds has lasted between them. Check gives the waits that will not end by themselves.
func (w *CircleWatch) Check(b *Board) []Wait { return w.lasting(b, b.circle()) }

// lasting gives the waits of a circle once they have been the same for a while in which each of the ranks has looked
// for messages again with the others' needs in sight.
func (w *CircleWatch) lasting(b *Board, ranks []int) []Wait {
	var circle []Wait
	var looks []uint64
	for _, r := range ranks {
		n := b.needsOf(r)
		circle, looks = append(circle, Wait{r, n.mark.Load()}), append(looks, n.looks.Load())
	}
	if len(circle) == 0 || !slices.Equal(circle, w.seen) {
		*w = CircleWatch{seen: circle}
		return nil
	}
	if w.same++; w.same == 1 {
		w.looks = looks
	}
	for i := range looks {
		if looks[i] < w.looks[i]+deadlockAfter/2 {
			return nil
		}
	}
	if w.same < deadlockAfter {
		return nil
	}
	return circle
}

// Confirm says that these waits are a circle: its ranks then end them.
func (b *Board) Confirm(circle []Wait) {
	for _, w := range circle {
		if w.Rank >= 0 && w.Rank < b.world {
			b.needsOf(w.Rank).confirmed.Store(w.Mark)
		}
	}
}

// confirmed lists the ranks whose current wait the coordinator found to be in a circle.
func (b *Board) confirmed() (circle []int) {
	for r := range b.world {
		n := b.needsOf(r)
		if mark := n.mark.Load(); mark != 0 && n.confirmed.Load() == mark {
			circle = append(circle, r)
		}
	}
	return circle
}

type circleError struct{ ranks []int }

func (e *circleError) Error() string { return collective.RankList(e.ranks) + " wait for each other" }

func (g *guard) deadlocked(circle []int) error {
	rows := g.board.Rows()
	// Without the number of a collective: the ranks may wait in several calls, and the first to look reports for all.
	return &collective.MismatchError{Rows: rows,
		Reason: "ranks wait for each other in a circle: " + g.board.inCircle(circle)}
}

// mostNamed is how many ranks of a circle are named, and for each how many that it waits for.
const mostNamed = 8

// inCircle says who waits for whom.
func (b *Board) inCircle(circle []int) string {
	var who []string
	for _, r := range circle[:min(len(circle), mostNamed)] {
		others := slices.Collect(b.unmet(r))
		text := fmt.Sprintf("rank %d for rank %s", r, strings.Trim(fmt.Sprint(others[:min(len(others), mostNamed)]), "[]"))
		if more := len(others) - mostNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		who = append(who, text)
	}
	text := strings.Join(who, ", ")
	if more := len(circle) - mostNamed; more > 0 {
		text += fmt.Sprintf("; and %d more ranks", more)
	}
	return text
}
