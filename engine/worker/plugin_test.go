package worker

import (
	"context"
	"strings"
	"testing"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/rendezvous"
)

// A rank whose plugin has ended is the cause under its own number, also where its plugin knew it as another one.
func TestALostPluginIsTheRanksOwnFailure(t *testing.T) {
	file, err := board.Create(4)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b, err := board.Open(file, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	w := &worker{job: &engine.Job{Placement: rendezvous.Placement{Rank: 3, WorldSize: 4}}, board: b}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.lostPlugin(0)(&collective.BackendError{Backend: "gloo", Rank: 1, Msg: "the plugin is gone", Own: true})
	for _, err := range []error{context.Cause(w.ctx), b.Aborted()} {
		if f := w.failure(err); f.Secondary || f.Suspected || !strings.Contains(f.Message, "backend gloo failed on rank 3: the plugin is gone") {
			t.Errorf("%+v", f)
		}
	}
}
