package record

import (
	"sync"
	"time"

	"drun/history"
	"drun/internal/exit"
)

// attempt is one start of the ranks. What the run recorded after the state that an attempt
// goes on from is superseded by what that records. The state is what the first rank that restores
// has restored last when it goes on to record points, when all save, or when the attempt ends.
type attempt struct {
	mu     sync.Mutex
	number int
	began  time.Time
	points int64 // of the run, so far
	before int64 // of them, before the attempt

	known    bool          // the state is
	restorer int           // the first rank that has restored; -1: none has
	from     *int64        // the step of the run's own checkpoint that it restored; nil: another's, or none
	after    int64         // points of the run before that checkpoint
	early    map[int]int64 // by rank, points of the attempt before the rank restored; -1: it has
}

func newAttempt(number int, began time.Time, points int64) *attempt {
	return &attempt{number: number, began: began, points: points, before: points, restorer: -1, early: map[int]int64{}}
}

// recorded counts points, which come.
func (r *Record) recorded(rank, n int) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if rank == a.restorer {
		r.decide()
	}
	a.points += int64(n)
	if a.early[rank] >= 0 {
		a.early[rank] += int64(n)
	}
}

// count is how many points the run has recorded.
func (a *attempt) count() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.points
}

// restored notes what a rank has restored: the run's own checkpoint of a step, before which there
// were so many points, or nil, 0: another's. What the rank has recorded before that repeats older points.
func (r *Record) restored(rank int, step *int64, points int64) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.restorer < 0 {
		a.restorer = rank
	}
	if a.restorer == rank && !a.known {
		a.from, a.after = step, points
	}
	r.repeats(rank)
	a.early[rank] = -1
}

// decideBySaving notes that a rank saves: what it has not restored by now, it does not go on from.
func (r *Record) decideBySaving(rank int) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	r.decide()
	r.repeats(rank)
	a.early[rank] = -1
}

// decide says which points an attempt supersedes, unless that has been said.
func (r *Record) decide() {
	a := r.attempt
	if a.known || a.number == 0 {
		return
	}
	a.known = true
	s := history.Supersede{Attempt: a.number, FromStep: a.from, After: a.after, Before: a.before}
	r.writer.add(1, 0, func(b *history.Batch) { b.Supersedes = append(b.Supersedes, s) })
}

// repeats says that a rank's points of this attempt so far repeat older ones.
func (r *Record) repeats(rank int) {
	a := r.attempt
	if a.number == 0 || a.early[rank] <= 0 {
		return
	}
	repeat := history.Repeat{Rank: rank, After: a.before, Before: a.points}
	r.writer.add(1, 0, func(b *history.Batch) { b.Repeats = append(b.Repeats, repeat) })
}

// beginAnew decides at the beginning of an attempt where there is no checkpoint to go on from.
func (r *Record) beginAnew() {
	if a := r.attempt; !r.saved.any() {
		a.mu.Lock()
		defer a.mu.Unlock()
		r.decide()
	}
}

// endUndecided decides at the end of an attempt, if no rank saved or recorded anything after
// it restored: one that is done without began anew; of one that is not, only what it repeats counts.
func (r *Record) endUndecided(code exit.Code) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if code == exit.Done || a.restorer >= 0 {
		r.decide()
	}
	for rank := range r.places {
		r.repeats(rank)
	}
}

// Attempt is the number of this start of the ranks, from 0.
func (r *Record) Attempt() int { return r.attempt.number }

// EndAttempt records how an attempt of the ranks ended, all of which are gone. It waits for the
// saves under way, since the next attempt goes on from the newest.
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

// BeginAttempt begins the next.
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

// Say tells a person something that is kept with the run's logs.
func (r *Record) Say(text string) {
	r.say(text)
	r.Line(-1, true, text)
}
