package board

import (
	"sync"
	"time"
)

// lifeEvery is how often a joining rank shows that it is alive.
const lifeEvery = 100 * time.Millisecond

// Joining says, until end is called, that this rank is alive and about to join the others. If it is stopped
// meanwhile, [JoinWatch] finds it.
func (b *Board) Joining() (end func()) {
	over := make(chan struct{})
	var showing sync.WaitGroup
	own := b.needsOf(b.rank)
	own.looks.Add(1)
	showing.Go(func() {
		tick := time.NewTicker(lifeEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				own.looks.Add(1)
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		showing.Wait()
		own.joined.Store(1)
	}
}

// JoinWatch finds a rank that is stopped while the ranks join.
type JoinWatch struct {
	looks []uint64
	since []time.Time // when they last changed
}

// Check is called periodically. It returns a rank of this board that has not joined and has shown no life for this
// long, or -1, and whether all have joined.
func (w *JoinWatch) Check(b *Board, long time.Duration) (rank int, all bool) {
	if w.looks == nil {
		w.looks, w.since = make([]uint64, b.world), make([]time.Time, b.world)
		for r := range w.since {
			w.since[r] = time.Now()
		}
	}
	all = true
	for r := range b.world {
		n := b.needsOf(r)
		if !b.isNear(r) || n.joined.Load() != 0 || b.State(r).Over() {
			continue
		}
		all = false
		if looks := n.looks.Load(); looks != w.looks[r] {
			w.looks[r], w.since[r] = looks, time.Now()
		} else if time.Since(w.since[r]) >= long {
			return r, false
		}
	}
	return -1, all
}
