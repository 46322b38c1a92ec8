package blocking

import (
	"context"
	"time"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/progress"
)

// send is a message being sent, or a paired message.
type send struct {
	*progress.Background
	comm  *Comm
	out   *progress.Background
	check func() error
}

func (s *send) Wait(ctx context.Context) error { return s.WaitOr(ctx, s.run) }

func (s *send) Done() bool {
	return s.Background.Done() || s.Background == nil && s.out.Done()
}

func (s *send) run(ctx context.Context) error {
	if err := s.comm.waitFor(ctx, s.out.Ended(), s.check); err != nil {
		return err
	}
	return s.out.Wait(ctx)
}

// lastMessage is how long the last message of a rank that has left may take through this process.
const lastMessage = 100 * time.Millisecond

// receive is a message that a call waits for.
type receive struct {
	messages.Receive
	box *mailbox
}

func (r *receive) Wait(ctx context.Context) error { return r.WaitOr(ctx, r.run) }

func (r *receive) run(ctx context.Context) error {
	if collective.IsClosed(r.Came) {
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
	if err := r.box.comm.waitFor(ctx, r.Came, check); err != nil {
		r.box.forget(r)
		return err
	}
	return r.Err
}
