package board

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"drun/collective"
)

// Lookout is the watch of a wait that is no call: for something that any other
// rank may do in its recipe, such as setting a key. It belongs to the recipe's
// goroutine.
type Lookout struct {
	board  *Board
	picket picket
}

// Lookout begins such a wait; the note says what for, as [Board.Note] does.
func (b *Board) Lookout(note string) *Lookout {
	b.Note(note)
	return &Lookout{board: b}
}

// Look is called now and then while the wait lasts, at least deadlockEvery
// apart. Its error says that no rank is left that could end the wait. Ranks that
// have failed or are gone, and circles in which a rank waits in a call, are
// reported by others.
func (l *Lookout) Look() error {
	b := l.board
	if b.world == 1 {
		return errors.New("there is no other rank")
	}
	var others []int // that may still do something
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
	circle := l.picket.look(b)
	if circle == nil {
		return nil
	}
	for _, r := range circle {
		if b.needsOf(r).outside.Load() == 0 {
			return nil
		}
	}
	who := make([]string, len(circle))
	for i, r := range circle {
		who[i] = fmt.Sprintf("rank %d is %s", r, b.Row(r).Note)
	}
	return errors.New("the ranks wait for each other: " + strings.Join(who, ", "))
}

// Close ends the wait.
func (l *Lookout) Close() {
	own := l.board.needsOf(l.board.rank)
	own.mark.Store(0)
	own.outside.Store(0)
	l.board.Note("")
}
