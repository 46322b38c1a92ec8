package launch

import (
	"context"
	"errors"
	"fmt"

	"drun/engine"
	"drun/engine/nodes"
	"drun/engine/rendezvous"
)

// How a member finds the head, and waits for the run to start.

// meet finds the head.
func (m *member) meet() (<-chan *nodes.ToMember, error) {
	j := m.o.Join
	ctx, stop := context.WithTimeout(context.Background(), m.o.Timeout)
	defer stop()
	type outcome struct {
		link *nodes.Link
		err  error
	}
	met := make(chan outcome, 1)
	go func() {
		conn, err := rendezvous.DialAgent(ctx, j.Address, j.Secret)
		if err != nil {
			met <- outcome{err: err}
			return
		}
		met <- outcome{link: nodes.NewLink(conn)}
	}()
	for m.link == nil {
		select {
		case o := <-met:
			if m.link = o.link; o.err != nil {
				return nil, m.unmet(o.err)
			}
		case sig, ok := <-m.o.Signals:
			if ok {
				return nil, interrupted(sig)
			}
			m.o.Signals = nil
		}
	}
	m.link.Trust()
	m.link.Send(&nodes.ToHead{Hello: hello(m.o, m.bundle)})
	inbox := make(chan *nodes.ToMember)
	go func() {
		defer close(inbox)
		for {
			msg := new(nodes.ToMember)
			if m.link.Receive(msg) != nil {
				return
			}
			inbox <- msg // it is read until it is closed
		}
	}()
	return inbox, nil
}

// SecretHint says how the processes of a run come to know one secret.
const SecretHint = "give all processes the same one: DRUN_RDZV_SECRET, --rdzv-secret-file FILE, or the same drun/secret in the user's configuration folder (~/.config); on a closed network --insecure does without"

func (m *member) unmet(err error) error {
	first := "node 0"
	if m.o.Join.Place != nil {
		first = "rank 0"
	}
	if refused := (*rendezvous.RefusedError)(nil); errors.As(err, &refused) {
		return &engine.Error{Code: engine.ExitUsage, Msg: refused.Error(), Hint: "is it " + first + " of the same run that listens there?"}
	}
	if errors.As(err, new(*rendezvous.SecretError)) {
		return &engine.Error{Code: engine.ExitUsage, Msg: err.Error(), Hint: SecretHint}
	}
	return &engine.Error{Code: engine.ExitTimeout, Msg: fmt.Sprintf("%s was not found at %s within %v: %v", first, m.o.Join.Address, m.o.Timeout, err),
		Hint: "it must have been started, and its port must be reachable from here"}
}

// await waits for the run to start.
func (m *member) await(inbox <-chan *nodes.ToMember) (*nodes.Start, error) {
	for {
		select {
		case msg, more := <-inbox:
			switch {
			case !more:
				return nil, engine.Errorf(engine.ExitRankLost, "the process at %s ended before the run began", m.o.Join.Address)
			case msg.Refused != nil:
				return nil, refused(msg.Refused)
			case msg.End != nil && msg.End.Failure != nil:
				return nil, refused(msg.End.Failure)
			case msg.Start != nil:
				return msg.Start, nil
			}
		case sig, ok := <-m.o.Signals:
			if ok {
				m.leave(inbox)
				return nil, interrupted(sig)
			}
			m.o.Signals = nil
		}
	}
}

// leave ends the link, and lets its reader go.
func (m *member) leave(inbox <-chan *nodes.ToMember) {
	go func() {
		for range inbox {
			continue
		}
	}()
	m.link.Close()
}

func refused(f *engine.Failure) error {
	return &engine.Error{Code: f.Code, Msg: f.Message, Hint: f.Hint}
}
