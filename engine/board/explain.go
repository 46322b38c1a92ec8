package board

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/collective"
)

// Grace periods: tableGrace is how long a report waits for the other ranks to arrive, so that its table is
// complete; agentGrace is how long the agent has to report why a rank died before the rank's peers report it.
const (
	tableGrace = 250 * time.Millisecond
	agentGrace = 2 * time.Second
	farGrace   = time.Second // for the boards of other nodes
	// lastGrace is how long a message of a rank that has returned may be under way; severalGrace applies where
	// other messages are under way too, so that there may be none for this wait.
	lastGrace    = 30 * time.Second
	severalGrace = 3 * time.Second
)

// overError ends a wait for a rank that will never come.
type overError struct{ rank int }

func (e *overError) Error() string { return fmt.Sprintf("rank %d will not come", e.rank) }

// check ends a sleeping wait that has become pointless: the run was aborted, or a rank that it needs will make no
// further call.
func (g *guard) check() error {
	if g.slept == 0 {
		g.slept = now()
	}
	if g.board.OnWait != nil {
		g.board.OnWait()
	}
	w := g.waiting
	if w.detail != nil && !g.board.told(g.board.rank, g.group, w.seq) {
		g.tell(w) // another rank may notice a disagreement first
	}
	if err := g.board.Aborted(); err != nil {
		return err
	}
	for i := range g.needed {
		rank := g.ranks[i]
		state := g.board.State(rank)
		if !state.Over() {
			continue
		}
		// Read after the state: a call that the rank made before it ended counts.
		if w.seq > 0 && g.win.line(g.ranks[i]).arrived.Load() >= w.seq {
			continue
		}
		if state != collective.Returned && since(g.board.slot(rank).since) < agentGrace {
			continue // the agent knows more, and is about to report it
		}
		// The rank's last message may still be under way, in a goroutine that has not been scheduled yet.
		if w.seq == 0 {
			if g.over.IsZero() {
				g.over = time.Now()
			}
			grace := tableGrace
			if state == collective.Returned {
				for _, r := range g.ranks {
					if r != g.board.rank && (w.peer < 0 || r == rank) {
						grace = max(grace, g.flowGrace(w, r))
					}
				}
			}
			if time.Since(g.over) < grace {
				return nil
			}
		}
		return &overError{rank}
	}
	return g.deadlock()
}

// needed yields the group's ranks that the current wait is for.
func (g *guard) needed(yield func(int) bool) {
	w := g.waiting
	if w.seq == 0 && w.peer >= 0 {
		yield(w.peer)
		return
	}
	if w.seq == 0 && !g.allOver() {
		return // any source: at least one rank is left that may send
	}
	for i := range g.comm.Size() {
		if i != g.comm.Rank() && !yield(i) {
			return
		}
	}
}

func (g *guard) allOver() bool {
	return !slices.ContainsFunc(g.ranks, func(r int) bool { return r != g.board.rank && !g.board.State(r).Over() })
}

// explain turns the error that ended a wait into the one that the recipe gets, and aborts the run if it cannot go on.
func (g *guard) explain(w *guardedWork, err error) error {
	err = g.named(err)
	var over *overError
	var bad *collective.CallError
	var circle *circleError
	switch {
	case errors.As(err, &bad):
		return err // it concerns this rank alone, and the group goes on
	case g.board.Aborted() != nil:
		return g.ownTimeout(w, g.fail(err))
	case errors.Is(err, collective.ErrFingerprint):
		w = g.disagreed(w)
		g.tell(w)
		g.waitForOthers(w)
		return g.fail(g.mismatch(w, "the ranks disagree"))
	case errors.As(err, &over):
		if state := g.board.State(over.rank); state != collective.Returned {
			return g.fail(&collective.PeerLostError{Rank: over.rank, How: state.String(), Last: g.board.Row(over.rank)})
		}
		return g.left(w, over.rank)
	case errors.As(err, &circle):
		return g.fail(g.deadlocked(circle.ranks))
	case errors.Is(err, collective.ErrTimeout):
		return g.ownTimeout(w, g.fail(g.timeout(w)))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The caller gave up, which does not fail the run; but the call was interrupted halfway, so this group
		// cannot be used any more.
		g.broken = fmt.Errorf("group %d: an earlier call was given up: %w", g.group, err)
		g.comm.Abort(g.broken)
		return err
	}
	// Another rank of the circle may have ended it first, and with it the backend's group.
	if circle := g.board.confirmed(); slices.Contains(circle, g.board.rank) {
		return g.fail(g.deadlocked(circle))
	}
	if errors.As(err, new(*collective.BackendError)) {
		// A backend notices that a rank has left before the board is looked at.
		if rank := g.returned(w); rank >= 0 {
			return g.left(w, rank)
		}
	}
	g.board.AwaitCause(err)
	return g.fail(err)
}

// left fails a call for which a rank will not come.
func (g *guard) left(w *guardedWork, rank int) error {
	g.waitForOthers(w)
	e := g.mismatch(w, fmt.Sprintf("rank %d has returned from main while others wait for it", rank))
	e.Do = "if it had fewer batches: drop_last = True or pad = True in data.loader gives all ranks equally many"
	return g.fail(e)
}

// causeGrace is how long a rank holds back an error that it suspects another rank of causing, waiting for news of
// that rank; closedGrace is longer, since a peer that closed its connection has a reason of its own, and may hold it back.
const (
	causeGrace  = 500 * time.Millisecond
	closedGrace = 2 * time.Second
)

// AwaitCause waits for the cause of an error that may be a consequence of another rank's end.
func (b *Board) AwaitCause(err error) {
	if !collective.Suspects(err) {
		return
	}
	grace := causeGrace
	if text := err.Error(); strings.Contains(text, "closed by peer") || strings.Contains(text, "reset by peer") {
		grace = closedGrace
	}
	within(grace, func() bool { return b.Aborted() != nil })
}

// within waits until something is so, for at most that long.
func within(limit time.Duration, is func() bool) {
	for end := time.Now().Add(limit); !is() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// AwaitLower makes a failing rank wait until the lower ranks that still run have had time to fail too: an error
// that all of them hit is then reported by the lowest, not by whichever got a core first. It does not wait for ranks that
// wait for this one.
func (b *Board) AwaitLower() {
	within(causeGrace, func() bool {
		for r := range b.rank {
			if !b.State(r).Over() && !b.awaited(r) {
				return b.Aborted() != nil
			}
		}
		return true
	})
}

// awaited reports whether rank by waits for this one, which has not come.
func (b *Board) awaited(by int) bool {
	return b.needsOf(by).mark.Load() != 0 && slices.Contains(slices.Collect(b.unmet(by)), b.rank)
}

// named puts an error of the group's own backend in terms of the world.
func (g *guard) named(err error) error {
	var b *collective.BackendError
	if g.backend == "" || !errors.As(err, &b) {
		return err
	}
	return b.In(g.group, g.board.rank, g.ranks)
}

// returned gives a rank that the call needs and that has returned, or -1.
func (g *guard) returned(w *guardedWork) int {
	for i := range g.needed {
		rank := g.ranks[i]
		if g.board.State(rank) == collective.Returned && (w.seq == 0 || g.win.line(rank).arrived.Load() < w.seq) {
			return rank
		}
	}
	return -1
}

// fail aborts the run and this group with err, unless the run was already aborted, and returns the first cause.
func (g *guard) fail(err error) error {
	if g.board.Abort(g.board.rank, err) {
		g.broken = err
	} else {
		g.broken = g.board.Aborted()
	}
	g.comm.Abort(g.broken)
	return g.broken
}

// waitForOthers gives the other ranks a moment to make their collective with the same number, and to write its
// details where this rank did.
func (g *guard) waitForOthers(w *guardedWork) {
	missing := func(rank int) bool {
		came := g.win.line(rank).arrived.Load() >= w.seq && (w.detail == nil || g.board.told(rank, g.group, w.seq))
		return !came && !g.board.State(rank).Over()
	}
	within(tableGrace, func() bool { return !slices.ContainsFunc(g.ranks, missing) })
}

func (g *guard) mismatch(w *guardedWork, reason string) *collective.MismatchError {
	g.fetchFar()
	e := &collective.MismatchError{Group: g.group, Backend: g.backend, Seq: w.seq, Reason: reason}
	for _, rank := range g.ranks {
		e.Rows = append(e.Rows, g.board.rowAt(g.win, rank, g.group, w.seq))
	}
	return e
}

// ownTimeout returns the timeout of the collective in which this rank itself waits, whichever rank noticed it.
func (g *guard) ownTimeout(w *guardedWork, err error) error {
	var t *collective.TimeoutError
	if !errors.As(err, &t) || w.seq == 0 || t.Call.Group != g.group || t.Call.Seq != w.seq || !slices.Contains(t.Arrived, g.board.rank) {
		return err
	}
	own := *t
	own.Call, _, _, _ = g.board.read(w.entry, g.board.rank, g.group)
	return &own
}

func (g *guard) timeout(w *guardedWork) error {
	call, began, _, _ := g.board.read(w.entry, g.board.rank, g.group)
	e := &collective.TimeoutError{Call: call, After: since(began)}
	g.fetchFar()
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
