package report

import (
	"context"
	"errors"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Ranks is what the ranks of a run do now, or did when the history was last told.
type Ranks struct {
	Live     bool              `json:"live"`    // the run goes on, and its agent has answered
	Problem  string            `json:"problem"` // why the agent has not answered; "" if it has, or the run has ended
	Hint     string            `json:"hint"`
	Snapshot *records.Snapshot `json:"snapshot"` // nil: the ranks have not started, or the history has none
}

// Doing tells what the ranks of a run do. It asks a running run, which costs that next to nothing. For any other
// run, or one that does not answer, it returns the latest snapshot in the history.
func Doing(ctx context.Context, db *history.DB, id int64) (_ *Ranks, err error) {
	defer try.Caught(&err)
	found := try.To(db.Select(history.Selection{IDs: []int64{id}}))
	r := &Ranks{}
	if len(found) > 0 && found[0].Status == history.Running {
		s, silent := db.Doing(ctx, id)
		if silent == nil {
			r.Live, r.Snapshot = true, s
			return r, nil
		}
		if !errors.As(silent, new(*history.SilentError)) {
			return nil, silent
		}
		found = try.To(db.Select(history.Selection{IDs: []int64{id}}))
		if len(found) > 0 && found[0].Status == history.Running { // it has not ended since
			r.Problem, r.Hint = silent.Error(), exit.HintOf(silent)
		}
	}
	r.Snapshot, err = db.LastSnapshot(id)
	return r, err
}
