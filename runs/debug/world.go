// Package debug is the debugger over all ranks of a run, which `drun debug` and `drun dap` give to people. It leads the debug
// agents of the ranks (engine/debug) through the process that coordinates them, and goes back by repeating the run up to
// an earlier moment.
package debug

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"drun/engine"
	"drun/engine/run"
	"drun/internal/exit"
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
	State State
	Stop  *engine.Stopped // the latest one; nil: it has not stopped yet
	Why   string          // it has failed
	found []engine.FoundMoment
}

// world is a run under the debugger: the run itself, or a repetition of it.
type world struct {
	home string // of its history
	id   int64
	emit func(Event)
	from *replay.Rerun // that it repeats; nil: it is the run itself

	mu      sync.Mutex
	changed chan struct{} // closed at each change
	ranks   []Rank
	send    func(rank int, m *engine.Debug)
	next    uint64
	calls   map[uint64]call
	held    bool // the ranks were told that some of them stand still
	over    bool
	why     string // it failed

	end func()        // ends the run, or leaves it
	ran chan struct{} // closed when it has ended, and what it left is written
	// How it has ended, once ran is closed; both nil for a run of another process.
	result  *run.Result
	refused error
}

type call struct {
	rank   int
	answer chan *engine.Debugged
}

func newWorld(emit func(Event)) *world {
	return &world{emit: emit, changed: make(chan struct{}), calls: map[uint64]call{}, ran: make(chan struct{}), end: func() {}}
}

var _ run.Debugger = (*world)(nil)

// change makes a change that others may wait for.
func (w *world) change(fn func()) {
	w.mu.Lock()
	fn()
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
}

// await waits until something is so, or ctx ends.
func (w *world) await(ctx context.Context, is func() bool) error {
	for {
		w.mu.Lock()
		ok, changed := is(), w.changed
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) Begun(world int, send func(rank int, m *engine.Debug)) {
	w.change(func() { w.ranks, w.send, w.held = make([]Rank, world), send, false })
	w.emit(Event{Begun: true})
}

func (w *world) Said(rank int, m *engine.Debugged) {
	var event Event
	w.change(func() {
		r := &w.ranks[rank]
		switch {
		case m.Stopped != nil:
			r.State, r.Stop = Held, m.Stopped
			if m.Found != nil || r.found == nil {
				r.found = m.Found
			}
			event = Event{Rank: rank, Stopped: m.Stopped}
		case m.Goes && r.State == Waits:
			r.State = Executes
		case m.Waits && r.State == Executes:
			r.State = Waits
			event = Event{Rank: rank, Waits: true}
		}
		if c, ok := w.calls[m.ID]; ok && m.ID != 0 {
			delete(w.calls, m.ID)
			c.answer <- m
		}
		w.hold()
	})
	w.emit(event)
}

func (w *world) Ended(rank int, why string) {
	w.change(func() {
		w.ranks[rank].State, w.ranks[rank].Why = Ended, why
		for id, c := range w.calls {
			if c.rank == rank {
				delete(w.calls, id)
				c.answer <- &engine.Debugged{Error: "the rank has ended"}
			}
		}
		w.hold()
	})
	w.emit(Event{Rank: rank, Ended: true, Why: why})
}

func (w *world) Over(why string) {
	already := false
	w.change(func() {
		already = w.over
		w.over, w.why = true, why
		for id, c := range w.calls {
			delete(w.calls, id)
			c.answer <- &engine.Debugged{Error: "the run is over"}
		}
	})
	if !already {
		w.emit(Event{Over: true, Why: why})
	}
}

// hold tells the ranks whether some of them stand still. The caller has the lock.
func (w *world) hold() {
	held := false
	for _, r := range w.ranks {
		held = held || r.State == Held
	}
	if held == w.held {
		return
	}
	w.held = held
	for rank, r := range w.ranks {
		if r.State != Ended {
			w.send(rank, &engine.Debug{Held: &held})
		}
	}
}

// tell sends a rank something, and does not wait for its answer.
func (w *world) tell(rank int, m *engine.Debug) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || rank >= len(w.ranks) || w.ranks[rank].State == Ended {
		return
	}
	w.next++
	m.ID = w.next
	w.send(rank, m)
}

// ask sends a rank something, and waits for its answer.
func (w *world) ask(ctx context.Context, rank int, m *engine.Debug) (*engine.Debugged, error) {
	answer := make(chan *engine.Debugged, 1)
	w.mu.Lock()
	switch {
	case w.over:
		w.mu.Unlock()
		return nil, exit.Errorf(exit.Usage, "the run is over")
	case rank < 0 || rank >= len(w.ranks):
		w.mu.Unlock()
		return nil, exit.Errorf(exit.Usage, "there is no rank %d", rank)
	case w.ranks[rank].State == Ended:
		w.mu.Unlock()
		return nil, exit.Errorf(exit.Usage, "rank %d has ended", rank)
	case m.Look != nil && w.ranks[rank].State != Held:
		w.mu.Unlock()
		return nil, exit.Errorf(exit.Usage, "rank %d does not stand still: pause it first", rank)
	}
	w.next++
	m.ID = w.next
	w.calls[m.ID] = call{rank, answer}
	w.send(rank, m)
	w.mu.Unlock()
	select {
	case a := <-answer:
		if a.Error != "" {
			return nil, exit.Errorf(exit.Usage, "%s", a.Error)
		}
		return a, nil
	case <-ctx.Done():
		w.mu.Lock()
		delete(w.calls, m.ID)
		w.mu.Unlock()
		return nil, fmt.Errorf("rank %d did not answer: %w", rank, ctx.Err())
	}
}

// letGo lets a rank that is held go on.
func (w *world) letGo(rank int, how engine.Go) {
	w.change(func() {
		r := &w.ranks[rank]
		if w.over || r.State != Held {
			return
		}
		r.State = Executes
		w.hold()
		w.next++
		w.send(rank, &engine.Debug{ID: w.next, Go: &how})
	})
}

// rank is what is known of a rank.
func (w *world) rank(rank int) Rank {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ranks[rank]
}

// all is what is known of all ranks.
func (w *world) all() []Rank {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Rank(nil), w.ranks...)
}

// quiet reports whether no rank executes. The caller has the lock.
func (w *world) quiet() bool {
	for _, r := range w.ranks {
		if r.State == Executes {
			return w.over
		}
	}
	return w.ranks != nil || w.over
}

// close ends the world, and waits for its end.
func (w *world) close() {
	w.end()
	<-w.ran
}

// failing reports whether a rank has failed: the others are about to end. The caller has the lock.
func (w *world) failing() bool {
	return slices.ContainsFunc(w.ranks, func(r Rank) bool { return r.Why != "" })
}

// deadlocked reports whether a rank stands in a wait for ranks that wait for it.
func (w *world) deadlocked() bool {
	return slices.ContainsFunc(w.all(), func(r Rank) bool { return r.State == Held && r.Stop.Why == engine.AtDeadlock })
}
