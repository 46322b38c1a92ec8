// Package debug is the debugger over all ranks of a run, which `drun debug` and `drun dap` give to people. It leads the debug
// agents of the ranks (engine/debug) through the process that coordinates them, and goes back by repeating the run up to
// an earlier moment.
package debug

import (
	"net"
	"slices"

	"drun/engine"
	"drun/engine/cluster"
	"drun/engine/run"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/runs/replay"
)

// State is what a rank does, as far as the debugger knows.
type State int

const (
	Executes State = iota
	Held           // it stands still, where Rank.Stop says
	Waits          // for other ranks, for a while now
	Ended
)

// Rank is one rank of a world.
type Rank struct {
	State  State
	Stop   *engine.Stopped // the latest one; nil: it has not stopped yet
	Why    string          // it has failed,
	Failed *engine.Moment  // there; nil: unknown
}

// world is a run under the debugger: the run itself, or a repetition of it. Its fields are the session's, see there; methods in
// lower case are called with its lock, except where they say otherwise.
type world struct {
	s      *Session
	home   string // of its history
	id     int64
	from   *replay.Rerun  // that it repeats; nil: it is the run itself
	dir    *scratch.Dir   // its home, then
	states []replay.State // that it has saved, once it has ended
	said   string         // how long it takes
	upTo   int64          // the update after which it stands, if it was prepared

	link   *cluster.Conn[engine.Debugging, engine.Debugging] // to the process that leads it
	ranks  []Rank
	asked  uint64       // number of the latest question
	answer *engine.Seen // to it
	held   bool         // the ranks were told that some of them stand still
	over   bool
	why    string // it failed

	end func()        // ends the run, or leaves it
	ran chan struct{} // closed when it has ended, and what it left is written
	// How it has ended, once ran is closed; both nil for a run of another process.
	result  *run.Result
	refused error
}

func (s *Session) newWorld(conn net.Conn) *world {
	return &world{s: s, link: cluster.Debugger(conn), ran: make(chan struct{})}
}

// listen takes what the world tells, until its end. It is called without the lock.
func (w *world) listen() {
	defer w.link.Close()
	for {
		m, err := w.link.Receive()
		if err != nil {
			return
		}
		w.s.change(func() { w.heard(m) })
	}
}

func (w *world) heard(m *engine.Debugging) {
	switch {
	case m.World > 0:
		w.ranks, w.held = make([]Rank, m.World), false
		if w == w.s.base { // it has started again
			w.tellBreaks()
		}
	case m.Over != nil:
		w.finish(*m.Over)
	case m.Ended != nil:
		w.ranks[m.Rank].State, w.ranks[m.Rank].Why = Ended, *m.Ended
	case m.Debugged != nil:
		r, d := &w.ranks[m.Rank], m.Debugged
		switch {
		case d.Stopped != nil:
			r.State, r.Stop = Held, d.Stopped
		case d.Failed != nil:
			r.Failed = d.Failed
		case d.Ended:
			r.State = Ended
		case d.Goes && r.State == Waits:
			r.State = Executes
		case d.Waits && r.State == Executes:
			r.State = Waits
		}
		if d.Seen != nil && d.Seen.ID == w.asked {
			w.answer = d.Seen
		}
	}
	w.hold()
	if w == w.s.past && !w.s.mortem && w.returned() {
		for rank, p := range w.s.present {
			if p != nil && !w.ranks[rank].Stop.Moment.SameLocals(*p) && !w.s.loose {
				w.s.loose, w.s.untold = true, true
			}
		}
		w.s.past = nil
		w.s.leaving.Go(w.close)
		w.s.leaving.Go(w.s.dismiss)
	}
}

// finish notes that the world has ended, and why, if it has failed.
func (w *world) finish(why string) {
	if !w.over {
		w.over, w.why = true, why
	}
}

// hold tells the ranks whether some of them stand still.
func (w *world) hold() {
	held := w.any(Held)
	if held == w.held {
		return
	}
	w.held = held
	for rank := range w.ranks {
		w.tell(rank, &engine.Debug{Held: &held})
	}
}

// tell sends a rank something.
func (w *world) tell(rank int, m *engine.Debug) {
	if !w.over && w.ranks[rank].State != Ended {
		w.link.Send(&engine.Debugging{Rank: rank, Debug: m}) // listen notices that the other end is gone
	}
}

func (w *world) tellBreaks() {
	list := w.s.breakpoints()
	for rank := range w.ranks {
		w.tell(rank, &engine.Debug{Breaks: &list})
	}
}

// letGo lets a rank that is held go on.
func (w *world) letGo(rank int, how engine.Go) {
	if r := &w.ranks[rank]; !w.over && r.State == Held {
		r.State = Executes
		w.hold()
		w.tell(rank, &engine.Debug{Go: &how})
	}
}

// send sets breakpoints, unless there are none, and lets each rank go to its moment. It is called without the lock.
func (w *world) send(to moments, breaks []engine.Breakpoint, how engine.Go) {
	w.s.change(func() {
		for rank, m := range to {
			if how.Until = m; breaks != nil {
				w.tell(rank, &engine.Debug{Breaks: &breaks})
			}
			w.letGo(rank, how)
		}
	})
}

// stands is where a rank stands still.
func (w *world) stands(rank int) (*engine.Stopped, error) {
	switch {
	case rank < 0 || rank >= len(w.ranks):
		return nil, exit.Errorf(exit.Usage, "there is no rank %d", rank)
	case w.over || w.ranks[rank].State != Held:
		return nil, exit.Errorf(exit.Usage, "rank %d does not stand still: pause stops it", rank)
	}
	return w.ranks[rank].Stop, nil
}

// at is where a rank is. It is called without the lock.
func (w *world) at(rank int) Rank {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.ranks[rank]
}

// any reports whether a rank is in a state.
func (w *world) any(state State) bool {
	return slices.ContainsFunc(w.ranks, func(r Rank) bool { return r.State == state })
}

// quiet reports whether no rank executes.
func (w *world) quiet() bool { return w.over || w.ranks != nil && !w.any(Executes) }

// failing reports whether a rank has failed: the others are about to end.
func (w *world) failing() bool {
	return slices.ContainsFunc(w.ranks, func(r Rank) bool { return r.Why != "" })
}

// returned reports whether all ranks of a repetition have come to the present.
func (w *world) returned() bool {
	for rank, r := range w.ranks {
		if p := w.s.present[rank]; p != nil && (r.State != Held || r.Stop.Moment.Before(*p)) {
			return false
		}
	}
	return true
}

// close ends the world, and waits for its end. It is called without the lock.
func (w *world) close() {
	w.end()
	<-w.ran
}
