package record

import (
	"time"

	"drun/history"
	"drun/history/records"
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

// ID is the run's number.
func (r *rows) ID() int64 { return r.run.ID }

// Name is the run's name.
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
const progressEvery = 500 * time.Millisecond

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
	if last.Label != p.Label || last.Total != p.Total || p.Current < last.Current {
		*last = records.Progress{Began: now}
	} else if now.Sub(last.Time) < progressEvery {
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
