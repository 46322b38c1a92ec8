// Package progress carries out calls whose backend works in this process: asynchronous ones on a goroutine of their
// own, synchronous ones in their Wait, and a group's collectives in the order in which they were started. It is used by
// collective/shm, collective/hier and the plugins' engines.
package progress

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/collective/sharedmem"
)

// Background is a call that a goroutine carries out. A nil *Background is no call.
type Background struct {
	done chan struct{}
	err  error
}

// Go carries out a call, within its limit if it has one, after the call before it, if any, is over. wg counts it.
func Go(wg *sync.WaitGroup, limit time.Duration, before *Background, do func(context.Context) error) *Background {
	b := &Background{done: make(chan struct{})}
	ctx := context.Background()
	if limit > 0 {
		ctx = collective.Within(ctx, limit)
	}
	wg.Go(func() {
		defer close(b.done)
		if b.err = before.Join(ctx); b.err == nil {
			b.err = do(ctx)
		}
	})
	return b
}

// Begun returns a call that something else carries out and ends by calling end. wg counts it.
func Begun(wg *sync.WaitGroup) (b *Background, end func(error)) {
	b = &Background{done: make(chan struct{})}
	wg.Add(1)
	return b, func(err error) {
		b.err = err
		close(b.done)
		wg.Done()
	}
}

// Failed returns a call that could not begin.
func Failed(err error) *Background {
	b := &Background{done: make(chan struct{}), err: err}
	close(b.done)
	return b
}

// Join waits until the call is over, however it ends.
func (b *Background) Join(ctx context.Context) error {
	if b == nil {
		return nil
	}
	return collective.Wait(ctx, b.done)
}

func (b *Background) Wait(ctx context.Context) error {
	if err := b.Join(ctx); err != nil {
		return err
	}
	return b.err
}

// WaitOr is Wait; without a background call it calls do.
func (b *Background) WaitOr(ctx context.Context, do func(context.Context) error) error {
	if b == nil {
		return do(ctx)
	}
	return b.Wait(ctx)
}

// Ended returns a channel that is closed when the call is over; nil without a call.
func (b *Background) Ended() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.done
}

// Done reports that there is a call, and that it is over.
func (b *Background) Done() bool { return b != nil && collective.IsClosed(b.done) }

func (b *Background) Pending() bool { return b != nil && !collective.IsClosed(b.done) }

// flushLimit is how long unsent messages keep a Comm open.
const flushLimit = time.Second

// Flush waits until all calls are over, stop is closed or a second has passed, and reports whether all are over.
func Flush(all []*Background, stop <-chan struct{}) bool {
	limit := time.After(flushLimit)
	for _, b := range all {
		if b == nil {
			continue
		}
		select {
		case <-b.done:
		case <-stop:
			return false
		case <-limit:
			return false
		}
	}
	return true
}

// End is how a Comm comes to its end: its first cause is kept, and it is closed once.
type End struct {
	Ended  chan struct{} // closed with the cause; may be nil
	cause  atomic.Pointer[error]
	once   sync.Once
	closed error
}

// Fail makes cause the reason why no call is possible any more, and reports whether it is the first.
func (e *End) Fail(cause error) bool {
	if !e.cause.CompareAndSwap(nil, &cause) {
		return false
	}
	if e.Ended != nil {
		close(e.Ended)
	}
	return true
}

// Cause returns why no call is possible any more, or nil.
func (e *End) Cause() error {
	if cause := e.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Close calls do the first time, and returns its error each time.
func (e *End) Close(do func() error) error {
	e.once.Do(func() { e.closed = do() })
	return e.closed
}

// Collectives are those of one Comm: each is carried out once those that were started before it are over.
type Collectives struct {
	do   func(context.Context, *collective.Call) error
	wg   *sync.WaitGroup
	last *Background // the latest asynchronous one
	sync synchronous // used again, so that a synchronous call allocates nothing
}

// Init sets how a call is carried out, before the first Start; wg counts those in the background.
func (c *Collectives) Init(wg *sync.WaitGroup, do func(context.Context, *collective.Call) error) {
	c.wg, c.do, c.sync.of = wg, do, c
}

func (c *Collectives) Start(call *collective.Call) collective.Work {
	if call.Async {
		c.last = Go(c.wg, call.Limit, c.last, func(ctx context.Context) error { return c.do(ctx, call) })
		return c.last
	}
	w := &c.sync
	if w.busy.Load() != 0 {
		w = &synchronous{of: c}
	}
	w.call, w.before = call, c.last
	sharedmem.Publish(&w.busy, 1)
	return w
}

// Last is the latest asynchronous collective. Only the goroutine that calls Start may call it.
func (c *Collectives) Last() *Background { return c.last }

// synchronous is a collective that its Wait carries out.
type synchronous struct {
	of     *Collectives
	call   *collective.Call
	before *Background
	busy   atomic.Uint64 // has not been waited for: 1. In a plugin another goroutine may start the next call
}

func (w *synchronous) Wait(ctx context.Context) error {
	err := w.before.Join(ctx)
	if err == nil {
		err = w.of.do(ctx, w.call)
	}
	sharedmem.Publish(&w.busy, 0)
	return err
}

func (w *synchronous) Done() bool { return false }
