package launch

import (
	"errors"
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
// the run while it is on. A disk may hang: what adds records never waits for it,
// but in await.
type keeper struct {
	run    *history.Run
	home   string
	atMost time.Duration // a batch may take
	faults chan error    // gets the first error

	mu     sync.Mutex
	room   sync.Cond
	points []history.Point
	lines  []history.LogLine
	others []func() error // what is rare: parameters, tags, notes
	free   bool           // nobody waits for room any more
	closed bool
	failed bool
	hung   bool // the disk does not answer
	wake   chan struct{}
	done   chan struct{}
}

func newKeeper(run *history.Run, home string, atMost time.Duration) *keeper {
	k := &keeper{run: run, home: home, atMost: atMost, faults: make(chan error, 1), wake: make(chan struct{}, 1), done: make(chan struct{})}
	k.room.L = &k.mu
	go k.loop()
	return k
}

func (k *keeper) metrics(rank int, points []engine.Point) {
	if len(points) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range points {
		k.points = append(k.points, history.Point{
			Name: p.Name, Step: p.Step, Rank: rank, Value: p.Value, Exact: p.Exact, Time: time.Unix(0, p.Time),
		})
	}
	k.added()
}

// do writes something else, before what comes after it.
func (k *keeper) do(write func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.others = append(k.others, write)
	k.rouse()
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

// added wakes the writer when much is waiting.
func (k *keeper) added() {
	if len(k.points)+len(k.lines) >= keepAt {
		k.rouse()
	}
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
	for len(k.points)+len(k.lines) >= keepAtMost && !k.failed && !k.free {
		k.room.Wait()
	}
}

// release ends all waits: the run is ending, and its ranks' ends must be seen.
func (k *keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = true
	k.room.Broadcast()
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
	others, points, lines, failed := k.others, k.points, k.lines, k.failed
	k.others, k.points, k.lines, closed = nil, nil, nil, k.closed
	k.room.Broadcast()
	k.mu.Unlock()
	if failed {
		return closed
	}
	if len(others)+len(points)+len(lines) == 0 {
		return closed
	}
	err := bounded(k.home, k.atMost, func() error {
		for _, write := range others {
			if err := write(); err != nil {
				return err
			}
		}
		if err := k.run.Metrics(points); err != nil {
			return err
		}
		return k.run.Logs(lines)
	})
	if err != nil {
		k.mu.Lock()
		k.failed, k.hung = true, errors.As(err, new(*hungError))
		k.room.Broadcast()
		k.mu.Unlock()
		k.faults <- err // after the first nothing is written
	}
	return closed
}

// close writes the rest, and reports whether the disk answers.
func (k *keeper) close() (answers bool) {
	k.mu.Lock()
	k.closed = true
	k.rouse()
	k.mu.Unlock()
	<-k.done
	return !k.hung
}
