package board

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
)

// Watchdog guards a wait that is not a call, for something that any other rank may do in its recipe, such as
// setting a key. It belongs to the recipe's goroutine.
type Watchdog struct {
	board  *Board
	watch  deadlockWatch
	circle bool // a circle was reported
}

// Watch begins such a wait; the note says what it is for, as in [Board.Note].
func (b *Board) Watch(note string) *Watchdog {
	b.Note(note)
	return &Watchdog{board: b}
}

// Check is called repeatedly while the wait lasts, at least deadlockEvery apart. Its error says that no rank is
// left that could end the wait. Ranks that have failed or are gone, and circles in which a rank waits in a call,
// are reported elsewhere.
func (w *Watchdog) Check() (err error) {
	defer try.Caught(&err)
	b := w.board
	if b.OnWait != nil {
		b.OnWait()
	}
	try.FailIf(b.world == 1, "there is no other rank")
	var others []int // that may still end the wait
	for r := range b.world {
		switch state := b.State(r); {
		case r == b.rank, state == collective.Returned:
		case state.Over():
			return nil
		default:
			others = append(others, r)
		}
	}
	try.FailIf(len(others) == 0, "all other ranks have returned from main")
	b.need(0, true, 0, 0, slices.Values(others))
	b.needsOf(b.rank).outside.Store(1)
	b.move(nil)
	circle := w.watch.detect(b)
	if circle == nil {
		return nil
	}
	for _, r := range circle {
		if b.needsOf(r).outside.Load() == 0 {
			return nil
		}
	}
	if b.OnStuck != nil && b.OnStuck("the ranks wait for each other: "+b.inCircle(circle)) {
		return nil
	}
	w.circle = true
	who := each.Of(circle, func(r int) string { return fmt.Sprintf("rank %d is %s", r, b.Row(r).Note) })
	return errors.New("the ranks wait for each other: " + strings.Join(who, ", "))
}

// Close ends the wait.
func (w *Watchdog) Close() {
	own := w.board.needsOf(w.board.rank)
	own.mark.Store(0)
	own.outside.Store(0)
	if !w.circle { // otherwise the others of the circle still read the note, for the same report
		w.board.Note("")
	}
}

// lifeEvery is how often a joining rank shows that it is alive.
const lifeEvery = 100 * time.Millisecond

// Joining says, until end is called, that this rank is alive and about to join the others. If it is stopped
// meanwhile, [JoinWatch] finds it.
func (b *Board) Joining() (end func()) {
	over := make(chan struct{})
	var showing sync.WaitGroup
	own := b.needsOf(b.rank)
	own.looks.Add(1)
	showing.Go(func() {
		tick := time.NewTicker(lifeEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				own.looks.Add(1)
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		showing.Wait()
		own.joined.Store(1)
	}
}

// JoinWatch finds a rank that is stopped while the ranks join.
type JoinWatch struct {
	looks []uint64
	since []time.Time // when they last changed
}

// Check is called periodically. It returns a rank of this board that has not joined and has shown no life for this
// long, or -1, and whether all have joined.
func (w *JoinWatch) Check(b *Board, long time.Duration) (rank int, all bool) {
	if w.looks == nil {
		w.looks, w.since = make([]uint64, b.world), make([]time.Time, b.world)
		for r := range w.since {
			w.since[r] = time.Now()
		}
	}
	all = true
	for r := range b.world {
		n := b.needsOf(r)
		if !b.isNear(r) || n.joined.Load() != 0 || b.State(r).Over() {
			continue
		}
		all = false
		if looks := n.looks.Load(); looks != w.looks[r] {
			w.looks[r], w.since[r] = looks, time.Now()
		} else if time.Since(w.since[r]) >= long {
			return r, false
		}
	}
	return -1, all
}
