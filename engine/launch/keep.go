package launch

import (
	"sync"
	"time"

	"drun/engine"
	"drun/history"
)

const (
	keepEvery  = 100 * time.Millisecond
	keepAt     = 2000    // records
	keepAtMost = 200_000 // then the ranks wait for the disk
)

// keeper writes a run's records to the history in batches: the only writer of
// the run.
type keeper struct {
	run    *history.Run
	faults chan error // gets the first error

	mu     sync.Mutex
	room   sync.Cond
	points []history.Point
	lines  []history.LogLine
	closed bool
	failed bool
	wake   chan struct{}
	done   chan struct{}
}

func newKeeper(run *history.Run) *keeper {
	k := &keeper{run: run, faults: make(chan error, 1), wake: make(chan struct{}, 1), done: make(chan struct{})}
	k.room.L = &k.mu
	go k.loop()
	return k
}

func (k *keeper) metrics(rank int, points []engine.Point) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range points {
		k.points = append(k.points, history.Point{
			Name: p.Name, Step: p.Step, Rank: rank, Value: p.Value, Exact: p.Exact, Time: time.Unix(0, p.Time),
		})
	}
	k.added()
}

func (k *keeper) line(rank int, stderr bool, text string) {
	stream := "stdout"
	if stderr {
		stream = "stderr"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, history.LogLine{Rank: rank, Stream: stream, Time: time.Now(), Text: text})
	k.added()
}

// added wakes the writer when much is waiting, and waits when too much is.
func (k *keeper) added() {
	if len(k.points)+len(k.lines) >= keepAt {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	for len(k.points)+len(k.lines) >= keepAtMost && !k.failed {
		k.room.Wait()
	}
}

func (k *keeper) loop() {
	defer close(k.done)
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.wake:
		}
		if k.write() {
			return
		}
	}
}

// write hands what is waiting to the history and reports whether the keeper was
// closed.
func (k *keeper) write() (closed bool) {
	k.mu.Lock()
	points, lines, failed := k.points, k.lines, k.failed
	k.points, k.lines, closed = nil, nil, k.closed
	k.room.Broadcast()
	k.mu.Unlock()
	if failed {
		return closed
	}
	err := k.run.Metrics(points)
	if err == nil {
		err = k.run.Logs(lines)
	}
	if err != nil {
		k.mu.Lock()
		k.failed = true
		k.room.Broadcast()
		k.mu.Unlock()
		k.faults <- err // after the first nothing is written
	}
	return closed
}

// close writes the rest.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
	<-k.done
}
