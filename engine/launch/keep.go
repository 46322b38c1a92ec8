package launch

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"drun/engine"
	"drun/history"
)

const (
	keepAfter  = 50 * time.Millisecond  // a record waits for others at the most
	keepAt     = 2000                   // records are written at once
	keepAtMost = 32 << 20               // bytes; then the ranks wait for the disk
	spoolAfter = 500 * time.Millisecond // a write takes before what comes goes to the spool
	endWait    = 10 * time.Second       // the end of a run waits for a locked history
)

// keeper writes a run's records to the history in batches: the only writer of
// the run while it is on. While another process has the history locked, batches
// go to the run's spool, and the run goes on. A disk may hang: what adds records
// never waits for it, but in await.
type keeper struct {
	run    *history.Run
	home   string
	atMost time.Duration // a disk may take
	say    func(text string)
	faults chan error    // gets the first error
	hurry  chan struct{} // closed: the end waits for nothing any more
	hasten func()        // closes it

	mu      sync.Mutex
	changed sync.Cond
	batch   *history.Batch // what waits to be written
	records int            // in it
	bytes   int
	handed  int64 // calls of add
	kept    int64 // of them are in the history, or in the spool
	free    bool  // nobody waits for room any more
	closed  bool
	failed  error
	timer   *time.Timer
	wake    chan struct{}
	done    chan struct{}

	late chan written // of a write that takes long: then the spool is in use; the loop's alone
	end  error        // why the run's end is not in the history
}

// written is how a write ended.
type written struct {
	more bool // in the spool
	err  error
}

func newKeeper(run *history.Run, home string, atMost time.Duration, say func(string)) *keeper {
	k := &keeper{run: run, home: home, atMost: atMost, say: say, faults: make(chan error, 1), hurry: make(chan struct{}),
		batch: &history.Batch{}, timer: time.NewTimer(time.Hour), wake: make(chan struct{}, 1), done: make(chan struct{})}
	k.hasten = sync.OnceFunc(func() { close(k.hurry) })
	k.changed.L = &k.mu
	run.OnMove(func(what string) { say("drun: " + what) })
	go k.loop()
	return k
}

// recordSize is about what a record takes beside its text.
const recordSize = 100

// add puts n records with so many bytes of text into the batch that is written next.
func (k *keeper) add(n, text int, put func(b *history.Batch)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records == 0 {
		k.timer.Reset(keepAfter)
	}
	put(k.batch)
	k.records += n
	k.bytes += n*recordSize + text
	k.handed++
	if k.records >= keepAt || k.bytes >= keepAtMost {
		k.rouse()
	}
}

func (k *keeper) metrics(rank int, points []engine.Point) {
	if len(points) == 0 {
		return
	}
	text := 0
	for _, p := range points {
		text += len(p.Name)
	}
	k.add(len(points), text, func(b *history.Batch) {
		for _, p := range points {
			b.Points = append(b.Points, history.Point{
				Name: p.Name, Step: p.Step, Rank: rank, Value: p.Value, Exact: p.Exact, Time: time.Unix(0, p.Time),
			})
		}
	})
}

func (k *keeper) line(rank int, stderr bool, text string) {
	stream := "stdout"
	if stderr {
		stream = "stderr"
	}
	l := history.LogLine{Rank: rank, Stream: stream, Time: time.Now(), Text: text}
	k.add(1, len(text), func(b *history.Batch) { b.Lines = append(b.Lines, l) })
}

func (k *keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// await waits while too much is waiting for the disk: those call it that read
// from a rank, so that the rank waits and the agent does not.
func (k *keeper) await() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.bytes >= keepAtMost && k.failed == nil && !k.free {
		k.changed.Wait()
	}
}

// release ends all waits for room: the run is ending, and its ranks' ends must be
// seen.
func (k *keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = true
	k.changed.Broadcast()
}

// sync waits until all that was added is in the history, or in the spool while
// that is locked. It ends when the disk does not answer.
func (k *keeper) sync() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	want := k.handed
	if k.records > 0 {
		k.rouse()
	}
	for k.kept < want && k.failed == nil {
		k.changed.Wait()
	}
	return k.failed
}

func (k *keeper) loop() {
	defer close(k.done)
	for {
		select {
		case <-k.timer.C:
		case <-k.wake:
		case w := <-k.late:
			k.next(w)
		}
		if k.write() {
			break
		}
	}
	giveUp := time.After(endWait)
	for k.late != nil && !k.hung() {
		select {
		case w := <-k.late:
			k.next(w)
		case <-k.hurry:
			return
		case <-giveUp:
			return
		}
	}
}

// write hands what is waiting to the history and reports whether the keeper was
// closed. After a failure nothing is written but the run's end.
func (k *keeper) write() (closed bool) {
	k.mu.Lock()
	b, some, handed, failed, closed := k.batch, k.records > 0, k.handed, k.failed, k.closed
	k.batch, k.records, k.bytes = &history.Batch{}, 0, 0
	k.mu.Unlock()
	if failed != nil {
		if b.End == nil || k.hung() {
			return closed
		}
		b = &history.Batch{End: b.End}
	}
	if some {
		err := k.put(b)
		if err != nil && b.End != nil {
			k.end = err
		}
		k.fail(err)
	}
	k.mu.Lock()
	k.kept = handed
	k.changed.Broadcast()
	k.mu.Unlock()
	return closed
}

// hung reports whether the disk has not answered.
func (k *keeper) hung() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.As(k.failed, new(*hungError))
}

func (k *keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.failed == nil {
		k.failed = err
		k.faults <- err
	}
	k.changed.Broadcast()
}

// put writes a batch to the history, or to the spool when that takes long.
func (k *keeper) put(b *history.Batch) error {
	k.run.Number(b)
	if k.late == nil {
		k.start(func() written { return written{true, k.run.Write(b)} })
		slow := time.NewTimer(min(spoolAfter, k.atMost/2))
		defer slow.Stop()
		select {
		case w := <-k.late:
			if k.late = nil; !history.IsLocked(w.err) {
				return w.err
			}
			k.unspool()
		case <-slow.C:
		}
	}
	first := k.run.Spooled() == ""
	err := bounded(k.home, k.atMost, k.hurry, func() error { return k.run.Spool(b) })
	if err == nil && first {
		k.say(fmt.Sprintf("drun: the history takes nothing now, locked by another process or on a slow disk: what the run records is in %s until it does", k.run.Spooled()))
	}
	return err
}

// start does in the background what may have to wait for the history's lock.
func (k *keeper) start(write func() written) {
	late := make(chan written, 1)
	k.late = late
	go func() { late <- write() }()
}

// unspool brings the oldest batch of the spool into the history.
func (k *keeper) unspool() {
	k.start(func() written {
		more, err := k.run.Unspool()
		return written{more, err}
	})
}

// next goes on after a write that took long.
func (k *keeper) next(w written) {
	k.late = nil
	switch {
	case w.err != nil && !history.IsLocked(w.err):
		k.fail(w.err)
	case w.err != nil || w.more || k.run.Spooled() != "":
		k.unspool()
	default:
		k.say("drun: the history is free again, and has all that the run recorded")
	}
}

// close writes the rest, with the run's end unless there is none to be kept. The
// error says why the end is not recorded; spool is where it waits for the next
// process that opens the history.
func (k *keeper) close(end *history.End) (spool string, err error) {
	if end != nil {
		k.add(1, len(end.Error), func(b *history.Batch) { b.End = end })
	}
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.rouse()
	<-k.done
	if k.end == nil && k.hung() {
		k.end = k.failed
	}
	if k.end == nil {
		spool = k.run.Spooled()
	}
	return spool, k.end
}
