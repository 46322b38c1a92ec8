package shm

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
)

// mailbox is a rank's point-to-point side. Whoever waits, to send or to
// receive, moves arriving messages out of the rings: into the receive that
// they match, or into memory of their own. So two ranks that both send before
// they receive do not block each other.
type mailbox struct {
	comm *Comm
	wg   sync.WaitGroup // asynchronous calls

	mu       sync.Mutex
	incoming []incoming // by source: the message that is arriving
	posted   []*receive // in the order they were started
	arrived  []*message // that no receive has asked for yet, in order of arrival

	sends []chan struct{} // by destination: closed when the latest asynchronous send is done
}

// message is one that has come, or is coming, without a receive.
type message struct {
	header
	source   int
	data     []byte
	complete bool
	taker    *receive // who asked for it meanwhile
}

// incoming is what is left to come of a message.
type incoming struct {
	rest    []byte
	message *message // where it goes: either of the two
	receive *receive
	active  bool
}

func (m *mailbox) init(c *Comm) {
	m.comm = c
	m.incoming = make([]incoming, c.size)
	m.sends = make([]chan struct{}, c.size)
}

func (m *mailbox) doorbell(rank int) *sharedmem.Gate {
	return sharedmem.At[sharedmem.Gate](m.comm.mem, m.comm.layout.doorbells+rank*sharedmem.CacheLine)
}

// wakeAll lets every rank's waits look at the abort.
func (m *mailbox) wakeAll() {
	for i := range m.comm.size {
		m.doorbell(i).Open()
	}
}

// close waits for what is under way, which the Comm has ended.
func (m *mailbox) close() {
	m.doorbell(m.comm.rank).Open()
	m.wg.Wait()
}

func (m *mailbox) start(call *collective.Call) (collective.Work, error) {
	if call.Kind == collective.Recv {
		r := &receive{box: m, source: call.Peer, tag: int64(call.Tag), buffer: call.Recv}
		m.mu.Lock()
		m.post(r)
		m.mu.Unlock()
		if call.Async {
			r.background = m.background(call, r.run)
		}
		return r, nil
	}
	s := &send{box: m, to: call.Peer, before: m.sends[call.Peer], buffer: call.Send, tag: int64(call.Tag)}
	if call.Async {
		s.background = m.background(call, s.run)
		m.sends[call.Peer] = s.background.done
	}
	return s, nil
}

// background does an asynchronous call's work.
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
	m.wg.Go(func() {
		b.err = run(ctx)
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

// await pumps until done, which is called with the mailbox locked.
func (m *mailbox) await(ctx context.Context, done func() bool) error {
	var failed error
	ready := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pump()
		if done() {
			return true
		}
		failed = m.comm.failed()
		return failed != nil
	}
	for range 1 + m.comm.spin/10 {
		if ready() {
			return failed
		}
		sharedmem.Pause()
	}
	if err := m.doorbell(m.comm.rank).Wait(ctx, ready); err != nil {
		return err
	}
	return failed
}

// send is a message on its way out.
type send struct {
	box        *mailbox
	to         int
	tag        int64
	buffer     collective.Buffer
	before     chan struct{}
	background *background
}

func (s *send) Wait(ctx context.Context) error {
	if s.background != nil {
		return s.background.wait(ctx)
	}
	return s.run(ctx)
}

func (s *send) Done() bool { return s.background != nil && isClosed(s.background.done) }

func (s *send) run(ctx context.Context) error {
	if s.before != nil { // messages to a rank keep their order
		if err := collective.Wait(ctx, s.before); err != nil {
			return err
		}
	}
	ring := s.box.comm.ring(s.box.comm.rank, s.to)
	h := header{tag: s.tag, bytes: uint64(len(s.buffer.Data)), dtype: s.buffer.DType}
	head, data := unsafe.Slice((*byte)(unsafe.Pointer(&h)), headerBytes), s.buffer.Data
	return s.box.await(ctx, func() bool {
		moved := 0
		if len(head) > 0 {
			moved = ring.write(head)
			head = head[moved:]
		}
		if len(head) == 0 {
			n := ring.write(data)
			data = data[n:]
			moved += n
		}
		if moved > 0 {
			s.box.doorbell(s.to).Open()
		}
		return len(head) == 0 && len(data) == 0
	})
}

// receive is a message that is waited for.
type receive struct {
	box        *mailbox
	source     int // AnySource until it is known
	tag        int64
	buffer     collective.Buffer
	complete   bool
	err        error
	background *background
}

func (r *receive) Wait(ctx context.Context) error {
	if r.background != nil {
		return r.background.wait(ctx)
	}
	return r.run(ctx)
}

func (r *receive) Done() bool {
	if r.background != nil {
		return isClosed(r.background.done)
	}
	return false
}

// Source is where the message came from, once it has come.
func (r *receive) Source() int { return r.source }

func (r *receive) run(ctx context.Context) error {
	if err := r.box.await(ctx, func() bool { return r.complete }); err != nil {
		return err
	}
	return r.err
}

func (r *receive) matches(source int, tag int64) bool {
	return tag == r.tag && (r.source == source || r.source == collective.AnySource)
}

// take claims a message for the receive, and reports whether its data can go
// straight into the buffer.
func (r *receive) take(source int, h header) bool {
	r.source = source
	if int(h.bytes) != len(r.buffer.Data) || h.dtype != r.buffer.DType {
		r.err = &collective.CallError{Kind: collective.Recv, Problem: fmt.Sprintf(
			"the message from rank %d with tag %d holds %d bytes of %v, but the buffer takes %d bytes of %v",
			source, h.tag, h.bytes, h.dtype, len(r.buffer.Data), r.buffer.DType)}
		return false
	}
	return true
}
