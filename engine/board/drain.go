package board

import (
	"time"

	"drun/collective"
)

// DrainMessages takes in the messages sent to this rank, which has returned from main or is leaving a
// group, until it is stopped, so that their senders do not wait. Messages that nobody received are found by
// comparing counts, not by whether they fitted into a buffer.
func (b *Board) DrainMessages() (stop func()) {
	over, taken := make(chan struct{}), make(chan struct{})
	b.draining.Store(true)
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
		b.draining.Store(false)
	}
}

// takeArrived takes in the messages that have arrived, without waiting, and reports whether there were any.
func (b *Board) takeArrived() (some bool) {
	for _, g := range b.guards {
		if t, ok := g.comm.(collective.Taker); ok && t.TakeMessages() {
			some = true
		}
	}
	return some
}
