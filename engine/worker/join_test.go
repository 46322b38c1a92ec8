package worker

import (
	"context"
	"errors"
	"testing"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/rendezvous"
)

// suspicious is a backend that loses another rank while it opens.
type suspicious struct{ other func() }

func (suspicious) Name() string { return "gloo" }

func (s suspicious) Open(context.Context, collective.World) (collective.Comm, error) {
	go s.other()
	return nil, &collective.BackendError{Backend: "gloo", Rank: 1, Msg: "cannot connect to rank 0: connection reset by peer"}
}

// While ranks join, too, one that loses another waits for what that one says of its end.
func TestARankThatJoinsHoldsItsSuspicionBack(t *testing.T) {
	file, err := board.Create(2)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b, err := board.Open(file, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	own := &collective.BackendError{Backend: "gloo", Rank: 0, Msg: "the plugin is gone", Own: true}
	w := &worker{job: &engine.Job{Backend: "gloo", Plugin: &engine.Plugin{}, Placement: rendezvous.Placement{Rank: 1, WorldSize: 2}}, board: b,
		plugins: func(*engine.Plugin, func(error)) collective.Backend {
			return suspicious{func() { b.Abort(0, own) }}
		}}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	_, err = w.join(nil)
	if at := (*collective.AbortError)(nil); !errors.As(err, &at) || at.Rank != 0 || !w.failure(err).Secondary {
		t.Errorf("%v", err)
	}
}
