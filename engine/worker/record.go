package worker

import (
	"context"
	"os"
	"sync"
	"time"

	"drun/engine"
	"drun/kernel"
	"drun/starlib/run"
)

const (
	flushAfter = 50 * time.Millisecond // a record waits for others at the most
	flushAt    = 64 << 10              // bytes that are sent at once
	// backlog bounds what a recipe may record ahead of its agent; then it waits.
	backlog = 4 << 20 // bytes
	// recordSize is roughly the size of a record without its text.
	recordSize = 64
)

// recorder collects a rank's records and sends them in batches in the background.
// It is a run.Recorder. A recipe that records faster than the agent writes waits,
// at the longest until the run is aborted.
type recorder struct {
	ctx     context.Context
	channel *engine.Channel
	quiet   bool // there is no progress bar

	sending sync.Mutex // held from taking the pending records until they are sent, to keep the order
	mu      sync.Mutex
	room    sync.Cond
	pending engine.ToAgent
	bytes   int
	timer   *time.Timer
	wake    chan struct{}
	closed  bool
	done    chan struct{}
}

var _ run.Recorder = (*recorder)(nil)

func newRecorder(ctx context.Context, channel *engine.Channel, quiet bool) *recorder {
	r := &recorder{ctx: ctx, channel: channel, quiet: quiet, timer: time.NewTimer(time.Hour), wake: make(chan struct{}, 1), done: make(chan struct{})}
	r.room.L = &r.mu
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.room.Broadcast()
	})
	go r.loop()
	return r
}

func (r *recorder) Log(name string, step int64, value float64, exact bool) {
	p := engine.Point{Name: name, Step: step, Value: value, Exact: exact, Time: time.Now().UnixNano()}
	r.mu.Lock()
	r.reserve(recordSize + len(name))
	r.pending.Points = append(r.pending.Points, p)
	r.mu.Unlock()
}

func (r *recorder) Tag(names []string) {
	r.mu.Lock()
	for _, name := range names {
		r.reserve(recordSize + len(name))
		r.pending.Tags = append(r.pending.Tags, name)
	}
	r.mu.Unlock()
}

func (r *recorder) Note(text string) {
	r.mu.Lock()
	r.reserve(recordSize + len(text))
	r.pending.Notes = append(r.pending.Notes, text)
	r.mu.Unlock()
}

// Machine records where the rank runs.
func (r *recorder) Machine() {
	host, _ := os.Hostname()
	r.mu.Lock()
	r.reserve(recordSize + len(host))
	r.pending.Machine = &engine.Machine{Host: host, Threads: kernel.Threads(), Kernels: kernel.Path()}
	r.mu.Unlock()
}

// DataFile records a file that the recipe has read.
func (r *recorder) DataFile(path, sha256 string, bytes int64) {
	r.mu.Lock()
	r.reserve(recordSize + len(path) + len(sha256))
	r.pending.Files = append(r.pending.Files, engine.DataFile{Path: path, SHA256: sha256, Bytes: bytes})
	r.mu.Unlock()
}

// reserve waits for room for a record, and starts the timer that sends it.
func (r *recorder) reserve(bytes int) {
	for r.bytes >= backlog && !r.closed && r.ctx.Err() == nil {
		r.room.Wait()
	}
	if r.bytes == 0 {
		r.timer.Reset(flushAfter)
	}
	if r.bytes < flushAt && r.bytes+bytes >= flushAt {
		r.nudge()
	}
	r.bytes += bytes
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
	for {
		select {
		case <-r.timer.C:
		case <-r.wake:
		}
		if r.flush() {
			return
		}
	}
}

// flush sends the pending records and reports whether the recorder was closed. An
// error of the channel means that the agent is gone, which ends the worker.
func (r *recorder) flush() (closed bool) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	msg := r.pending
	empty := r.bytes == 0 && msg.Progress == nil
	r.pending, r.bytes = engine.ToAgent{}, 0
	closed = r.closed
	r.room.Broadcast()
	r.mu.Unlock()
	if !empty {
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
