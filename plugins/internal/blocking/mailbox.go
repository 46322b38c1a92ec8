package blocking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"drun/collective"
)

// mailbox is a rank's point-to-point side. A goroutine takes every message as
// it is announced: into the receive that it matches, or into memory of its
// own. So two ranks that both send before they receive do not block each other.
type mailbox struct {
	comm *Comm
	wg   sync.WaitGroup

	mu       sync.Mutex
	posted   []*receive // in the order they were started
	arrived  []*message // that no receive has asked for yet, in order of arrival
	underway int        // asynchronous receives
	sends    []chan struct{}
}

// message is one that has come, or is coming, without a receive.
type message struct {
	Header
	source   int
	data     []byte
	complete bool
	err      error
	taker    *receive // who asked for it meanwhile
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
		r := m.match(from, h.Tag)
		if r != nil && r.claim(from, h) {
			m.mu.Unlock()
			r.finish(m.comm.engine.Fetch(from, h, r.buffer.Data))
			continue
		}
		msg := &message{Header: h, source: from, taker: r}
		if r == nil {
			m.arrived = append(m.arrived, msg)
		}
		m.mu.Unlock()
		data := make([]byte, h.Bytes)
		err = m.comm.engine.Fetch(from, h, data)
		m.mu.Lock()
		msg.data, msg.complete, msg.err = data, true, err
		taker := msg.taker
		m.mu.Unlock()
		if taker != nil {
			taker.deliver(msg)
		}
	}
}

// match finds the receive that has waited longest for such a message.
func (m *mailbox) match(from int, tag int64) *receive {
	for i, r := range m.posted {
		if r.matches(from, tag) {
			m.posted = slices.Delete(m.posted, i, i+1)
			return r
		}
	}
	return nil
}

// post adds a receive: it takes the first message that fits, arrived or not.
func (m *mailbox) post(r *receive) {
	m.mu.Lock()
	for i, msg := range m.arrived {
		if msg.taker != nil || !r.matches(msg.source, msg.Tag) {
			continue
		}
		m.arrived = slices.Delete(m.arrived, i, i+1)
		r.claim(msg.source, msg.Header)
		msg.taker = r
		complete := msg.complete
		m.mu.Unlock()
		if complete {
			r.deliver(msg)
		}
		return
	}
	m.posted = append(m.posted, r)
	m.mu.Unlock()
}

// forget takes back a receive that nobody waits for any more.
func (m *mailbox) forget(r *receive) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.posted, r); i >= 0 {
		m.posted = slices.Delete(m.posted, i, i+1)
	}
}

func (m *mailbox) start(call *collective.Call) (collective.Work, error) {
	if call.Kind == collective.Recv {
		r := &receive{box: m, asked: call.Peer, tag: int64(call.Tag), buffer: call.Recv, complete: make(chan struct{})}
		m.post(r)
		if call.Async {
			r.background = m.background(call, r.run)
		}
		return r, nil
	}
	s := &send{comm: m.comm, done: make(chan struct{})}
	before := m.sends[call.Peer]
	m.sends[call.Peer] = s.done
	to, data := call.Peer, call.Send
	h := Header{Tag: int64(call.Tag), Bytes: uint64(len(data.Data)), DType: data.DType}
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
		s.background = m.background(call, s.run)
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
	posted := slices.Contains(m.posted, r)
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
		if gone && rank == r.asked {
			return false, m.comm.wrap(fmt.Errorf("rank %d has left the group", rank))
		}
	}
	if left == others {
		return false, m.comm.wrap(errors.New("all other ranks have left the group"))
	}
	return false, nil
}

// background is an asynchronous call's wait.
type background struct {
	done chan struct{}
	err  error
}

func (m *mailbox) background(call *collective.Call, run func(context.Context) error) *background {
	b := &background{done: make(chan struct{})}
	ctx := context.Background()
	if call.Limit > 0 {
		ctx = collective.Within(ctx, call.Limit)
	}
	count := func(by int) {
		if call.Kind == collective.Recv {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.underway += by
		}
	}
	count(1)
	m.wg.Go(func() {
		b.err = run(ctx)
		count(-1)
		close(b.done)
	})
	return b
}

func (b *background) wait(ctx context.Context) error {
	if err := collective.Wait(ctx, b.done); err != nil {
		return err
	}
	return b.err
}
