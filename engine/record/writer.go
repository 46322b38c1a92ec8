package record

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/queue"
)

const (
	spoolAfter = 500 * time.Millisecond // how long a write may take before further batches go to the spool
	endWait    = 10 * time.Second       // how long the end of a run waits for a locked history
	// recordSize is roughly a record's size in bytes without its text.
	recordSize = 100
)

// limits say when a batch is written, and how many bytes may wait before the ranks wait for the disk.
var limits = queue.Limits{After: 50 * time.Millisecond, At: 2000 * recordSize, Full: 32 << 20}

// writer writes a run's records to the history in batches. While the run is on, it is the run's only writer. While
// another process has the history locked, batches go to the run's spool, and the run goes on. A disk may hang, so
// adding records never waits for it, except in Wait.
type writer struct {
	run    *history.Run
	home   string
	atMost time.Duration // that a disk may take
	say    func(text string)
	faults chan error    // gets the first error
	hurry  chan struct{} // closed: the end no longer waits for anything
	hasten func()        // closes it
	queue  *queue.Queue[batch]
	done   chan struct{}

	mu     sync.Mutex
	failed error

	newer bool         // a newer drun has changed the schema, so nothing more is written; used only by the loop
	late  chan written // the result of a slow write, during which the spool is in use; used only by the loop
	end   error        // why the run's end is not in the history
}

type batch struct {
	history.Batch
	some   bool            // something is in it
	stored []chan struct{} // closed when they are in the history, or in the spool
}

type written struct {
	more bool // batches are left in the spool
	err  error
}

func newWriter(run *history.Run, home string, atMost time.Duration, say func(string)) *writer {
	w := &writer{run: run, home: home, atMost: atMost, say: say, faults: make(chan error, 1), hurry: make(chan struct{}),
		queue: queue.New[batch](limits), done: make(chan struct{})}
	w.hasten = sync.OnceFunc(func() { close(w.hurry) })
	run.OnReplaced(func(what string) { say("drun: " + what) })
	go w.loop()
	return w
}

// add adds n records with this many bytes of text to the next batch.
func (w *writer) add(n, text int, put func(b *history.Batch)) {
	w.queue.Add(n*recordSize+text, func(r *batch) {
		put(&r.Batch)
		r.some = true
	})
}

// sync waits until everything added is in the history or, while that is locked, in the spool. It gives up if the
// disk does not answer.
func (w *writer) sync() error {
	stored := make(chan struct{})
	w.queue.Add(0, func(r *batch) { r.stored = append(r.stored, stored) })
	w.queue.Flush()
	select {
	case <-stored:
	case <-w.done:
	}
	return w.failure()
}

func (w *writer) loop() {
	defer close(w.done)
	for {
		select {
		case <-w.queue.Ready():
		case end := <-w.late:
			w.next(end)
		}
		if w.write() {
			break
		}
	}
	if w.newer {
		return
	}
	giveUp := time.After(endWait)
	for w.late != nil && !w.hung() {
		select {
		case end := <-w.late:
			w.next(end)
		case <-w.hurry:
			return
		case <-giveUp:
			return
		}
	}
}

// write writes the waiting records to the history, and reports whether the writer was closed. After a failure it
// writes only the run's end.
func (w *writer) write() (closed bool) {
	r, _, closed := w.queue.Take()
	defer func() {
		for _, stored := range r.stored {
			close(stored)
		}
	}()
	b := &r.Batch
	if w.failure() != nil {
		if b.End == nil || w.hung() {
			return closed
		}
		b = &history.Batch{End: b.End}
	}
	if r.some {
		err := w.put(b)
		if err != nil && b.End != nil {
			w.end = err
		}
		w.fail(err)
	}
	return closed
}

func (w *writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *writer) hung() bool { return IsHung(w.failure()) }

func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.failed == nil {
		w.failed = err
		w.faults <- err
		w.queue.Release()
	}
}

// put writes a batch to the history, or to the spool if that takes long.
func (w *writer) put(b *history.Batch) error {
	w.run.Number(b)
	var why error
	if w.late == nil {
		w.start(func() written { return written{true, w.run.Write(b)} })
		slow := time.NewTimer(min(spoolAfter, w.atMost/2))
		defer slow.Stop()
		select {
		case end := <-w.late:
			if w.late = nil; !waits(end.err) {
				return end.err
			}
			why, w.newer = end.err, history.IsNewer(end.err)
			w.unspool()
		case <-slow.C:
		}
	}
	first := w.run.Spooled() == ""
	err := bounded(w.home, w.atMost, w.hurry, func() error { return w.run.Spool(b) })
	if err == nil && first && history.IsNewer(why) {
		w.say(fmt.Sprintf("drun: %s: what the run records from now on is in %s, from where the newer drun's next command that writes takes it", why, w.run.Spooled()))
	} else if err == nil && first {
		w.say(fmt.Sprintf("drun: the history cannot be written now (locked by another process, or on a slow disk): until it can, what the run records is in %s", w.run.Spooled()))
	}
	return err
}

// waits reports whether records wait in the spool after an error.
func waits(err error) bool { return history.IsLocked(err) || history.IsNewer(err) }

// start runs in the background what may have to wait for the history's lock.
func (w *writer) start(write func() written) {
	late := make(chan written, 1)
	w.late = late
	go func() { late <- write() }()
}

// unspool moves the oldest batch from the spool to the history.
func (w *writer) unspool() {
	w.start(func() written {
		more, err := w.run.Unspool()
		if history.IsNewer(err) { // permanent: nobody reverts a schema
			select {
			case <-w.hurry:
			case <-time.After(endWait):
			}
		}
		return written{more, err}
	})
}

// next continues after a slow write.
func (w *writer) next(end written) {
	w.late, w.newer = nil, history.IsNewer(end.err)
	switch {
	case end.err != nil && !waits(end.err):
		w.fail(end.err)
	case end.err != nil || end.more || w.run.Spooled() != "":
		w.unspool()
	default:
		w.say("drun: the history can be written again, and has all that the run recorded")
	}
}

// close writes the remaining records, and the run's end unless it is nil. The error says why the end is not
// recorded; spool is where it waits for the next process that opens the history.
func (w *writer) close(end *history.End) (spool string, err error) {
	if end != nil {
		w.add(1, len(end.Error), func(b *history.Batch) { b.End = end })
	}
	w.queue.Close()
	<-w.done
	if w.end == nil && w.hung() {
		w.end = w.failure()
	}
	if w.end == nil {
		spool = w.run.Spooled()
	}
	return spool, w.end
}

// DiskTimeout is how long a run waits for the disk: longer than a history that another process has locked takes to
// report that. Saving checkpoints may take saveFactor times as long.
const (
	DiskTimeout = 2 * time.Minute
	saveFactor  = 10
)

// hungError says that a disk does not answer.
type hungError struct{ error }

func (e *hungError) Unwrap() error { return e.error }

// IsHung reports whether an error says that a disk does not answer, so that work on it may still be under way.
func IsHung(err error) bool { return errors.As(err, new(*hungError)) }

// bounded runs work that waits for the disk beneath a folder, until atMost has passed or hurry is closed. A disk
// may hang for ever: the work is then left behind.
func bounded(where string, atMost time.Duration, hurry <-chan struct{}, work func() error) error {
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- work() }()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-hurry:
		// Work that needs only a moment still gets it.
		select {
		case err := <-done:
			return err
		case <-time.After(hurryFor):
		}
	case <-timer.C:
		if time.Since(start) > atMost+stoppedAfter { // this process was stopped (Ctrl-Z), and the work with it
			return bounded(where, atMost, hurry, func() error { return <-done })
		}
	}
	return &hungError{exit.WithHint(exit.Errorf(exit.Storage, "%s has not answered for %s: what the run recorded last is lost", where, time.Since(start).Round(10*time.Millisecond)),
		"check the disk beneath it (dmesg, df), or choose another place with --home DIR or $DRUN_HOME")}
}

// stoppedAfter is how much later than it was due a timer must fire to show that this process was stopped meanwhile.
const stoppedAfter = 3 * time.Second

// hurryFor is how long the disk has after a signal.
const hurryFor = 200 * time.Millisecond
