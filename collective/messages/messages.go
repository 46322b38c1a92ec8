// Package messages pairs messages with the receives that ask for them, by source
// and tag. The mailboxes of collective/shm and of the plugins' engines use it; how
// the bytes move is theirs.
package messages

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"drun/collective"
	"drun/element"
)

// Header is what a receive must know of a message.
type Header struct {
	Tag   int64
	Bytes uint64
	DType element.Type
}

// Receive is what is asked for, and what came.
type Receive struct {
	Asked  int // the source, or AnySource
	From   int // where the message came from, once it is known
	Tag    int64
	Buffer collective.Buffer
	Err    error // the message does not fit, or did not come
}

// NewReceive is what a call asks for.
func NewReceive(call *collective.Call) Receive {
	return Receive{Asked: call.Peer, From: call.Peer, Tag: int64(call.Tag), Buffer: call.Recv}
}

// Request gives the part of a mailbox's receive that this package handles.
func (r *Receive) Request() *Receive { return r }

// Source is where the message came from, once it has come.
func (r *Receive) Source() int { return r.From }

// Take copies a complete message's data into the buffer, if it fits.
func (r *Receive) Take(data []byte) {
	if r.Err == nil {
		copy(r.Buffer.Data, data)
	}
}

func (r *Receive) matches(source int, tag int64) bool {
	return tag == r.Tag && (r.Asked == source || r.Asked == collective.AnySource)
}

// claim gives a message to the receive, and reports whether it fits the buffer.
func (r *Receive) claim(source int, h Header) bool {
	r.From = source
	if int(h.Bytes) == len(r.Buffer.Data) && h.DType == r.Buffer.DType {
		return true
	}
	r.Err = &collective.CallError{Kind: collective.Recv, Problem: fmt.Sprintf(
		"the message from rank %d with tag %d holds %d bytes of %v, but the buffer takes %d bytes of %v",
		source, h.Tag, h.Bytes, h.DType, len(r.Buffer.Data), r.Buffer.DType)}
	return false
}

// Message is one that has come, or is coming, without a buffer to go to.
type Message[R Requester] struct {
	Header
	Source   int
	Data     []byte
	Complete bool
	Err      error
	Taker    R // the receive that asked for it meanwhile; the zero value if none has
}

// A Requester is a mailbox's receive, which embeds [Receive].
type Requester interface {
	comparable
	Request() *Receive
}

// Queue holds the receives without a message and the messages without a receive.
// Its user locks it.
type Queue[R Requester] struct {
	posted  []R           // in the order they were started
	arrived []*Message[R] // in order of arrival
}

// Post gives r the first message that it matches, which may still be coming. If
// there is none, r waits, and Post returns nil.
func (q *Queue[R]) Post(r R) *Message[R] {
	for i, m := range q.arrived {
		if r.Request().matches(m.Source, m.Tag) {
			q.arrived = slices.Delete(q.arrived, i, i+1)
			r.Request().claim(m.Source, m.Header)
			m.Taker = r
			return m
		}
	}
	q.posted = append(q.posted, r)
	return nil
}

// Arrive decides where a message that begins goes: into the buffer of the receive
// that has waited longest for such a message, or into memory of its own, as the
// Message that Arrive returns then.
func (q *Queue[R]) Arrive(source int, h Header) (direct R, aside *Message[R]) {
	aside = &Message[R]{Header: h, Source: source}
	for i, r := range q.posted {
		if r.Request().matches(source, h.Tag) {
			q.posted = slices.Delete(q.posted, i, i+1)
			if r.Request().claim(source, h) {
				return r, nil
			}
			aside.Taker = r
			return direct, aside
		}
	}
	q.arrived = append(q.arrived, aside)
	return direct, aside
}

// Waits reports whether no message has come for r.
func (q *Queue[R]) Waits(r R) bool { return slices.Contains(q.posted, r) }

// Forget takes back a receive that nobody waits for any more.
func (q *Queue[R]) Forget(r R) {
	if i := slices.Index(q.posted, r); i >= 0 {
		q.posted = slices.Delete(q.posted, i, i+1)
	}
}

// Background is an asynchronous call; a synchronous one, which its Wait carries out,
// has none: nil.
type Background struct {
	done chan struct{}
	err  error
}

// Go runs a call within its limit; wg counts it.
func Go(wg *sync.WaitGroup, call *collective.Call, run func(context.Context) error) *Background {
	b := &Background{done: make(chan struct{})}
	ctx := context.Background()
	if call.Limit > 0 {
		ctx = collective.Within(ctx, call.Limit)
	}
	wg.Go(func() {
		b.err = run(ctx)
		close(b.done)
	})
	return b
}

// Ended is closed when the call is over.
func (b *Background) Ended() chan struct{} { return b.done }

// Done reports that an asynchronous call is over.
func (b *Background) Done() bool { return b != nil && collective.IsClosed(b.done) }

// WaitOr waits for the call's end, and gives its error; a synchronous call is run.
func (b *Background) WaitOr(ctx context.Context, run func(context.Context) error) error {
	if b == nil {
		return run(ctx)
	}
	if err := collective.Wait(ctx, b.done); err != nil {
		return err
	}
	return b.err
}
