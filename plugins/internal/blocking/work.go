package blocking

import (
	"context"
	"sync/atomic"

	"drun/collective"
)

// collectiveCall is a collective call.
type collectiveCall struct {
	comm   *Comm
	call   collective.Call
	before chan struct{} // collectives happen in the order they were started
	done   chan struct{} // nil: whoever waits does the work
	busy   atomic.Bool
	err    error
}

func (w *collectiveCall) background() {
	ctx := context.Background()
	if w.call.Limit > 0 {
		ctx = collective.Within(ctx, w.call.Limit)
	}
	w.err = w.run(ctx)
	close(w.done)
}

// Wait does a synchronous call's work, or waits for an asynchronous one.
func (w *collectiveCall) Wait(ctx context.Context) error {
	if w.done == nil {
		err := w.run(ctx)
		w.busy.Store(false)
		return err
	}
	if err := collective.Wait(ctx, w.done); err != nil {
		return err
	}
	return w.err
}

// Done reports that an asynchronous call has finished.
func (w *collectiveCall) Done() bool { return w.done != nil && collective.IsClosed(w.done) }

func (w *collectiveCall) run(ctx context.Context) error {
	c := w.comm
	if w.before != nil {
		if err := collective.Wait(ctx, w.before); err != nil {
			return err
		}
	}
	c.doing.Lock()
	defer c.doing.Unlock()
	if err := c.failed(); err != nil {
		return err
	}
	c.watch.start(ctx)
	err := c.engine.Do(&w.call)
	if reason := c.watch.stop(); reason != nil {
		return reason
	}
	if err == nil {
		return nil
	}
	if cause := c.failed(); cause != nil {
		return cause
	}
	err = c.wrap(err)
	// Cut in its middle, the group cannot go on, and the others must know.
	c.expire(err)
	return err
}
