package blocking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/progress"
)

// mailbox is a rank's point-to-point side. A goroutine takes every message as it is announced: into the receive that it
// matches, or into memory of its own. So two ranks that both send before receiving do not block each other.
type mailbox struct {
	comm *Comm

	mu       sync.Mutex
	queue    messages.Queue
	underway atomic.Int64           // asynchronous receives and paired messages
	sends    []*progress.Background // by destination: the latest
}

func (m *mailbox) init(c *Comm) {
	m.comm = c
	m.sends = make([]*progress.Background, c.size)
	if c.size > 1 {
		c.wg.Go(m.pump)
	}
}

// pump takes messages until the engine stops.
func (m *mailbox) pump() {
	for {
		from, h, err := m.comm.engine.Next()
		if err != nil {
			return
		}
		m.mu.Lock()
		msg := m.queue.Arrive(from, h.Header)
		m.mu.Unlock()
		err = m.comm.wrap(m.comm.engine.Fetch(from, h, msg.Data))
		m.mu.Lock()
		m.queue.Finish(msg, err)
		m.mu.Unlock()
	}
}

// forget removes a receive that nobody waits for any more.
func (m *mailbox) forget(r *receive) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue.Forget(&r.Receive)
}

func (m *mailbox) start(call *collective.Call) (collective.Work, error) {
	c := m.comm
	if engine, ok := c.engine.(Pairer); ok && call.Paired {
		return m.pair(engine, call), nil
	}
	if call.Kind == collective.Recv {
		r := &receive{messages.NewReceive(call), m}
		r.Came = make(chan struct{})
		m.mu.Lock()
		m.queue.Post(&r.Receive)
		m.mu.Unlock()
		if call.Async {
			m.underway.Add(1)
			r.Background = progress.Go(&c.wg, call.Limit, nil, func(ctx context.Context) error {
				defer m.underway.Add(-1)
				return r.run(ctx)
			})
		}
		return r, nil
	}
	to, data := call.Peer, call.Send
	h := Header{Header: messages.Header{Tag: int64(call.Tag), Bytes: uint64(len(data.Data)), DType: data.DType}}
	out := progress.Go(&c.wg, 0, m.sends[to], func(context.Context) error { // messages to a rank keep their order
		if err := c.end.Cause(); err != nil {
			return err
		}
		return c.wrap(c.engine.Send(to, h, data.Data))
	})
	m.sends[to] = out
	s := &send{comm: c, out: out}
	if call.Async {
		s.Background = progress.Go(&c.wg, call.Limit, nil, s.run)
	}
	return s, nil
}

// pair starts a paired message.
func (m *mailbox) pair(engine Pairer, call *collective.Call) collective.Work {
	c, data := m.comm, call.Send.Data
	if call.Kind == collective.Recv {
		data = call.Recv.Data
	}
	out, end := progress.Begun(&c.wg)
	m.underway.Add(1)
	ended := func(err error) {
		m.underway.Add(-1)
		end(c.wrap(err))
	}
	if err := engine.Post(call.Kind, call.Peer, int64(call.Tag), data, ended); err != nil {
		ended(err)
	}
	return &send{comm: c, out: out, check: c.connected}
}

// lost says why no message can come for a receive, and whether that is because a connection broke.
func (m *mailbox) lost(r *receive) (broken bool, reason error) {
	m.mu.Lock()
	posted := m.queue.Waits(&r.Receive)
	m.mu.Unlock()
	if !posted {
		return false, nil
	}
	left, others := 0, m.comm.size-1
	for rank := range m.comm.size {
		if rank == m.comm.rank {
			continue
		}
		gone, err := m.comm.peer(rank)
		if err != nil {
			return true, m.comm.wrap(err)
		}
		if gone {
			left++
		}
		if gone && rank == r.Asked {
			return false, m.comm.wrap(fmt.Errorf("rank %d has left the group", rank))
		}
	}
	if left == others {
		return false, m.comm.wrap(errors.New("all other ranks have left the group"))
	}
	return false, nil
}

// send is a message being sent, or a paired message.
type send struct {
	*progress.Background
	comm  *Comm
	out   *progress.Background
	check func() error
}

func (s *send) Wait(ctx context.Context) error { return s.WaitOr(ctx, s.run) }

func (s *send) Done() bool {
	return s.Background.Done() || s.Background == nil && s.out.Done()
}

func (s *send) run(ctx context.Context) error {
	if err := s.comm.waitFor(ctx, s.out.Ended(), s.check); err != nil {
		return err
	}
	return s.out.Wait(ctx)
}

// lastMessage is how long the last message of a rank that has left may take through this process.
const lastMessage = 100 * time.Millisecond

// receive is a message that a call waits for.
type receive struct {
	messages.Receive
	box *mailbox
}

func (r *receive) Wait(ctx context.Context) error { return r.WaitOr(ctx, r.run) }

func (r *receive) run(ctx context.Context) error {
	if collective.IsClosed(r.Came) {
		return r.Err
	}
	var noticed time.Time
	check := func() error {
		broken, err := r.box.lost(r)
		if err == nil {
			noticed = time.Time{}
			return nil
		}
		if noticed.IsZero() {
			noticed = time.Now()
		}
		if time.Since(noticed) < lastMessage {
			return nil // it may be on its way to the mailbox
		}
		if broken {
			r.box.comm.expire(err)
		}
		return err
	}
	if err := r.box.comm.waitFor(ctx, r.Came, check); err != nil {
		r.box.forget(r)
		return err
	}
	return r.Err
}
