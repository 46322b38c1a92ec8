package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"drun/collective"
)

// comm is a rank's end of a group.
type comm struct {
	mesh  *mesh
	group uint32
	rank  int
	ranks []int // of the world
	seq   uint64
	last  chan struct{} // closed when the latest collective is done
	sent  chan struct{} // closed when the latest message is sent
	calls atomic.Int64
}

func newComm(m *mesh, group uint32, rank int, ranks []int) *comm {
	last := make(chan struct{})
	close(last)
	return &comm{mesh: m, group: group, rank: rank, ranks: ranks, last: last, sent: last}
}

func (c *comm) Rank() int { return c.rank }
func (c *comm) Size() int { return len(c.ranks) }

// Statistics are optional: see sdk.Counter.
func (c *comm) Statistics() map[string]int64 {
	return map[string]int64{"calls": c.calls.Load()}
}

// work is a call under way. A synchronous collective is done by whoever waits
// for it, which is faster than to have a goroutine do it.
type work struct {
	run    func(ctx context.Context) error
	done   chan struct{}
	async  bool
	err    error
	source int
}

// Start begins a call and does not block.
func (c *comm) Start(call *collective.Call) (collective.Work, error) {
	if err := c.mesh.failed(c.group); err != nil {
		return nil, err
	}
	if err := call.Check(c.rank, len(c.ranks)); err != nil {
		return nil, err
	}
	c.calls.Add(1)
	w := &work{async: call.Async, done: make(chan struct{})}
	own := *call // the caller's may be gone when the call runs
	switch call.Kind {
	case collective.Send:
		before := c.sent
		c.sent = w.done
		w.run = func(ctx context.Context) error {
			if err := collective.Wait(ctx, before); err != nil { // messages keep their order
				return err
			}
			return c.mesh.send(c.ranks[own.Peer], header{Group: c.group, Tag: int64(own.Tag), DType: own.Send.DType}, own.Send.Data)
		}
	case collective.Recv:
		w.run = c.receive(w, &own)
	default:
		c.seq++
		seq, before := c.seq, c.last
		c.last = w.done
		w.run = func(ctx context.Context) error {
			if err := collective.Wait(ctx, before); err != nil { // collectives happen in order
				return err
			}
			return c.collective(ctx, &own, seq)
		}
	}
	if call.Async {
		ctx := context.Background()
		if call.Limit > 0 {
			ctx = collective.Within(ctx, call.Limit)
		}
		go w.finish(ctx)
	}
	return w, nil
}

func (w *work) finish(ctx context.Context) {
	w.err = w.run(ctx)
	close(w.done)
}

// Wait returns when the call is done.
func (w *work) Wait(ctx context.Context) error {
	if !w.async {
		w.finish(ctx)
		return w.err
	}
	if err := collective.Wait(ctx, w.done); err != nil {
		return err
	}
	return w.err
}

// Done reports that Wait would return at once.
func (w *work) Done() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Source is the rank that a message came from.
func (w *work) Source() int { return w.source }

// receive asks for a message now, so that messages match receives in the order
// in which these were started.
func (c *comm) receive(w *work, call *collective.Call) func(context.Context) error {
	from := collective.AnySource
	if call.Peer != collective.AnySource {
		from = c.ranks[call.Peer]
	}
	wanted := c.mesh.want(from, header{Group: c.group, Tag: int64(call.Tag)})
	return func(ctx context.Context) error {
		m, err := c.mesh.take(ctx, wanted)
		if err != nil {
			return err
		}
		w.source = slices.Index(c.ranks, m.from)
		if len(m.data) != len(call.Recv.Data) || m.DType != call.Recv.DType {
			return &collective.CallError{Kind: collective.Recv, Problem: fmt.Sprintf("the message holds %d bytes of %v, the buffer takes %d of %v",
				len(m.data), m.DType, len(call.Recv.Data), call.Recv.DType)}
		}
		copy(call.Recv.Data, m.data)
		return nil
	}
}

// Split makes a group of the same connections: nobody needs to be asked.
func (c *comm) Split(_ context.Context, group collective.Group) (collective.Comm, error) {
	if err := c.mesh.failed(c.group); err != nil {
		return nil, err
	}
	if err := collective.CheckRanks(group.Ranks, len(c.ranks)); err != nil {
		return nil, err
	}
	var ranks []int
	for _, r := range group.Ranks {
		ranks = append(ranks, c.ranks[r])
	}
	rank := slices.Index(group.Ranks, c.rank)
	if rank < 0 {
		return nil, nil
	}
	return newComm(c.mesh, group.ID, rank, ranks), nil
}

// Abort ends the calls of this group, here and on the other ranks.
func (c *comm) Abort(cause error) { c.mesh.abort(c.group, c.ranks, cause) }

// Close ends what is pending; the world's closes the connections too.
func (c *comm) Close() error {
	c.mesh.fail(c.group, collective.ErrClosed)
	if c.group == 0 {
		c.mesh.close()
	}
	return nil
}
