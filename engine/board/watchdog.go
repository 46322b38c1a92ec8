package board

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"drun/collective"
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
func (w *Watchdog) Check() error {
	b := w.board
	if b.world == 1 {
		return errors.New("there is no other rank")
	}
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
	if len(others) == 0 {
		return errors.New("all other ranks have returned from main")
	}
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
	w.circle = true
	who := make([]string, len(circle))
	for i, r := range circle {
		who[i] = fmt.Sprintf("rank %d is %s", r, b.Row(r).Note)
	}
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
