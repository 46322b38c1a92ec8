package record

import (
	"sync"
	"time"

	"drun/history"
	"drun/internal/exit"
)

// attempt is one start of the ranks. What the run recorded after the state that an attempt
// goes on from is superseded by what that records; which state that is shows when
// a rank first restores one, or saves or ends without.
type attempt struct {
	mu     sync.Mutex
	number int
	began  time.Time
	points int64         // of the run, so far
	before int64         // of them, before the attempt
	known  bool          // the state that it goes on from is
	early  map[int]int64 // by rank, points of the attempt before the rank restored; -1: it has
}

// recorded counts points.
func (a *attempt) recorded(rank, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.points += int64(n)
	if a.number > 0 && a.early[rank] >= 0 {
		a.early[rank] += int64(n)
	}
}

// count is how many points the run has recorded.
func (a *attempt) count() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.points
}

// beginsFrom notes from which state a rank begins: the run's own checkpoint of a step, which was
// saved after so many points, or nil, 0: none of the run's own. The first rank that knows decides
// for all. What the rank has recorded already repeats older points.
func (r *Record) beginsFrom(rank int, step *int64, points int64) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.number == 0 || a.early[rank] < 0 {
		return
	}
	r.decide(step, points)
	r.repeats(rank)
	a.early[rank] = -1
}

// decide says which points an attempt supersedes, unless that has been said.
func (r *Record) decide(step *int64, points int64) {
	a := r.attempt
	if a.known {
		return
	}
	a.known = true
	s := history.Supersede{Attempt: a.number, FromStep: step, After: points, Before: a.before}
	r.writer.add(1, 0, func(b *history.Batch) { b.Supersedes = append(b.Supersedes, s) })
}

// repeats says that a rank's points of this attempt so far repeat older ones.
func (r *Record) repeats(rank int) {
	a := r.attempt
	if a.early[rank] <= 0 {
		return
	}
	repeat := history.Repeat{Rank: rank, After: a.before, Before: a.points}
	r.writer.add(1, 0, func(b *history.Batch) { b.Repeats = append(b.Repeats, repeat) })
}

// beginAnew decides at the beginning of an attempt where there is no checkpoint to go on from.
func (r *Record) beginAnew() {
	if a := r.attempt; a.number > 0 && !r.saved.any() {
		a.mu.Lock()
		defer a.mu.Unlock()
		r.decide(nil, 0)
	}
}

// endUndecided decides at the end of an attempt in which no rank restored or saved anything: one
// that is done began anew, and of one that is not, the points that it repeats count.
func (r *Record) endUndecided(code exit.Code) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.number == 0:
	case code == exit.Done:
		r.decide(nil, 0)
	default:
		for rank := range r.places {
			r.repeats(rank)
		}
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
	a := r.attempt
	end := history.AttemptEnd{Attempt: a.number, Status: history.Status(code.Status()), Seconds: time.Since(a.began).Seconds(), Error: text}
	r.writer.add(1, len(text), func(b *history.Batch) { b.AttemptEnds = append(b.AttemptEnds, end) })
	return r.writer.sync()
}

// BeginAttempt begins the next.
func (r *Record) BeginAttempt() {
	r.restores = newRestores()
	n := &attempt{number: r.attempt.number + 1, began: time.Now(), points: r.attempt.points, before: r.attempt.points, early: map[int]int64{}}
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
