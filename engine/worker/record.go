package worker

import (
	"sync"
	"time"

	"drun/engine"
	"drun/starlib/run"
)

const (
	flushEvery = 100 * time.Millisecond
	flushAt    = 1000 // points
	// backlog bounds what a recipe may log ahead of its agent; then run.log waits.
	backlog = 200_000
)

// recorder collects a rank's records and sends them in batches behind the
// recipe's back. It is a run.Recorder.
type recorder struct {
	channel *engine.Channel
	quiet   bool // nobody watches the progress bar

	mu      sync.Mutex
	room    sync.Cond
	pending engine.ToAgent
	wake    chan struct{}
	closed  bool
	done    chan struct{}
}

var _ run.Recorder = (*recorder)(nil)

func newRecorder(channel *engine.Channel, quiet bool) *recorder {
	r := &recorder{channel: channel, quiet: quiet, wake: make(chan struct{}, 1), done: make(chan struct{})}
	r.room.L = &r.mu
	go r.loop()
	return r
}

func (r *recorder) Log(name string, step int64, value float64, exact bool) {
	now := time.Now().UnixNano()
	r.mu.Lock()
	for len(r.pending.Points) >= backlog && !r.closed {
		r.room.Wait()
	}
	r.pending.Points = append(r.pending.Points, engine.Point{Name: name, Step: step, Value: value, Exact: exact, Time: now})
	full := len(r.pending.Points) == flushAt
	r.mu.Unlock()
	if full {
		r.nudge()
	}
}

func (r *recorder) Tag(names []string) {
	r.mu.Lock()
	r.pending.Tags = append(r.pending.Tags, names...)
	r.mu.Unlock()
}

func (r *recorder) Note(text string) {
	r.mu.Lock()
	r.pending.Notes = append(r.pending.Notes, text)
	r.mu.Unlock()
}

func (r *recorder) Progress(label string, current, total int64, finished bool) {
	if r.quiet {
		return
	}
	r.mu.Lock()
	r.pending.Progress = &engine.Progress{Label: label, Current: current, Total: total, Finished: finished}
	r.mu.Unlock()
	r.nudge()
}

func (r *recorder) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *recorder) loop() {
	defer close(r.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.wake:
		}
		if r.flush() {
			return
		}
	}
}

// flush sends what is pending and reports whether the recorder was closed. An
// error of the channel means that the agent is gone, which ends the worker.
func (r *recorder) flush() (closed bool) {
	r.mu.Lock()
	msg := r.pending
	r.pending = engine.ToAgent{}
	closed = r.closed
	r.room.Broadcast()
	r.mu.Unlock()
	if len(msg.Points) > 0 || len(msg.Tags) > 0 || len(msg.Notes) > 0 || msg.Progress != nil {
		_ = r.channel.Send(&msg)
	}
	return closed
}

// close sends the rest and ends the recorder.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.nudge()
	<-r.done
}
