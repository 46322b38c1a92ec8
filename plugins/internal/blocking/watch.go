package blocking

import (
	"context"
	"sync"
	"time"

	"drun/collective"
)

// watch checks now and then whether the wait for a call blocked in the engine should end. It costs only a timer that
// seldom fires.
type watch struct {
	expired func(reason error) // ends the call
	broken  func() error       // says why the call cannot succeed

	mu      sync.Mutex
	timer   *time.Timer
	sleep   collective.Sleep
	running bool
	reason  error
}

// A call that is done within this time is never checked.
const firstLook = 2 * time.Millisecond

func (w *watch) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sleep, w.running, w.reason = collective.NewSleep(ctx), true, nil
	if w.timer == nil {
		w.timer = time.AfterFunc(firstLook, w.look)
	} else {
		w.timer.Reset(firstLook)
	}
}

func (w *watch) look() {
	w.mu.Lock()
	if !w.running || w.reason != nil {
		w.mu.Unlock()
		return
	}
	next, err := w.sleep.Next()
	if err == nil {
		err = w.broken()
	}
	if err == nil {
		w.timer.Reset(next)
		w.mu.Unlock()
		return
	}
	w.reason = err
	w.mu.Unlock()
	w.expired(err)
}

// stop returns the reason why the call was ended, if it was.
func (w *watch) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	w.timer.Stop()
	return w.reason
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// waitFor is [collective.Wait] that also ends when the Comm or check fails; check may be nil.
func (c *Comm) waitFor(ctx context.Context, done <-chan struct{}, check func() error) error {
	looked := false // most messages come before a second look
	whole := collective.Also(ctx, func() error {
		if err := c.end.Cause(); err != nil || check == nil || !looked {
			looked = true
			return err
		}
		return check()
	})
	whole.Wake = c.end.Ended
	return collective.Wait(whole, done)
}
