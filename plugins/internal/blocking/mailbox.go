package blocking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"drun/collective"
	"drun/collective/messages"
)

// mailbox is a rank's point-to-point side. A goroutine takes every message as
// it is announced: into the receive that it matches, or into memory of its
// own. So two ranks that both send before they receive do not block each other.
type mailbox struct {
	comm *Comm
	wg   sync.WaitGroup

	mu       sync.Mutex
	queue    messages.Queue[*receive]
	underway int // asynchronous receives
	sends    []chan struct{}
}

func (m *mailbox) init(c *Comm) {
	m.comm = c
	m.sends = make([]chan struct{}, c.size)
	if c.size > 1 {
		m.wg.Go(m.pump)
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
		r, msg := m.queue.Arrive(from, h.Header)
		m.mu.Unlock()
		if r != nil {
			r.finish(m.comm.engine.Fetch(from, h, r.Buffer.Data))
			continue
		}
		data := make([]byte, h.Bytes)
		err = m.comm.engine.Fetch(from, h, data)
		m.mu.Lock()
		msg.Data, msg.Complete, msg.Err = data, true, err
		taker := msg.Taker
		m.mu.Unlock()
		if taker != nil {
			taker.deliver(msg)
		}
	}
}

// post adds a receive: it takes the first message that fits, arrived or not.
func (m *mailbox) post(r *receive) {
	m.mu.Lock()
	msg := m.queue.Post(r)
	complete := msg != nil && msg.Complete
	m.mu.Unlock()
	if complete {
		r.deliver(msg)
	}
}

// forget takes back a receive that nobody waits for any more.
func (m *mailbox) forget(r *receive) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue.Forget(r)
}

func (m *mailbox) start(call *collective.Call) (collective.Work, error) {
	if call.Kind == collective.Recv {
		r := &receive{Receive: messages.NewReceive(call), box: m, complete: make(chan struct{})}
		m.post(r)
		if call.Async {
			m.count(1)
			r.Background = messages.Go(&m.wg, call, func(ctx context.Context) error {
				defer m.count(-1)
				return r.run(ctx)
			})
		}
		return r, nil
	}
	s := &send{comm: m.comm, done: make(chan struct{})}
	before := m.sends[call.Peer]
	m.sends[call.Peer] = s.done
	to, data := call.Peer, call.Send
	h := Header{Header: messages.Header{Tag: int64(call.Tag), Bytes: uint64(len(data.Data)), DType: data.DType}}
	m.wg.Go(func() {
		defer close(s.done)
		if before != nil { // messages to a rank keep their order
			<-before
		}
		if s.err = m.comm.failed(); s.err == nil {
			s.err = m.comm.wrap(m.comm.engine.Send(to, h, data.Data))
		}
	})
	if call.Async {
		s.Background = messages.Go(&m.wg, call, s.run)
	}
	return s, nil
}

// flush waits for messages on their way out: nobody may wait for them, but they
// were sent. It reports whether all are out.
func (m *mailbox) flush(limit time.Duration) bool {
	over := time.After(limit)
	for _, sent := range m.sends {
		if sent == nil {
			continue
		}
		select {
		case <-sent:
		case <-m.comm.ended:
			return false
		case <-over:
			return false
		}
	}
	return true
}

// count adds to the receives that are under way.
func (m *mailbox) count(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.underway += by
}

// pending reports whether a receive is under way that nobody waits for.
func (m *mailbox) pending() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.underway > 0
}

// close ends the pump and waits for what is under way, which the Comm has ended.
func (m *mailbox) close() {
	m.comm.engine.Stop()
	m.wg.Wait()
}

// lost tells why no message can come for a receive, and whether that is
// because a connection broke.
func (m *mailbox) lost(r *receive) (broken bool, reason error) {
	m.mu.Lock()
	posted := m.queue.Waits(r)
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
