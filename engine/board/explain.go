package board

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"drun/collective"
)

// How long a report waits for the other ranks to arrive, so that its table is
// complete, and how long the agent has to say why a rank died before its peers
// report it themselves.
const (
	tableGrace = 250 * time.Millisecond
	agentGrace = 2 * time.Second
	farGrace   = time.Second // for the boards of other nodes
)

// overError ends a wait for a rank that will not come.
type overError struct{ rank int }

func (e *overError) Error() string { return fmt.Sprintf("rank %d will not come", e.rank) }

// check ends a sleeping wait that has become pointless: the run was aborted, or
// a rank that it needs makes no further call.
func (g *guard) check() error {
	g.slept = true
	if w := g.waiting; w.detail != nil && !g.board.told(g.board.rank, g.group, w.seq) {
		g.tell(w) // another rank may notice a disagreement first
	}
	if err := g.board.Aborted(); err != nil {
		return err
	}
	for i, w := range g.needed() {
		rank := g.ranks[i]
		state := g.board.State(rank)
		if !state.Over() {
			continue
		}
		// Looked at after the state: what it did before it ended counts.
		if w.seq > 0 && g.win.line(g.ranks[i]).arrived.Load() >= w.seq {
			continue
		}
		if state != collective.Returned && since(g.board.slot(rank).since) < agentGrace {
			continue // the agent knows more, and is about to tell
		}
		// Its last message may be on its way still, in the hands of a goroutine
		// that has not had its turn.
		if w.seq == 0 {
			if g.over.IsZero() {
				g.over = time.Now()
			}
			if time.Since(g.over) < tableGrace {
				return nil
			}
		}
		return &overError{rank}
	}
	return g.deadlock()
}

// needed yields the group's ranks that the current wait is for.
func (g *guard) needed() func(yield func(int, *work) bool) {
	w := g.waiting
	return func(yield func(int, *work) bool) {
		if w.seq == 0 && w.peer >= 0 {
			yield(w.peer, w)
			return
		}
		if w.seq == 0 && !g.allOver() {
			return // any source: someone is left who may send
		}
		for i := range g.comm.Size() {
			if i != g.comm.Rank() && !yield(i, w) {
				return
			}
		}
	}
}

func (g *guard) allOver() bool {
	for i := range g.comm.Size() {
		if i != g.comm.Rank() && !g.board.State(g.ranks[i]).Over() {
			return false
		}
	}
	return true
}

// explain turns what ended a wait into the error that the recipe gets, and
// makes it the end of the run where that is what it means.
func (g *guard) explain(w *work, err error) error {
	var over *overError
	var bad *collective.CallError
	var circle *circleError
	switch {
	case errors.As(err, &bad):
		return err // of this rank alone, and the group goes on
	case g.board.Aborted() != nil:
		return g.fail(err)
	case errors.Is(err, collective.ErrFingerprint):
		g.tell(w)
		g.await(w)
		return g.fail(g.mismatch(w, "the ranks disagree"))
	case errors.As(err, &over):
		if state := g.board.State(over.rank); state != collective.Returned {
			return g.fail(&collective.PeerLostError{Rank: over.rank, How: state.String(), Last: g.board.Row(over.rank)})
		}
		g.await(w)
		return g.fail(g.mismatch(w, fmt.Sprintf("rank %d has returned from main while others wait for it", over.rank)))
	case errors.As(err, &circle):
		return g.fail(g.stalemate(circle.ranks))
	case errors.Is(err, collective.ErrTimeout):
		return g.fail(g.timeout(w))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The caller gave up, which is no failure of the run; but the call
		// was cut in the middle, so this group is of no further use.
		g.broken = fmt.Errorf("group %d: an earlier call was given up: %w", g.group, err)
		g.comm.Abort(g.broken)
		return err
	}
	// Another rank of a circle may have ended it, and the backend's group, first.
	if circle := g.board.confirmed(); slices.Contains(circle, g.board.rank) {
		return g.fail(g.stalemate(circle))
	}
	if errors.As(err, new(*collective.BackendError)) {
		// An engine notices that a rank has left before the board is looked at.
		if rank := g.returned(w); rank >= 0 {
			g.await(w)
			return g.fail(g.mismatch(w, fmt.Sprintf("rank %d has returned from main while others wait for it", rank)))
		}
	}
	return g.fail(err)
}

// returned gives a rank that the call needs and that has returned; -1: none.
func (g *guard) returned(w *work) int {
	for i := range g.needed() {
		rank := g.ranks[i]
		if g.board.State(rank) == collective.Returned && (w.seq == 0 || g.win.line(rank).arrived.Load() < w.seq) {
			return rank
		}
	}
	return -1
}

// fail makes err the end of this group and of the run, unless the run has
// ended before for another reason; it returns the first cause.
func (g *guard) fail(err error) error {
	if g.board.Abort(g.board.rank, err) {
		g.broken = err
	} else {
		g.broken = g.board.Aborted()
	}
	g.comm.Abort(g.broken)
	return g.broken
}

// await gives the other ranks a moment to make their collective of that number,
// and to tell more of it where this one did.
func (g *guard) await(w *work) {
	for end := time.Now().Add(tableGrace); time.Now().Before(end); time.Sleep(time.Millisecond) {
		missing := false
		for i := range g.comm.Size() {
			rank := g.ranks[i]
			if g.board.State(rank).Over() {
				continue
			}
			missing = missing || g.win.line(rank).arrived.Load() < w.seq || w.detail != nil && !g.board.told(rank, g.group, w.seq)
		}
		if !missing {
			return
		}
	}
}

func (g *guard) mismatch(w *work, reason string) error {
	g.meet()
	e := &collective.MismatchError{Group: g.group, Seq: w.seq, Reason: reason}
	for i := range g.comm.Size() {
		e.Rows = append(e.Rows, g.board.rowAt(g.win, g.ranks[i], g.group, w.seq))
	}
	return e
}

func (g *guard) timeout(w *work) error {
	call, began, _, _ := g.board.read(w.entry, g.board.rank, g.group)
	e := &collective.TimeoutError{Call: call, After: since(began)}
	g.meet()
	for i := range g.comm.Size() {
		rank := g.ranks[i]
		switch {
		case w.seq == 0:
			if i == w.peer {
				e.Missing = append(e.Missing, g.board.Row(rank))
			}
		case g.win.line(g.ranks[i]).arrived.Load() >= w.seq:
			e.Arrived = append(e.Arrived, rank)
		default:
			e.Missing = append(e.Missing, g.board.Row(rank))
		}
	}
	if len(e.Missing) == 0 {
		for _, rank := range e.Arrived {
			e.Present = append(e.Present, g.board.Row(rank))
		}
	}
	return e
}
