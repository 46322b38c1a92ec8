package shm

import "unsafe"

// post adds a receive: it takes the first message that fits, arrived or not.
func (m *mailbox) post(r *receive) {
	for i, msg := range m.arrived {
		if msg.taker != nil || !r.matches(msg.source, msg.tag) {
			continue
		}
		m.arrived = append(m.arrived[:i], m.arrived[i+1:]...)
		msg.taker = r
		r.take(msg.source, msg.header)
		if msg.complete {
			msg.deliver()
		}
		return
	}
	m.posted = append(m.posted, r)
}

// deliver hands a complete message to its taker.
func (msg *message) deliver() {
	if msg.taker.err == nil {
		copy(msg.taker.buffer.Data, msg.data)
	}
	msg.taker.complete = true
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
			var h header
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
func (m *mailbox) open(in *incoming, source int, h header) {
	in.active = true
	for i, r := range m.posted {
		if !r.matches(source, h.tag) {
			continue
		}
		m.posted = append(m.posted[:i], m.posted[i+1:]...)
		if r.take(source, h) {
			in.receive, in.rest = r, r.buffer.Data
			return
		}
		in.message = &message{header: h, source: source, data: make([]byte, h.bytes), taker: r}
		in.rest = in.message.data
		return
	}
	in.message = &message{header: h, source: source, data: make([]byte, h.bytes)}
	in.rest = in.message.data
	m.arrived = append(m.arrived, in.message)
}

// finish closes a message that has come completely.
func (m *mailbox) finish(in *incoming) {
	switch {
	case in.receive != nil:
		in.receive.complete = true
	case in.message.taker != nil:
		in.message.deliver()
	default:
		in.message.complete = true
	}
	*in = incoming{}
}
