package record

import (
	"context"
	"slices"
	"sync"
	"time"

	"drun/collective"
	"drun/engine/board"
	"drun/engine/rendezvous"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
)

// rows is the run in the history, and the attempt whose rows are added to it.
type rows struct {
	home     string
	atMost   time.Duration // that a disk may take
	run      *history.Run
	writer   *writer
	say      func(text string)
	attempt  *attempt
	progress records.Progress // kept last
	loops    bool             // the recipe reports its progress; otherwise the points of its first metric are counted
	counted  counted
}

func (r *rows) ID() int64    { return r.run.ID }
func (r *rows) Name() string { return r.run.Name }

// Faults receives the first write error.
func (r *rows) Faults() <-chan error { return r.writer.faults }

// Wait waits while too much is queued for the disk. Goroutines that read from a rank call it, so that the rank
// waits and the coordinator does not.
func (r *rows) Wait() { r.writer.queue.Wait() }

// Release ends all waits for room, since the run is ending and its ranks' ends must be seen.
func (r *rows) Release() { r.writer.queue.Release() }

// Hasten makes the end of the record wait for nothing.
func (r *rows) Hasten() { r.writer.hasten() }

// Line adds a line that a rank printed; rank -1 is drun itself.
func (r *rows) Line(rank int, stderr bool, text string) {
	stream := "stdout"
	if stderr {
		stream = "stderr"
	}
	l := history.LogLine{Rank: rank, Stream: stream, Time: time.Now(), Text: text}
	r.writer.add(1, len(text), func(b *history.Batch) { b.Lines = append(b.Lines, l) })
}

// progressEvery is how often the history is told how far a loop has got.
const progressEvery = 250 * time.Millisecond

// Progress keeps how far a loop has got. Only the coordinator calls it.
func (r *rows) Progress(p *records.Progress) {
	r.loops = true
	r.keepProgress(p)
}

// counted counts the points of a metric in an attempt.
type counted struct {
	metric  string
	attempt int
	points  int64
}

// count replaces run.progress for a recipe that does not call it.
func (r *rows) count(points []records.Point) {
	if c := (counted{points[0].Name, r.attempt.number, 0}); r.counted.metric == "" || r.counted.attempt != c.attempt {
		r.counted = c
	}
	for i := range points {
		if points[i].Name == r.counted.metric {
			r.counted.points++
		}
	}
	r.keepProgress(&records.Progress{Label: r.counted.metric, Current: r.counted.points, Total: -1})
}

func (r *rows) keepProgress(p *records.Progress) {
	now, last := time.Now(), &r.progress
	if last.Label != p.Label || last.Total != p.Total {
		*last = records.Progress{Began: now}
	} else if p.Current < last.Current { // the loop of the next epoch
		last.Began, last.Current = now, p.Current
	}
	if now.Sub(last.Time) < progressEvery && (last.Current > 0 || p.Current == 0) { // a loop that has just begun says little
		return
	}
	last.Label, last.Current, last.Total, last.Time = p.Label, p.Current, p.Total, now
	kept := *last
	r.writer.add(1, len(kept.Label), func(b *history.Batch) { b.Progress = []records.Progress{kept} })
}

// Say tells a person something, which is also kept in the run's logs.
func (r *rows) Say(text string) {
	r.say(text)
	r.Line(-1, true, text)
}

// Snapshot stores what the ranks were doing, and why that was asked for.
func (r *rows) Snapshot(s *board.Snapshot, reason string) {
	r.writer.add(len(s.Ranks), 0, func(b *history.Batch) { b.Snapshots = append(b.Snapshots, stored(s, reason)) })
}

// answer answers requests for what the ranks are doing, in the form that the history would keep.
func (r *rows) answer(doing func(context.Context) (*board.Snapshot, error)) {
	r.run.Answer(func(ctx context.Context) (*records.Snapshot, error) {
		s, err := doing(ctx)
		if s == nil || err != nil {
			return nil, err
		}
		now := stored(s, "asked")
		return &now, nil
	})
}

func stored(s *board.Snapshot, reason string) records.Snapshot {
	out := records.Snapshot{Time: s.At, Reason: reason}
	for _, r := range s.Ranks {
		k := records.RankState{Rank: r.Rank, State: r.Status(), Position: place(r.Pos), Seconds: r.For.Seconds(), Recent: []records.PastCall{}}
		if r.Call.Kind != collective.NoKind {
			k.Call, k.Number, k.Group = r.Call.String(), r.Call.Seq, r.Call.Group
		}
		for _, c := range r.Recent {
			p := records.PastCall{Call: c.Description.String(), Number: c.Seq, Group: c.Group, Position: place(c.Pos), Ago: c.Began.Seconds(), Async: c.Async}
			if c.Ended {
				took := c.Took.Seconds()
				p.Seconds = &took
			}
			k.Recent = append(k.Recent, p)
		}
		out.Ranks = append(out.Ranks, k)
	}
	slices.SortFunc(out.Ranks, func(x, y records.RankState) int { return x.Rank - y.Rank })
	return out
}

func place(p collective.Position) string {
	if p.File == "" {
		return ""
	}
	return p.String()
}

// attempt is one start of the ranks. Points that the run recorded after the state from which an attempt goes on are
// superseded by those the attempt records. The first rank that records points or saves after restoring decides which
// state that is: the one that it restored last. If the attempt ends before that, it is the one that any rank restored
// last. What a rank records before it restores immediately supersedes what older attempts recorded under the same name
// and step: drun may be killed before more is known.
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
func (r *Record) Move(places []rendezvous.Placement) error {
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
