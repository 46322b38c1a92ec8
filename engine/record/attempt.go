package record

import (
	"sync"
	"time"

	"drun/engine"
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
	from   *int64        // the step that it goes on from
	known  bool          // from is
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

// beginsFrom notes the state that a rank has of this attempt: of the run's own checkpoint of a step, which was
// saved after so many points, or nil, 0: none of the run's own.
func (r *Record) beginsFrom(rank int, step *int64, points int64) {
	a := r.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.number == 0 || a.early[rank] < 0 {
		return
	}
	early := a.early[rank]
	a.early[rank] = -1
	first := !a.known
	a.known = true
	if first {
		a.from = step
	}
	if !first && early == 0 {
		return
	}
	supersede := history.Supersede{Attempt: a.number, FromStep: step, After: points, Before: a.before}
	repeat := history.Repeat{Rank: rank, After: a.before, Before: a.points}
	r.writer.add(1, 0, func(b *history.Batch) {
		if first {
			b.Supersedes = append(b.Supersedes, supersede)
		}
		if early > 0 {
			b.Repeats = append(b.Repeats, repeat)
		}
	})
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
	r.parts = map[int64]map[int]*engine.Part{}
	r.restores = newRestores()
	n := &attempt{number: r.attempt.number + 1, began: time.Now(), points: r.attempt.points, before: r.attempt.points, early: map[int]int64{}}
	r.attempt = n
	r.writer.add(1, 0, func(b *history.Batch) {
		b.AttemptBegins = append(b.AttemptBegins, history.AttemptBegin{Attempt: n.number, Started: n.began, Points: n.before})
	})
	r.writer.queue.Hold()
}

// Say tells a person something that is kept with the run's logs.
func (r *Record) Say(text string) {
	r.say(text)
	r.Line(-1, true, text)
}
