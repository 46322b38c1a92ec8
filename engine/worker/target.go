package worker

import (
	"bytes"
	"errors"
	"slices"

	"drun/engine"
	"drun/internal/exit"
	"drun/starlib/checkpoint"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// target is where a replay hands over the rank's state. If it names a step, that is when the recipe saves the step.
// If it names a number of updates, the state is the one that the recipe would have passed to checkpoint.save where
// it last decided whether to save (lang.SavePoint) before the next update. In a recipe that does not decide, it is
// the state when a loader was asked for the next batch or, without a loader, right after the update.
type target struct {
	engine.Target
	taken   []checkpoint.Item // the state after the updates; nil: they have not been made yet
	asked   bool              // taken was captured when a loader was asked
	decided []syntax.Position // where the recipe has decided since then
	done    bool              // handed over
}

// errHandedOver ends the recipe of a rank that has handed over its state.
var errHandedOver = errors.New("the state has been handed over")

// reached notes that an update has been made.
func (d *digests) reached() (err error) {
	if t := d.target; t != nil && t.Save == nil && !t.Quit && t.Updates == d.rank.Updates {
		t.taken, err = d.take()
	}
	return err
}

// passing notes that the next update has been made but not counted yet.
func (d *digests) passing() error {
	switch t := d.target; {
	case t == nil:
	case t.Quit && t.Updates == d.rank.Updates:
		t.done = true
		return errHandedOver
	case t.taken != nil:
		return d.handOver(t.taken)
	}
	return nil
}

// asked notes that a loader is asked for a batch.
func (d *digests) asked() (err error) {
	if t := d.target; t.taken != nil && !t.asked && len(t.decided) == 0 {
		t.asked = true
		t.taken, err = d.take()
	}
	return err
}

// deciding is called when the recipe decides whether to save. If it reaches the same place again before the next
// update, as a recipe does that accumulates gradients, it is in its next step.
func (d *digests) deciding(thread *starlark.Thread, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) (_ starlark.Value, err error) {
	if t := d.target; t.taken != nil {
		at := thread.CallFrame(1).Pos
		if slices.Contains(t.decided, at) {
			return nil, d.handOver(t.taken)
		}
		t.decided = append(t.decided, at)
		t.taken, err = d.take()
	}
	return starlark.None, err
}

// saving notes that the recipe saves.
func (d *digests) saving(step int64, part []checkpoint.Item) error {
	t := d.target
	if t.taken != nil || t.Save != nil && *t.Save == step && t.Updates == d.rank.Updates {
		return d.handOver(part)
	}
	return nil
}

// take copies the state.
func (d *digests) take() ([]checkpoint.Item, error) {
	if d.state == nil {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "the recipe had passed no state to checkpoint.save or checkpoint.restore after %d updates", d.rank.Updates),
			"without one, drun does not know what belongs to the state: checkpoint.restore(state) before the first step is enough")
	}
	items, err := d.state.Items()
	for i := range items {
		items[i].Data = bytes.Clone(items[i].Data)
	}
	return items, err
}

// handOver stores the state once all ranks have reached it, and ends the recipe.
func (d *digests) handOver(items []checkpoint.Item) error {
	if err := d.worker.save(engine.TargetStep, nil, false, items); err != nil {
		return err
	}
	d.target.done = true
	return errHandedOver
}

// end turns the end of the recipe into that of the replay.
func (d *digests) end(err error) error {
	t := d.target
	if err == nil && t.taken != nil && !t.done {
		err = d.handOver(t.taken)
	}
	switch {
	case t.done:
		return nil
	case err == nil && !t.Quit:
		return exit.Errorf(exit.Recipe, "the recipe came to its end after %d updates, before the state could be taken", d.rank.Updates)
	}
	return err
}
