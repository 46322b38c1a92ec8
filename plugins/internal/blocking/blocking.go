// Package blocking builds a [collective.Comm] from an engine whose calls block. The plugins for Gloo, MPI and NCCL use
// it: they carry out single calls, and this package adds order, asynchronous works, limits, aborts, and the matching of
// messages by tag.
package blocking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/progress"
	"drun/internal/try"
)

// An Engine carries out calls for one rank of a group. Do is called by one goroutine at a time, the other methods by any.
type Engine interface {
	// Do carries out a collective, which has been checked, and returns when this rank's part of it is done.
	Do(call *collective.Call) error
	// Interrupt ends all blocked calls of the engine, here and, soon, on the other ranks. The engine is unusable afterwards.
	Interrupt()
	// Leave tells the other ranks that this one leaves in good order. It is not called after Interrupt, which may come
	// while Leave runs and ends it.
	Leave()
	// Close releases what the engine holds. Nobody uses it any more: the engines of its groups have their own
	// references to what they share with it. The other ranks may still be finishing calls that are done here.
	Close() error
	// Split makes the engine of a group, in which this rank is number rank. It ends with ctx, which also ends when
	// the Comm does.
	Split(ctx context.Context, group collective.Group, rank int) (Engine, error)

	// Send sends a message to a rank, and returns when the data can be reused.
	Send(to int, h Header, data []byte) error
	// Next waits for a message and returns its header; Fetch must follow.
	Next() (from int, h Header, err error)
	// Fetch receives the data of the message that Next announced.
	Fetch(from int, h Header, data []byte) error
	// Stop makes Next return an error.
	Stop()
	// Peer reports whether a rank left in good order, or the connection to it failed.
	Peer(rank int) (left bool, failed error)
}

// A Pairer is an Engine that moves paired messages without announcing them.
type Pairer interface {
	// Post starts a message. Unless it fails, end is called when the message has ended, perhaps before Post returns.
	Post(kind collective.Kind, peer int, tag int64, data []byte, end func(error)) error
}

// A Header announces a message.
type Header struct {
	messages.Header
	Key uint64 // the engine's own
}

// Comm is a rank's end of a group over an Engine.
type Comm struct {
	name       string // of the backend
	engine     Engine
	rank, size int

	doing sync.Mutex // held while a collective is in the engine
	watch watch
	box   mailbox

	starting sync.Mutex // held while a call is started
	calls    progress.Collectives
	wg       sync.WaitGroup // asynchronous calls, and the mailbox's goroutines

	// Held for reading by users of the engine that Close does not wait for otherwise; Close holds it exclusively when
	// it closes the engine.
	using sync.RWMutex
	gone  bool // the engine is closed

	end         progress.End
	interrupt   sync.Once
	interrupted atomic.Bool // the engine has been interrupted
}

// New makes the Comm of rank among size ranks of a backend called name.
func New(name string, engine Engine, rank, size int) *Comm {
	c := &Comm{name: name, engine: engine, rank: rank, size: size, end: progress.End{Ended: make(chan struct{})}}
	c.calls.Init(&c.wg, c.carryOut)
	c.watch.expired, c.watch.broken = c.expire, c.broken
	c.box.init(c)
	return c
}

func (c *Comm) Rank() int { return c.rank }

func (c *Comm) Size() int { return c.size }

func (c *Comm) Statistics() map[string]int64 {
	counter, ok := c.engine.(interface{ Statistics() map[string]int64 })
	if !ok || !c.enter() {
		return nil
	}
	defer c.using.RUnlock()
	return counter.Statistics()
}

// enter prevents the engine from being closed until using is unlocked; false if it is closed already.
func (c *Comm) enter() bool {
	c.using.RLock()
	if c.gone {
		c.using.RUnlock()
		return false
	}
	return true
}

func (c *Comm) peer(rank int) (left bool, failed error) {
	if !c.enter() {
		return false, collective.ErrClosed
	}
	defer c.using.RUnlock()
	return c.engine.Peer(rank)
}

// Start begins a call. A synchronous collective is carried out by its Wait.
func (c *Comm) Start(call *collective.Call) (collective.Work, error) {
	c.starting.Lock()
	defer c.starting.Unlock()
	if err := c.end.Cause(); err != nil {
		return nil, err
	}
	if err := call.Check(c.rank, c.size); err != nil {
		return nil, err
	}
	if call.Kind.PointToPoint() {
		return c.box.start(call)
	}
	return c.calls.Start(call), nil
}

func (c *Comm) carryOut(ctx context.Context, call *collective.Call) error {
	c.doing.Lock()
	defer c.doing.Unlock()
	if err := c.end.Cause(); err != nil {
		return err
	}
	c.watch.start(ctx)
	err := c.engine.Do(call)
	if reason := c.watch.stop(); reason != nil {
		return reason
	}
	if err == nil {
		return nil
	}
	if cause := c.end.Cause(); cause != nil {
		return cause
	}
	err = c.wrap(err)
	// Interrupted in the middle, the group is unusable, and the other ranks must know.
	c.expire(err)
	return err
}

// last is the latest asynchronous collective.
func (c *Comm) last() *progress.Background {
	c.starting.Lock()
	defer c.starting.Unlock()
	return c.calls.Last()
}

// Split makes a group. Only its members take part.
func (c *Comm) Split(ctx context.Context, group collective.Group) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	try.Ok(collective.CheckRanks(group.Ranks, c.size))
	if !c.enter() {
		return nil, c.end.Cause()
	}
	defer c.using.RUnlock()
	try.Ok(c.end.Cause())
	ctx, stop := c.whole(ctx)
	defer stop()
	engine, rank, err := c.split(ctx, group)
	if err != nil {
		if cause := c.end.Cause(); cause != nil {
			return nil, cause
		}
		return nil, c.wrap(err)
	}
	if engine == nil {
		return nil, nil
	}
	return New(c.name, engine, rank, len(group.Ranks)), nil
}

// split makes the engine of the group; nil if this rank is not in it.
func (c *Comm) split(ctx context.Context, group collective.Group) (engine Engine, rank int, err error) {
	rank = slices.Index(group.Ranks, c.rank)
	if all, ok := c.engine.(Outsider); ok {
		// A split in which all ranks take part has its place in the order of collectives.
		if err := c.last().Join(ctx); err != nil {
			return nil, 0, err
		}
		if rank < 0 {
			return nil, 0, all.Outside(ctx, group)
		}
	}
	if rank < 0 {
		return nil, 0, nil
	}
	engine, err = c.engine.Split(ctx, group, rank)
	return engine, rank, err
}

// whole returns a context that ends when the Comm does, or when it loses a rank, which a wait elsewhere would not notice.
// The caller has called enter, and calls stop before it leaves.
func (c *Comm) whole(ctx context.Context) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		end(c.waitFor(ctx, nil, func() error { return c.lost(c.engine.Peer) }))
	}()
	return ctx, func() {
		end(nil)
		<-over
	}
}

// An Outsider is an Engine whose Split needs the ranks outside the group too.
type Outsider interface {
	Outside(ctx context.Context, group collective.Group) error
}

// broken names a rank to which the connection failed.
func (c *Comm) broken() error { return c.wrap(c.lost(c.peer)) }

func (c *Comm) lost(peer func(rank int) (left bool, failed error)) error {
	for rank := range c.size {
		if rank == c.rank {
			continue
		}
		if _, err := peer(rank); err != nil {
			return err
		}
	}
	return nil
}

// connected ends the group if a connection has failed.
func (c *Comm) connected() error {
	err := c.broken()
	if err != nil {
		c.expire(err)
	}
	return err
}

// fail makes cause the reason why no call is possible any more, if it is the first.
func (c *Comm) fail(cause error) {
	c.end.Fail(cause)
	c.interrupt.Do(func() {
		if c.enter() {
			defer c.using.RUnlock()
			c.interrupted.Store(true)
			c.engine.Interrupt()
		}
	})
}

// expire makes the failure of one call the group's.
func (c *Comm) expire(reason error) {
	c.fail(fmt.Errorf("an earlier call on this group failed: %w", reason))
}

// wrap adds the backend's name to an engine's error.
func (c *Comm) wrap(err error) error {
	var known *collective.CallError
	var named *collective.BackendError
	if err == nil || errors.As(err, &known) || errors.As(err, &named) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, collective.ErrTimeout) {
		return err
	}
	return &collective.BackendError{Backend: c.name, Rank: c.rank, Msg: err.Error()}
}

func (c *Comm) Abort(cause error) { c.fail(cause) }

// Close flushes sent messages, ends what else is pending, and releases what the engine holds.
func (c *Comm) Close() error {
	return c.end.Close(func() error {
		pending := !progress.Flush(c.box.sends, c.end.Ended) || c.last().Pending() || c.box.underway.Load() > 0
		if c.doing.TryLock() {
			c.doing.Unlock()
		} else {
			pending = true // in a plugin: drun has given up its wait
		}
		if pending {
			c.fail(collective.ErrClosed)
		} else {
			c.end.Fail(collective.ErrClosed)
		}
		// What was started until now is waited for; nothing new can start.
		_ = c.last().Join(context.Background())
		c.doing.Lock()
		defer c.doing.Unlock()
		c.engine.Stop()
		c.wg.Wait()
		c.watch.close()
		if !c.interrupted.Load() {
			c.engine.Leave()
		}
		c.using.Lock()
		defer c.using.Unlock()
		c.gone = true
		return c.engine.Close()
	})
}

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
