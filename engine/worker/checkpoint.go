package worker

import (
	"errors"
	"os"

	"drun/engine"
	"drun/internal/exit"
	"drun/starlib/checkpoint"
)

var _ checkpoint.Store = (*worker)(nil)

// Save hands the rank's part to the agent and waits until the checkpoint is
// complete.
func (w *worker) Save(step int64, score *float64, memory bool, part []checkpoint.Item) error {
	msg := &engine.Part{Step: step, Score: score, Memory: memory}
	for _, it := range part {
		msg.Entries = append(msg.Entries, engine.Entry(it))
	}
	w.record.flush() // what was logged before is stored before
	reply, err := w.ask("saving a checkpoint", &engine.ToAgent{Save: msg})
	if err != nil {
		return err
	}
	if reply.Saved != nil && reply.Saved.Error != "" {
		return exit.Errorf(exit.Storage, "%s", reply.Saved.Error)
	}
	return nil
}

// Restore asks the agent for the rank's part.
func (w *worker) Restore(step string) (*checkpoint.Restored, error) {
	w.record.flush() // what was logged before is known before
	reply, err := w.ask("restoring a checkpoint", &engine.ToAgent{Restore: &engine.Restore{Step: step}})
	switch {
	case err != nil:
		return nil, err
	case reply.State == nil:
		return nil, errors.New("the agent sent no checkpoint")
	case reply.State.Error != "":
		return nil, exit.Errorf(reply.State.Code, "%s", reply.State.Error)
	case !reply.State.Found:
		return nil, nil
	}
	state := reply.State
	out := &checkpoint.Restored{Step: state.Step, Run: state.Run, Score: state.Score, Saved: state.WorldSize, World: w.job.Place.WorldSize,
		Differ: state.Differ, First: state.First}
	for _, e := range state.Entries {
		out.Part = append(out.Part, checkpoint.Item(e))
	}
	return out, nil
}

// Say writes a line to stderr, which the agent shows and keeps.
func (w *worker) Say(line string) { _, _ = os.Stderr.WriteString(line + "\n") }
