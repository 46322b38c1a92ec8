package hier

import (
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
)

// The kinds of messages between nodes in a group's collectives, each with its own tag.
const (
	agreement = iota
	upwards   // partial sums
	downwards // results
	parts     // of data that is only moved
	laneKinds
)

// laneSend starts sending data to a rank of the group on another node. Once all ranks have agreed on the call, each
// knows what the others send.
func (r *run) laneSend(to, kind int, data []byte) (collective.Work, error) {
	w, peer := r.w, r.ranks[to]
	if w.linked(w.rank, peer) {
		call := collective.NewSend(octets(data), w.node[peer], r.laneTag(kind))
		call.Async, call.Paired = true, kind != agreement
		return w.startFar(&call)
	}
	return w.post(packet{kind: message, inner: true, group: r.id, from: int32(r.rank), to: int32(peer), tag: int64(kind), dtype: uint8(dtype.Uint8)}, data), nil
}

// laneRecv starts receiving data from a rank of the group on another node. Messages are matched in the order of the
// calls.
func (r *run) laneRecv(from, kind int, data []byte) (collective.Work, error) {
	w, peer := r.w, r.ranks[from]
	if w.linked(w.rank, peer) {
		call := collective.NewRecv(octets(data), w.node[peer], r.laneTag(kind))
		call.Async, call.Paired = true, kind != agreement
		return w.startFar(&call)
	}
	w.mail.Lock()
	b := w.box(boxKey{r.id, true})
	w.mail.Unlock()
	call := collective.NewRecv(octets(data), from, kind)
	return w.expect(b, &call, r.failed), nil
}

func (r *run) laneTag(kind int) int { return laneTags + int(r.id)*laneKinds + kind }

// flight is a message being sent, and its memory.
type flight struct {
	data []byte
	work collective.Work
}

// ahead is how many messages of a kind may be under way from a rank to another at a time.
const ahead = 4

// inbox receives the messages of a kind from a rank. It posts receives before the messages are needed, since an
// unexpected message costs a copy.
type inbox struct {
	*run
	from, kind int
	size       func(chunk int) int // bytes of a chunk's message; 0: there is none
	next, end  int                 // chunks to expect
	free       [][]byte
	expected   []flight
}

// expecting makes an inbox for the chunks before end, window of them at a time, of at most most bytes each.
func (r *run) expecting(from, kind, end, window, most int, size func(chunk int) int) (*inbox, error) {
	b := &inbox{run: r, from: from, kind: kind, size: size, end: end}
	for range min(window, end) {
		b.free = append(b.free, r.memory(most))
	}
	return b, b.expect()
}

func (b *inbox) expect() error {
	for ; b.next < b.end && len(b.free) > 0; b.next++ {
		n := b.size(b.next)
		if n == 0 {
			continue
		}
		last := len(b.free) - 1
		data := b.free[last][:n]
		b.free = b.free[:last]
		work, err := b.laneRecv(b.from, b.kind, data)
		if err != nil {
			return err
		}
		b.expected = append(b.expected, flight{data, work})
	}
	return nil
}

// take waits for the next message. Its memory is returned with give.
func (b *inbox) take() ([]byte, error) {
	f := b.expected[0]
	b.expected = b.expected[1:]
	return f.data, f.work.Wait(b.ctx)
}

func (b *inbox) give(data []byte) error {
	b.free = append(b.free, data[:cap(data)])
	return b.expect()
}

// outbox sends messages, and tracks when their memory can be reused.
type outbox struct {
	*run
	underway []flight
}

func (o *outbox) send(to, kind int, data []byte) error {
	work, err := o.laneSend(to, kind, data)
	o.underway = append(o.underway, flight{data, work})
	return err
}

// settle waits until at most left messages are in flight, and calls out for each that was sent.
func (o *outbox) settle(left int, out func(data []byte) error) (err error) {
	defer try.Caught(&err)
	for len(o.underway) > left {
		f := o.underway[0]
		o.underway = o.underway[1:]
		try.Ok(f.work.Wait(o.ctx))
		if out != nil {
			try.Ok(out(f.data))
		}
	}
	return nil
}

func (o *outbox) holds(data []byte) bool {
	return slices.ContainsFunc(o.underway, func(f flight) bool { return &f.data[0] == &data[0] })
}

func holds(all [][]byte, data []byte) bool {
	return slices.ContainsFunc(all, func(other []byte) bool { return &other[0] == &data[0] })
}

// memory returns memory, valid until the call ends, from which the link can send without a copy if it supports that.
// If the call fails the memory may still be in use, so it is not reused.
func (r *run) memory(bytes int) []byte {
	class := max(12, bits.Len(uint(max(bytes, 1)-1)))
	data := r.w.pool.get(class)
	if data == nil {
		data = r.w.fresh(1 << class)
	}
	r.borrowed = append(r.borrowed, data)
	return data[:bytes:cap(data)]
}

func (w *world) fresh(bytes int) []byte {
	if arena, ok := w.far.(collective.Arena); ok {
		if b, err := arena.Alloc(dtype.Uint8, bytes); err == nil {
			return b.Data
		}
	}
	words := make([]uint64, bytes/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), bytes)
}

// pool keeps free memory by the logarithm of its size.
type pool struct {
	mu   sync.Mutex
	free [64][][]byte
}

func (p *pool) get(class int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.free[class]
	if len(list) == 0 {
		return nil
	}
	p.free[class] = list[:len(list)-1]
	return list[len(list)-1]
}

func (p *pool) put(all [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, data := range all {
		class := bits.Len(uint(len(data) - 1))
		p.free[class] = append(p.free[class], data)
	}
}
