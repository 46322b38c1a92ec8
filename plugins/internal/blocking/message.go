package blocking

import (
	"context"
	"fmt"
	"time"

	"drun/collective"
)

// send is a message on its way out.
type send struct {
	comm       *Comm
	done       chan struct{}
	err        error
	background *background
}

func (s *send) Wait(ctx context.Context) error {
	if s.background != nil {
		return s.background.wait(ctx)
	}
	return s.run(ctx)
}

func (s *send) Done() bool {
	if s.background != nil {
		return isClosed(s.background.done)
	}
	return isClosed(s.done)
}

func (s *send) run(ctx context.Context) error {
	if err := s.comm.await(ctx, s.done, nil); err != nil {
		return err
	}
	return s.err
}

// lastMessage is how long the last message of a rank that has left may be on its
// way through this process.
const lastMessage = 100 * time.Millisecond

// receive is a message that is waited for.
type receive struct {
	box        *mailbox
	asked      int // the source, or AnySource
	source     int // where it came from
	tag        int64
	buffer     collective.Buffer
	complete   chan struct{}
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
	return isClosed(r.complete)
}

// Source is where the message came from, once it has come.
func (r *receive) Source() int { return r.source }

func (r *receive) run(ctx context.Context) error {
	if isClosed(r.complete) {
		return r.err
	}
	var noticed time.Time
	check := func() error {
		broken, err := r.box.lost(r)
		if err == nil {
			noticed = time.Time{}
			return nil
		}
		if noticed.IsZero() {
			noticed = time.Now()
		}
		if time.Since(noticed) < lastMessage {
			return nil // it may be on its way to the mailbox
		}
		if broken {
			r.box.comm.expire(err)
		}
		return err
	}
	if err := r.box.comm.await(ctx, r.complete, check); err != nil {
		r.box.forget(r)
		return err
	}
	return r.err
}

func (r *receive) matches(source int, tag int64) bool {
	return tag == r.tag && (r.asked == source || r.asked == collective.AnySource)
}

// claim gives the message to the receive, and reports whether its data can go
// straight into the buffer. The mailbox is locked.
func (r *receive) claim(source int, h Header) bool {
	r.source = source
	if int(h.Bytes) == len(r.buffer.Data) && h.DType == r.buffer.DType {
		return true
	}
	r.err = &collective.CallError{Kind: collective.Recv, Problem: fmt.Sprintf(
		"the message from rank %d with tag %d holds %d bytes of %v, but the buffer takes %d bytes of %v",
		source, h.Tag, h.Bytes, h.DType, len(r.buffer.Data), r.buffer.DType)}
	return false
}

// deliver hands over a message that has come completely.
func (r *receive) deliver(msg *message) {
	if r.err == nil && msg.err == nil {
		copy(r.buffer.Data, msg.data)
	}
	r.finish(msg.err)
}

func (r *receive) finish(err error) {
	if r.err == nil {
		r.err = r.box.comm.wrap(err)
	}
	close(r.complete)
}
