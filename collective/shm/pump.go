package shm

import (
	"unsafe"

	"drun/collective/messages"
)

// post adds a receive: it takes the first message that fits, arrived or not.
func (m *mailbox) post(r *receive) {
	if msg := m.queue.Post(r); msg != nil && msg.Complete {
		r.deliver(msg.Data)
	}
}

// deliver hands over a message that has come completely.
func (r *receive) deliver(data []byte) {
	r.Take(data)
	r.complete = true
}

// pump moves what has arrived out of the rings. The mailbox is locked.
func (m *mailbox) pump() {
	for source := range m.incoming {
		if source != m.comm.rank && m.pumpFrom(source) {
			m.doorbell(source).Open() // there is space again
		}
	}
}

// pumpFrom empties the ring from a rank, and reports whether anything came.
func (m *mailbox) pumpFrom(source int) bool {
	ring, in, moved := m.comm.ring(source, m.comm.rank), &m.incoming[source], false
	for {
		if !in.active {
			if ring.available() < headerBytes {
				return moved
			}
			var h messages.Header
			ring.fetch(unsafe.Slice((*byte)(unsafe.Pointer(&h)), headerBytes))
			moved = true
			m.open(in, source, h)
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
			m.finish(in)
		}
	}
}

// open decides where a message that begins will go.
func (m *mailbox) open(in *incoming, source int, h messages.Header) {
	in.active = true
	if in.receive, in.message = m.queue.Arrive(source, h); in.receive != nil {
		in.rest = in.receive.Buffer.Data
		return
	}
	in.message.Data = make([]byte, h.Bytes)
	in.rest = in.message.Data
}

// finish closes a message that has come completely.
func (m *mailbox) finish(in *incoming) {
	switch {
	case in.receive != nil:
		in.receive.complete = true
	case in.message.Taker != nil:
		in.message.Taker.deliver(in.message.Data)
	default:
		in.message.Complete = true
	}
	*in = incoming{}
}
