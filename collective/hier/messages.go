package hier

import (
	"context"
	"maps"
	"slices"
	"unsafe"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/progress"
	"drun/internal/try"
	"drun/kernel/dtype"
)

// A packet is a message between two ranks of the world, or its head: what does not fit follows as a separate message.
// Between nodes it goes over the link of the sender, or of a neighbour, to the rank with that link on the other node,
// which forwards it. In each process one goroutine receives from the node and one from the link.
type packet struct {
	kind, dtype uint8
	inner       bool // of the group's collectives, not of its messages
	_           uint8
	group       uint32
	from, to    int32 // from: as the group's messages count; to: a rank of the world
	tag         int64
	bytes       uint64
	data        [inlineBytes]byte
}

const (
	inlineBytes = 192

	message    = 1 // kinds of packets
	groupAbort = 2

	packetTag = 1 // tags between two processes
	bodyTag   = 2
	laneTags  = 256 // and up: see lane
)

func (p *packet) raw() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

func octets(data []byte) collective.Buffer {
	return collective.Buffer{DType: dtype.Uint8, Data: data}
}

// hop is where a packet goes next.
type hop struct {
	far  bool
	peer int
}

func (w *world) hop(to int) hop {
	switch {
	case w.node[to] == w.node[w.rank]:
		return hop{false, w.position[to]}
	case w.far == nil:
		return hop{false, w.position[w.rank] % w.links}
	}
	return hop{true, w.node[to]}
}

// post sends a packet with its data, which is in use until it is sent. The packets of a hop keep their order.
func (w *world) post(p packet, data []byte) *progress.Background {
	h := w.hop(int(p.to))
	p.bytes = uint64(len(data))
	w.mail.Lock()
	defer w.mail.Unlock()
	if w.boxes == nil {
		return progress.Failed(collective.ErrClosed)
	}
	out := progress.Go(&w.busy, 0, w.outgoing[h], func(context.Context) error { return w.put(h, &p, data) })
	w.outgoing[h] = out
	return out
}

func (w *world) put(h hop, p *packet, data []byte) error {
	if len(data) <= inlineBytes {
		copy(p.data[:], data)
		data = nil
	}
	err := w.give(h, packetTag, p.raw())
	if err == nil && data != nil {
		err = w.give(h, bodyTag, data)
	}
	return err
}

// give sends a message to the process at the other end of a hop.
func (w *world) give(h hop, tag int, data []byte) error {
	call := collective.NewSend(octets(data), h.peer, tag)
	call.Async = h.far // so that it does not hold up others
	work, err := w.startOn(h, &call)
	if err != nil {
		return err
	}
	return work.Wait(w.ctx)
}

func (w *world) startOn(h hop, call *collective.Call) (collective.Work, error) {
	if h.far {
		return w.startFar(call)
	}
	w.nearMu.Lock()
	defer w.nearMu.Unlock()
	return w.near.Start(call)
}

// pumps starts the goroutines that take packets.
func (w *world) pumps() {
	if w.near.Size() > 1 {
		w.busy.Go(func() { w.pump(false) })
	}
	if w.far != nil {
		w.busy.Go(func() { w.pump(true) })
	}
}

// pump takes packets until the world ends. It is the first to notice when another rank ends it.
func (w *world) pump(far bool) {
	for {
		var p packet
		from, err := w.take(hop{far, collective.AnySource}, packetTag, p.raw())
		if err == nil {
			err = w.handle(&p, hop{far, from})
		}
		if err != nil {
			if w.ctx.Err() == nil {
				w.fail(err)
			}
			return
		}
	}
}

// take receives a message from the process at the other end of a hop. Only the pumps do.
func (w *world) take(h hop, tag int, data []byte) (from int, err error) {
	defer try.Caught(&err)
	call := collective.NewRecv(octets(data), h.peer, tag)
	work := try.To(w.startOn(h, &call))
	try.Ok(work.Wait(w.ctx))
	if f, ok := work.(*farWork); ok {
		work = f.Work
	}
	return work.(collective.Receipt).Source(), nil
}

// handle forwards a packet, or gives it to this rank's receive.
func (w *world) handle(p *packet, from hop) error {
	body := func(into []byte) error {
		if p.bytes <= inlineBytes {
			copy(into, p.data[:p.bytes])
			return nil
		}
		_, err := w.take(from, bodyTag, into)
		return err
	}
	if int(p.to) != w.rank {
		data := make([]byte, p.bytes)
		if err := body(data); err != nil {
			return err
		}
		w.post(*p, data)
		return nil
	}
	w.mail.Lock()
	b := w.box(boxKey{p.group, p.inner})
	if p.kind == groupAbort {
		b.aborted = true
		c := b.comm
		w.mail.Unlock()
		if c != nil {
			c.abortedByAnother()
		}
		return nil
	}
	if b.closed {
		w.mail.Unlock()
		return body(make([]byte, p.bytes))
	}
	m := b.queue.Arrive(int(p.from), messages.Header{Tag: p.tag, Bytes: p.bytes, DType: dtype.Type(p.dtype)})
	w.mail.Unlock()
	err := body(m.Data)
	w.mail.Lock()
	defer w.mail.Unlock()
	b.queue.Finish(m, err)
	return err
}

// box holds a group's messages that wait for receives, and its receives that wait for messages.
type box struct {
	queue   messages.Queue
	comm    *Comm // nil: this rank has not made the group yet
	aborted bool
	closed  bool // what comes is dropped
}

type boxKey struct {
	group uint32
	inner bool
}

// box returns the box of a group, even before this rank has made the group. The caller holds mail.
func (w *world) box(key boxKey) *box {
	b := w.boxes[key]
	if b == nil {
		b = &box{}
		if w.boxes == nil {
			b.closed = true
			return b
		}
		w.boxes[key] = b
	}
	return b
}

func (w *world) join(id uint32, c *Comm) *box {
	w.mail.Lock()
	b := w.box(boxKey{id, false})
	b.comm = c
	aborted := b.aborted
	w.mail.Unlock()
	if aborted {
		c.abortedByAnother()
	}
	return b
}

// leave closes the boxes of a group, whose number is not reused.
func (w *world) leave(id uint32) {
	w.mail.Lock()
	defer w.mail.Unlock()
	if w.boxes == nil {
		return
	}
	for _, inner := range []bool{false, true} {
		w.boxes[boxKey{id, inner}] = &box{closed: true}
	}
}

func (w *world) tellAbort(c *Comm) {
	for rank, r := range c.ranks {
		if rank != c.rank {
			w.post(packet{kind: groupAbort, group: c.id, to: int32(r)}, nil)
		}
	}
}

func (c *Comm) abortedByAnother() {
	c.end.Fail(errAborted)
	c.near.Abort(errAborted)
}

// flush waits until all posted packets are sent.
func (w *world) flush() {
	w.mail.Lock()
	all := slices.Collect(maps.Values(w.outgoing))
	w.mail.Unlock()
	progress.Flush(all, w.end.Ended)
}

// message starts a send or a receive.
func (c *Comm) message(call *collective.Call) (collective.Work, error) {
	if call.Kind == collective.Recv {
		r := c.w.expect(c.box, call, c.failed)
		if call.Async {
			r.Background = progress.Go(&c.wg, call.Limit, nil, r.run)
		}
		return r, nil
	}
	s := &send{failed: c.failed}
	s.out = c.w.post(packet{kind: message, group: c.id, from: int32(c.rank), to: int32(c.ranks[call.Peer]), tag: int64(call.Tag), dtype: uint8(call.Send.DType)}, call.Send.Data)
	if call.Async {
		s.Background = progress.Go(&c.wg, call.Limit, nil, s.run)
	}
	return s, nil
}

// send is a message of the recipe being sent.
type send struct {
	*progress.Background
	out    *progress.Background
	failed func() error
}

func (s *send) Wait(ctx context.Context) error { return s.WaitOr(ctx, s.run) }
func (s *send) Done() bool                     { return s.Background.Done() || s.Background == nil && s.out.Done() }
func (s *send) run(ctx context.Context) error  { return s.out.Wait(collective.Also(ctx, s.failed)) }

// receive is a message that the recipe waits for.
type receive struct {
	messages.Receive
	failed func() error
}

// expect adds a receive to a box: it takes the first message that fits, arrived or not.
func (w *world) expect(b *box, call *collective.Call, failed func() error) *receive {
	r := &receive{messages.NewReceive(call), failed}
	r.Came = make(chan struct{})
	w.mail.Lock()
	defer w.mail.Unlock()
	b.queue.Post(&r.Receive)
	return r
}

func (r *receive) Wait(ctx context.Context) error { return r.WaitOr(ctx, r.run) }

func (r *receive) run(ctx context.Context) error {
	if err := collective.Wait(collective.Also(ctx, r.failed), r.Came); err != nil {
		return err
	}
	return r.Err
}
