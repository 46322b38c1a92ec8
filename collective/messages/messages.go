// Package messages matches messages with receives, by source and tag. The mailboxes of collective/shm and of the
// plugins' engines use it; they move the bytes themselves.
package messages

import (
	"fmt"
	"slices"

	"drun/collective"
	"drun/collective/progress"
	"drun/kernel/dtype"
)

// Header is what a receive must know about a message.
type Header struct {
	Tag   int64
	Bytes uint64
	DType dtype.Type
}

// Receive is a call that asks for a message, and what arrived. A mailbox's receive embeds it.
type Receive struct {
	*progress.Background     // of an asynchronous call
	Asked                int // the source, or AnySource
	From                 int // where the message came from, once it is known
	Tag                  int64
	Buffer               collective.Buffer
	Err                  error         // the message does not fit, or did not come
	Over                 bool          // the message has come, or Err says why it has not
	Came                 chan struct{} // closed then; nil where nobody waits for that
}

// NewReceive makes the Receive of a call.
func NewReceive(call *collective.Call) Receive {
	return Receive{Asked: call.Peer, From: call.Peer, Tag: int64(call.Tag), Buffer: call.Recv}
}

// Source is where the message came from, once it has arrived.
func (r *Receive) Source() int { return r.From }

func (r *Receive) Done() bool {
	return r.Background.Done() || r.Background == nil && collective.IsClosed(r.Came)
}

func (r *Receive) matches(source int, tag int64) bool {
	return tag == r.Tag && (r.Asked == source || r.Asked == collective.AnySource)
}

// claim gives a message to the receive, and reports whether it fits the buffer.
func (r *Receive) claim(m *Message) bool {
	r.From, m.receive = m.Source, r
	if int(m.Bytes) == len(r.Buffer.Data) && m.DType == r.Buffer.DType {
		return true
	}
	r.Err = &collective.CallError{Kind: collective.Recv, Problem: fmt.Sprintf(
		"the message from rank %d with tag %d holds %d bytes of %v, but the buffer takes %d bytes of %v",
		m.Source, m.Tag, m.Bytes, m.DType, len(r.Buffer.Data), r.Buffer.DType)}
	return false
}

func (r *Receive) finish(err error) {
	if r.Err == nil {
		r.Err = err
	}
	r.Over = true
	if r.Came != nil {
		close(r.Came)
	}
}

// Message has arrived, or is arriving.
type Message struct {
	Header
	Source int
	Data   []byte // where its bytes go: the buffer of a receive, or memory of its own

	aside   bool     // it has memory of its own
	receive *Receive // that asked for it
	over    bool
	err     error
}

// hand gives the receive the data that arrived in separate memory.
func (m *Message) hand() {
	if m.aside && m.err == nil && m.receive.Err == nil {
		copy(m.receive.Buffer.Data, m.Data)
	}
	m.receive.finish(m.err)
}

// Queue holds the receives without a message and the messages without a receive. Its users do the locking.
type Queue struct {
	posted  []*Receive // in the order they were started
	arrived []*Message // in order of arrival
}

// Post gives r the first message that it matches, which may still be arriving. If there is none, r waits.
func (q *Queue) Post(r *Receive) {
	for i, m := range q.arrived {
		if r.matches(m.Source, m.Tag) {
			q.arrived = slices.Delete(q.arrived, i, i+1)
			r.claim(m)
			if m.over {
				m.hand()
			}
			return
		}
	}
	q.posted = append(q.posted, r)
}

// Arrive decides where a message that begins goes: into the buffer of the receive that has waited longest for such a
// message, or into memory of its own. When its Data is there, or cannot come, Finish must follow.
func (q *Queue) Arrive(source int, h Header) *Message {
	m := &Message{Header: h, Source: source}
	for i, r := range q.posted {
		if r.matches(source, h.Tag) {
			q.posted = slices.Delete(q.posted, i, i+1)
			if r.claim(m) {
				m.Data = r.Buffer.Data
				return m
			}
			break
		}
	}
	if m.receive == nil {
		q.arrived = append(q.arrived, m)
	}
	m.aside, m.Data = true, make([]byte, h.Bytes)
	return m
}

// Finish says that a message has arrived, or why it has not.
func (q *Queue) Finish(m *Message, err error) {
	m.over, m.err = true, err
	if m.receive != nil {
		m.hand()
	}
}

func (q *Queue) Waits(r *Receive) bool { return slices.Contains(q.posted, r) }

// Forget removes a receive that nobody waits for any more.
func (q *Queue) Forget(r *Receive) {
	if i := slices.Index(q.posted, r); i >= 0 {
		q.posted = slices.Delete(q.posted, i, i+1)
	}
}
