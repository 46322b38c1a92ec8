package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"drun/collective"
	"drun/collective/progress"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/plugins/internal/wire"
)

// Comm is a group whose calls a plugin carries out.
type Comm struct {
	*port
	number     uint32 // of the plugin's Comm
	rank, size int
	sync       *pluginCall // the synchronous call under way, or one to use again
	end        progress.End
	abort      sync.Once
}

var (
	_ collective.Comm  = (*Comm)(nil)
	_ collective.Arena = (*Comm)(nil)
)

func newComm(p *port, number uint32, rank, size int) *Comm {
	c := &Comm{port: p, number: number, rank: rank, size: size, end: progress.End{Ended: make(chan struct{})}}
	c.sync = &pluginCall{c: c}
	return c
}

func (c *Comm) Rank() int { return c.rank }

func (c *Comm) Size() int { return c.size }

func (c *Comm) Version() string { return c.about.Version }

// failed returns why no call is possible any more, or nil.
func (c *Comm) failed() error {
	if err := c.dead.Load(); err != nil {
		return *err
	}
	return c.end.Cause()
}

// fail makes err the end of this group, unless it has ended before.
func (c *Comm) fail(err error) {
	if c.enter() {
		defer c.mapping.RUnlock()
		c.finish(err)
	}
}

// finish is fail for a caller that has called enter.
func (c *Comm) finish(err error) {
	if c.end.Fail(err) {
		c.arena.WakeAll()
	}
}

// Alloc returns zeroed memory that the plugin has mapped too.
func (c *Comm) Alloc(dt dtype.Type, count int) (collective.Buffer, error) {
	if !dt.Valid() || count < 0 || count > len(c.arena.Mem)/dt.Size() {
		return collective.Buffer{}, fmt.Errorf("cannot allocate %d elements of %v in the arena", count, dt)
	}
	if !c.enter() {
		return collective.Buffer{}, c.failed()
	}
	defer c.mapping.RUnlock()
	span, err := c.memory.get(int64(count * dt.Size()))
	if err != nil {
		return collective.Buffer{}, err
	}
	data := c.at(span)
	clear(data)
	return collective.Buffer{DType: dt, Data: data}, nil
}

// ask makes a control request that ends with ctx or with the group.
func (c *Comm) ask(ctx context.Context, request func(context.Context) (*wire.Opened, error)) (*wire.Opened, error) {
	inner, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var reply *wire.Opened
	whole := collective.Also(ctx, c.failed)
	whole.Wake = c.end.Ended
	early, err := collective.Run(whole, func() (err error) {
		reply, err = request(inner)
		return err
	})
	if early {
		return nil, err
	}
	if err != nil {
		for end := time.Now().Add(time.Second); c.failed() == nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // the process's end, which says more, may only be noticed now
		}
		if cause := c.failed(); cause != nil {
			return nil, cause
		}
		return nil, c.broken(err.Error())
	}
	if f := reply.Failure; f != nil {
		return nil, wire.Decode(f.Status, f.Text, collective.NewGroup, c.plugin.Name, c.port.rank)
	}
	return reply, nil
}

func (p *port) broken(msg string) error {
	return &collective.BackendError{Backend: p.plugin.Name, Rank: p.rank, Msg: msg, Own: true}
}

// matches checks that the plugin's Comm is the one that was asked for.
func (c *Comm) matches(o *wire.Opened) error {
	if o.None || o.Rank != c.rank || o.Size != c.size {
		return c.broken(fmt.Sprintf("asked to be rank %d of %d, it says that it is rank %d of %d", c.rank, c.size, o.Rank, o.Size))
	}
	return nil
}

func (c *Comm) Split(ctx context.Context, group collective.Group) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	try.Ok(c.failed())
	q := &wire.SplitRequest{Comm: c.number, ID: group.ID, Ranks: group.Ranks}
	opened := try.To(c.ask(ctx, func(ctx context.Context) (*wire.Opened, error) { return wire.Split.Ask(ctx, c.control, q) }))
	rank := slices.Index(group.Ranks, c.rank)
	if rank < 0 {
		if !opened.None {
			return nil, c.broken(fmt.Sprintf("it made rank %d a member of the group of %s", c.rank, collective.RankList(group.Ranks)))
		}
		return nil, nil
	}
	sub := newComm(c.port, opened.Comm, rank, len(group.Ranks))
	return sub, sub.matches(opened)
}

// Abort ends the group's calls, here at once and in the plugin as soon as it
// can. A plugin in which they continue is killed.
func (c *Comm) Abort(cause error) {
	c.fail(cause)
	c.abort.Do(func() {
		if !c.enter() {
			return // the plugin has ended, and its calls with it
		}
		c.aborting.Add(1)
		c.mapping.RUnlock()
		go func() {
			defer c.aborting.Done()
			ctx, stop := context.WithTimeout(c.ctx, abortLimit)
			defer stop()
			end := time.Now().Add(abortLimit)
			_, err := wire.Abort.Ask(ctx, c.control, &wire.AbortRequest{Comm: c.number, Cause: cause.Error()})
			// A request fails at once if the plugin is gone: then watch says how it ended.
			for (err != nil || c.underWay(c.number) != "") && time.Now().Before(end) && c.ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			if c.ctx.Err() != nil || c.closing.Load() {
				return // it ends, or has ended
			}
			if doing := c.underWay(c.number); doing != "" {
				c.condemn(fmt.Sprintf("it did not end its %s within %v of being told to, and was killed", doing, abortLimit))
			} else if err != nil {
				c.condemn(fmt.Sprintf("it did not answer within %v when told to abort, and was killed", abortLimit))
			}
		}()
	})
}

// Close ends the group's calls and releases what it holds; for the world it ends the plugin's process too.
func (c *Comm) Close() error {
	return c.end.Close(func() error {
		c.fail(collective.ErrClosed)
		err := c.request(c.number)
		if c.number == 0 {
			c.port.close()
		}
		return err
	})
}

// request tells the plugin to close a group.
func (p *port) request(number uint32) error {
	if p.dead.Load() != nil {
		return nil // its end has been reported
	}
	ctx, stop := context.WithTimeout(p.ctx, closeLimit)
	defer stop()
	done, err := wire.Close.Ask(ctx, p.control, &wire.CommRequest{Comm: number})
	switch {
	case p.dead.Load() != nil:
		return nil
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		msg := fmt.Sprintf("it did not close its group within %v, and was killed", closeLimit)
		if doing := p.underWay(number); doing != "" {
			msg = fmt.Sprintf("it did not end its %s within %v when its group was closed, and was killed", doing, closeLimit)
		}
		p.condemn(msg)
		return p.broken(msg)
	case err != nil:
		return p.broken(err.Error())
	case done.Failure != nil:
		return wire.Decode(done.Failure.Status, done.Failure.Text, collective.NoKind, p.plugin.Name, p.rank)
	}
	return nil
}

// Statistics counts what the group has done: calls, bytes and microseconds by
// kind of call, and what the engine counts itself. nil if the plugin is gone.
func (c *Comm) Statistics() map[string]int64 {
	ctx, stop := context.WithTimeout(c.ctx, closeLimit)
	defer stop()
	counts, err := wire.Statistics.Ask(ctx, c.control, &wire.CommRequest{Comm: c.number})
	if err != nil {
		return nil
	}
	return counts.Counts
}
