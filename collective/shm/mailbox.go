package shm

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/progress"
	"drun/collective/sharedmem"
)

// mailbox is a rank's point-to-point side. A rank that waits, to send or to receive, moves arriving messages out of the
// rings: into the receive that they match, or into memory of their own. So two ranks that both send before receiving do
// not block each other.
type mailbox struct {
	comm *Comm

	mu       sync.Mutex
	incoming []incoming // by source: the message that is arriving
	queue    messages.Queue

	sends []*progress.Background // by destination: the latest asynchronous one
}

// incoming is a message that is arriving, and what is still to come.
type incoming struct {
	message *messages.Message
	rest    []byte
}

func (m *mailbox) init(c *Comm) {
	m.comm = c
	m.incoming = make([]incoming, c.size)
	m.sends = make([]*progress.Background, c.size)
}

// core is the core that a rank has noted, plus 1.
func (c *Comm) core(rank int) *atomic.Uint32 {
	return sharedmem.At[atomic.Uint32](c.mem, c.layout.doorbells+rank*sharedmem.CacheLine+coreAt)
}

func (m *mailbox) doorbell(rank int) *sharedmem.Gate {
	return sharedmem.At[sharedmem.Gate](m.comm.mem, m.comm.layout.doorbells+rank*sharedmem.CacheLine)
}

// wakeAll wakes every rank's waits so that they see the abort.
func (m *mailbox) wakeAll() {
	for i := range m.comm.size {
		m.doorbell(i).Open()
	}
}

func (m *mailbox) start(call *collective.Call) (collective.Work, error) {
	if call.Kind == collective.Recv {
		r := &receive{Receive: messages.NewReceive(call), box: m}
		m.mu.Lock()
		m.queue.Post(&r.Receive)
		m.mu.Unlock()
		if call.Async {
			r.Background = progress.Go(&m.comm.wg, call.Limit, nil, r.run)
		}
		return r, nil
	}
	s := &send{box: m, to: call.Peer, before: m.sends[call.Peer], buffer: call.Send, tag: int64(call.Tag)}
	if call.Async {
		s.Background = progress.Go(&m.comm.wg, call.Limit, nil, s.run)
		m.sends[call.Peer] = s.Background
	}
	return s, nil
}

// pumpUntil pumps until done returns true. done is called with the mailbox locked.
func (m *mailbox) pumpUntil(ctx context.Context, done func() bool) error {
	var failed error
	pumped := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pump()
		return done()
	}
	ready := func() bool {
		if pumped() {
			return true
		}
		failed = m.comm.failed()
		return failed != nil
	}
	end := func(err error) error {
		if err != nil && pumped() { // it came before its sender failed, but after this rank had looked for it
			return nil
		}
		return err
	}
	for range 1 + m.comm.spin/10 {
		if ready() {
			return end(failed)
		}
		sharedmem.Pause()
	}
	if err := m.doorbell(m.comm.rank).Wait(ctx, ready); err != nil {
		return end(err)
	}
	return end(failed)
}

// TakeMessages moves what has arrived into memory of this rank.
func (c *Comm) TakeMessages() bool {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	return c.mailbox.pump()
}

// pump moves what has arrived out of the rings. The mailbox is locked.
func (m *mailbox) pump() (moved bool) {
	for source := range m.incoming {
		if source != m.comm.rank && m.pumpFrom(source) {
			m.doorbell(source).Open() // there is space again
			moved = true
		}
	}
	return moved
}

// pumpFrom empties the ring from a rank, and reports whether anything came.
func (m *mailbox) pumpFrom(source int) bool {
	ring, in, moved := m.comm.ring(source, m.comm.rank), &m.incoming[source], false
	for {
		if in.message == nil {
			if ring.available() < headerBytes {
				return moved
			}
			var h messages.Header
			ring.fetch(unsafe.Slice((*byte)(unsafe.Pointer(&h)), headerBytes))
			moved = true
			in.message = m.queue.Arrive(source, h)
			in.rest = in.message.Data
		}
		if len(in.rest) > 0 {
			n := ring.fetch(in.rest)
			if n == 0 {
				return moved
			}
			moved = true
			in.rest = in.rest[n:]
		}
		if len(in.rest) == 0 {
			m.queue.Finish(in.message, nil)
			*in = incoming{}
		}
	}
}

// send is a message being sent.
type send struct {
	*progress.Background
	box    *mailbox
	to     int
	tag    int64
	buffer collective.Buffer
	before *progress.Background
}

func (s *send) Wait(ctx context.Context) error { return s.WaitOr(ctx, s.run) }

func (s *send) run(ctx context.Context) error {
	if err := s.before.Join(ctx); err != nil { // messages to a rank keep their order
		return err
	}
	ring := s.box.comm.ring(s.box.comm.rank, s.to)
	h := messages.Header{Tag: s.tag, Bytes: uint64(len(s.buffer.Data)), DType: s.buffer.DType}
	head, data := unsafe.Slice((*byte)(unsafe.Pointer(&h)), headerBytes), s.buffer.Data
	return s.box.pumpUntil(ctx, func() bool {
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

// receive is a message that a call waits for.
type receive struct {
	messages.Receive
	box *mailbox
}

func (r *receive) Wait(ctx context.Context) error { return r.WaitOr(ctx, r.run) }

func (r *receive) run(ctx context.Context) error {
	if err := r.box.pumpUntil(ctx, func() bool { return r.Over }); err != nil {
		return err
	}
	return r.Err
}

// A ring carries the messages from one rank to another: a header, then the data, rounded up to whole words, as space
// allows. One goroutine at a time writes, one reads.
type ring struct {
	*ringControl
	data []byte
}

type ringControl struct {
	written atomic.Uint64 // bytes, ever
	_       [sharedmem.CacheLine - 8]byte
	read    atomic.Uint64
	_       [sharedmem.CacheLine - 8]byte
}

// ring is that of the messages from one rank to another. The counts of all rings to a rank lie side by side: a rank that looks
// for messages touches few pages, where each ring's own would be a new one.
func (c *Comm) ring(from, to int) ring {
	counts, data := c.layout.ringCounts+(to*c.size+from)*countsSize, c.layout.rings+(from*c.size+to)*ringSize
	return ring{sharedmem.At[ringControl](c.mem, counts), c.mem[data : data+ringSize]}
}

// headerBytes is the size of a header in a ring: whole words.
const headerBytes = int(unsafe.Sizeof(messages.Header{}))

func wordRound(n int) int { return (n + 7) &^ 7 }

// write writes as much of data as fits, and returns how much that was.
func (r ring) write(data []byte) int {
	written := r.written.Load()
	space := ringSize - int(written-r.read.Load())
	n := min(space, wordRound(len(data)))
	if n == 0 {
		return 0
	}
	at := int(written % ringSize)
	part := data[:min(n, len(data))]
	if k := copy(r.data[at:], part); k < len(part) {
		copy(r.data, part[k:])
	}
	r.written.Add(uint64(n))
	return min(n, len(data))
}

func (r ring) available() int { return int(r.written.Load() - r.read.Load()) }

// fetch reads what there is into data, and returns how much that was.
func (r ring) fetch(data []byte) int {
	n := min(r.available(), wordRound(len(data)))
	if n == 0 {
		return 0
	}
	at := int(r.read.Load() % ringSize)
	part := data[:min(n, len(data))]
	if k := copy(part, r.data[at:]); k < len(part) {
		copy(part[k:], r.data)
	}
	r.read.Add(uint64(n))
	return min(n, len(data))
}
