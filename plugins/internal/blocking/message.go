package blocking

import (
	"context"
	"time"

	"drun/collective"
	"drun/collective/messages"
)

// send is a message on its way out.
type send struct {
	*messages.Background
	comm *Comm
	done chan struct{}
	err  error
}

func (s *send) Wait(ctx context.Context) error { return s.WaitOr(ctx, s.run) }

func (s *send) Done() bool {
	return s.Background.Done() || s.Background == nil && collective.IsClosed(s.done)
}

func (s *send) run(ctx context.Context) error {
	if err := s.comm.waitFor(ctx, s.done, nil); err != nil {
		return err
	}
	return s.err
}

// lastMessage is how long the last message of a rank that has left may be on its
// way through this process.
const lastMessage = 100 * time.Millisecond

// receive is a message that is waited for.
type receive struct {
	messages.Receive
	*messages.Background
	box      *mailbox
	complete chan struct{}
}

func (r *receive) Wait(ctx context.Context) error { return r.WaitOr(ctx, r.run) }

func (r *receive) Done() bool {
	return r.Background.Done() || r.Background == nil && collective.IsClosed(r.complete)
}

func (r *receive) run(ctx context.Context) error {
	if collective.IsClosed(r.complete) {
		return r.Err
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
	if err := r.box.comm.waitFor(ctx, r.complete, check); err != nil {
		r.box.forget(r)
		return err
	}
	return r.Err
}

// deliver hands over a message that has come completely.
func (r *receive) deliver(msg *messages.Message[*receive]) {
	if msg.Err == nil {
		r.Take(msg.Data)
	}
	r.finish(msg.Err)
}

func (r *receive) finish(err error) {
	if r.Err == nil {
		r.Err = r.box.comm.wrap(err)
	}
	close(r.complete)
}
