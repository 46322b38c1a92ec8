package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"drun/engine/rendezvous"
	"drun/internal/exit"
)

// Joined is a node's place in a run that has started.
type Joined struct {
	Start *Start
	End   *End // the run is over; there is no Start
	Link  Link[ToNode, ToCoordinator]
	Inbox <-chan *ToNode // closed when the coordinator is gone
	// Address is this machine's address on its connection to the coordinator.
	Address string
}

// Join finds the coordinator and waits until it starts the run, or ctx ends. note reports a search that takes long.
func Join(ctx context.Context, j *Joining, own *Hello, timeout time.Duration, note func(text string)) (*Joined, error) {
	link, err := dial(ctx, j, j.wait(timeout), note)
	if err != nil {
		return nil, err
	}
	link.Trust()
	link.Send(&ToCoordinator{Hello: own})
	inbox := Inbox(link)
	start, end, err := awaitStart(ctx, j, inbox)
	if err != nil {
		go func() {
			for range inbox { // frees its reader
				continue
			}
		}()
		link.Close()
		return nil, err
	}
	if start != nil {
		j.Index = start.Index
	}
	return &Joined{start, end, link, inbox, addressOf(link.Local())}, nil
}

// Inbox receives a link's messages. It must be read until it is closed.
func Inbox[In, Out any](link Link[In, Out]) <-chan *In {
	inbox := make(chan *In)
	go func() {
		defer close(inbox)
		for {
			msg, err := link.Receive()
			if err != nil {
				return
			}
			inbox <- msg
		}
	}()
	return inbox
}

// dial connects to the coordinator, however late it starts listening.
func dial(ctx context.Context, j *Joining, timeout time.Duration, note func(text string)) (*Conn[ToNode, ToCoordinator], error) {
	within, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	long := time.AfterFunc(noteAfter, func() {
		note(fmt.Sprintf("drun: looking for %s at %s, for up to %v", j.first(), j.Address, timeout))
	})
	defer long.Stop()
	conn, err := rendezvous.Dial(within, j.Address, j.Secret)
	switch {
	case err == nil:
		return NewConn[ToNode, ToCoordinator](conn, j.pace()), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, notJoined(j, timeout, err)
}

// SecretHint says how to give the processes of a run the same secret.
const SecretHint = "give all processes the same one: DRUN_RDZV_SECRET, --rdzv-secret-file FILE, or the same drun/secret in the user's configuration folder (~/.config); on a closed network --insecure does without"

// first names the coordinator's process.
func (j *Joining) first() string {
	if j.Place != nil {
		return "rank 0"
	}
	return "node 0"
}

func notJoined(j *Joining, timeout time.Duration, err error) error {
	first := j.first()
	if refused := (*rendezvous.RefusedError)(nil); errors.As(err, &refused) {
		return exit.WithHint(exit.Errorf(exit.Usage, "%w", refused),
			"is it "+first+" of the same run that listens there?")
	}
	if errors.As(err, new(*rendezvous.SecretError)) {
		return exit.WithHint(exit.Errorf(exit.Usage, "%w", err),
			SecretHint)
	}
	return exit.WithHint(exit.Errorf(exit.Timeout, "%s was not found at %s within %v: %v", first, j.Address, timeout, err),
		"it must have been started, and its port must be reachable from here")
}

// awaitStart waits for the run to start.
func awaitStart(ctx context.Context, j *Joining, inbox <-chan *ToNode) (*Start, *End, error) {
	for {
		select {
		case msg, more := <-inbox:
			switch {
			case !more:
				return nil, nil, exit.Errorf(exit.RankLost, "the process at %s ended before the run began", j.Address)
			case msg.Refused != nil:
				return nil, nil, msg.Refused.Err()
			case msg.End != nil && msg.End.Failure != nil:
				return nil, nil, msg.End.Failure.Err()
			case msg.End != nil:
				return nil, msg.End, nil
			case msg.Start != nil:
				return msg.Start, nil, nil
			}
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
