package record

import (
	"sync"
	"time"

	"drun/engine/rendezvous"
	"drun/history"
	"drun/internal/exit"
)

// attempt is one start of the ranks. Points that the run recorded after the state from which an attempt goes on are
// superseded by those the attempt records. That state is what a rank has restored last when, as the first rank to
// do so after restoring, it records points or saves; or, if the attempt ends before that, what was restored last of
// all. What a rank records before it restores immediately supersedes what older attempts recorded under the same
// name and step: drun may be killed before more is known.
type attempt struct {
	mu     sync.Mutex
	number int
	began  time.Time
	points int64 // of the run so far
	before int64 // of those, before the attempt

	known  bool          // whether the state is decided
	states map[int]state // by rank, what it has restored last, or saves without restoring
	last   *state        // what any rank restored last; nil: none has restored
}

// state is a state that an attempt may go on from.
type state struct {
	step  *int64 // of the run's own checkpoint; nil: another's, or none
	after int64  // points of the run before that checkpoint
}

func newAttempt(number int, began time.Time, points int64) *attempt {
	return &attempt{number: number, began: began, points: points, before: points, states: map[int]state{}}
}

// recorded counts n points that a rank is about to record.
func (r *rows) recorded(rank, n int) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.states[rank]; ok {
		r.decide(s)
	} else if a.number > 0 {
		repeat := history.Repeat{Rank: rank, Older: a.before, After: a.points, Before: a.points + int64(n)}
		r.writer.add(1, 0, func(b *history.Batch) { b.Repeat(repeat) })
	}
	a.points += int64(n)
}

// count is how many points the run has recorded.
func (a *attempt) count() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.points
}

// restored notes what a rank has restored: the run's own checkpoint of a step, before which the run had recorded so
// many points; nil and 0 for another run's.
func (r *rows) restored(rank int, step *int64, points int64) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	s := state{step, points}
	a.states[rank], a.last = s, &s
}

// decideBySaving notes that a rank saves: it will not go on from anything it has not restored by now.
func (r *rows) decideBySaving(rank int) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.states[rank]; !ok {
		a.states[rank] = a.latest()
	}
	r.decide(a.states[rank])
}

// latest is what was restored last, or the beginning.
func (a *attempt) latest() state {
	if a.last == nil {
		return state{}
	}
	return *a.last
}

// decide records which points an attempt supersedes, unless that is decided already.
func (r *rows) decide(from state) {
	a := r.attempt
	if a.known || a.number == 0 {
		return
	}
	a.known = true
	s := history.Supersede{Attempt: a.number, FromStep: from.step, After: from.after, Before: a.before}
	r.writer.add(1, 0, func(b *history.Batch) { b.Supersedes = append(b.Supersedes, s) })
}

// beginAnew decides at the beginning of an attempt if there is no checkpoint to go on from.
func (r *Checkpoints) beginAnew() {
	if a := r.attempt; !r.saved.any() {
		a.mu.Lock()
		defer a.mu.Unlock()
		r.decide(state{})
	}
}

// endUndecided decides at the end of an attempt in which no rank saved or recorded anything after restoring. A
// finished attempt without a restore began anew; an unfinished one supersedes only what it repeats.
func (r *rows) endUndecided(code exit.Code) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if code == exit.Done || a.last != nil {
		r.decide(a.latest())
	}
}

// Attempt is the number of this start of the ranks, from 0.
func (r *rows) Attempt() int { return r.attempt.number }

// EndAttempt records how an attempt ended, once all its ranks are gone. It waits for the saves under way, since the
// next attempt goes on from the newest.
func (r *Record) EndAttempt(code exit.Code, text string) error {
	if err := bounded(r.home, saveFactor*r.atMost, r.writer.hurry, func() error { r.pending.Wait(); return nil }); err != nil {
		return err
	}
	r.endUndecided(code)
	a := r.attempt
	end := history.AttemptEnd{Attempt: a.number, Status: history.Status(code.Status()), Seconds: time.Since(a.began).Seconds(), Error: text}
	r.writer.add(1, len(text), func(b *history.Batch) { b.AttemptEnds = append(b.AttemptEnds, end) })
	return r.writer.sync()
}

// BeginAttempt begins the next attempt.
func (r *Record) BeginAttempt() {
	r.forgetRestores()
	n := newAttempt(r.attempt.number+1, time.Now(), r.attempt.points)
	r.attempt = n
	r.writer.add(1, 0, func(b *history.Batch) {
		b.AttemptBegins = append(b.AttemptBegins, history.AttemptBegin{Attempt: n.number, Started: n.began, Points: n.before})
	})
	r.beginAnew()
	r.writer.queue.Hold()
}

// Move sets where the ranks of the next attempt are, and how many. A world of another size goes on from what is on
// disk, as any other run of that size would.
func (r *Record) Move(places []rendezvous.Place) error {
	if len(places) != len(r.places) {
		if err := r.Preserve(); err != nil {
			return err
		}
		r.remember(nil)
		none, size := "", len(places)
		r.unkeyed = true
		r.writer.add(1, 0, func(b *history.Batch) { b.Inputs, b.WorldSize = &none, size })
	}
	r.places = places
	return nil
}
