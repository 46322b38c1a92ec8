package board

import (
	"time"

	"drun/collective"
)

// DrainMessages lets messages to this rank, which has returned from main or leaves a group, out of their senders' way
// until it is stopped: that nobody receives them is found in the counts, and not by whether they fitted somewhere.
func (b *Board) DrainMessages() (stop func()) {
	over, taken := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(taken)
		const least, most = 100 * time.Microsecond, 10 * time.Millisecond
		for pause := least; ; pause = min(2*pause, most) {
			if b.takeArrived() {
				b.taken.Add(1)
				pause = least / 2
			}
			select {
			case <-over:
				return
			case <-time.After(pause):
			}
		}
	}()
	return func() {
		close(over)
		<-taken
	}
}

// takeArrived does not wait, and tells whether some came.
func (b *Board) takeArrived() (some bool) {
	for _, g := range b.guards {
		if t, ok := g.comm.(collective.Taker); ok && t.TakeMessages() {
			some = true
		}
	}
	return some
}
