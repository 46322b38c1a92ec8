package worker

import (
	"bytes"
	"errors"
	"fmt"

	"drun/engine"
	"drun/internal/exit"
	"drun/starlib/checkpoint"

	"go.starlark.net/starlark"
)

// target is where a replay hands over the rank's state. The recipe saves the step that it names, or decides
// whether to save after the number of updates that it names: then the state is the one that the recipe would have
// passed to checkpoint.save. A recipe that does neither before the next update has its state taken when it asks
// a loader for the next batch or, if it does not, right after the update.
type target struct {
	engine.Target
	taken []checkpoint.Item // the state after the updates; nil: they are not made yet
	asked bool              // taken when a loader was asked
	done  bool              // handed over
}

// errHandedOver ends the recipe of a rank that has handed over its state.
var errHandedOver = errors.New("the state has been handed over")

// reached is told that an update has been made.
func (d *digests) reached() (err error) {
	if t := d.target; t != nil && t.Save == nil && !t.Quit && t.Updates == d.rank.Updates {
		t.taken, err = d.take()
	}
	return err
}

// passing is told that the next update has been made, and is not counted yet.
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

// asked is told that a loader is asked for a batch.
func (d *digests) asked() (err error) {
	if t := d.target; t.taken != nil && !t.asked {
		t.asked = true
		t.taken, err = d.take()
	}
	return err
}

// deciding is called where the recipe decides whether to save.
func (d *digests) deciding(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	if d.target == nil || d.target.taken == nil {
		return starlark.None, nil
	}
	items, err := d.take()
	if err != nil {
		return nil, err
	}
	return nil, d.handOver(items)
}

// saving is told that the recipe saves.
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

// handOver stores the state, once all ranks have come to it, and ends the recipe.
func (d *digests) handOver(items []checkpoint.Item) error {
	if err := d.worker.save(engine.TargetStep, nil, false, items); err != nil {
		return err
	}
	d.target.done = true
	return errHandedOver
}

// end is what the end of the recipe means.
func (t *target) end(err error) error {
	if t.done {
		return nil
	}
	if err == nil && !t.Quit {
		err = exit.Errorf(exit.Recipe, "the recipe came to its end before the state could be taken")
		if t.taken != nil {
			err = fmt.Errorf("%w: it made exactly %d updates", err, t.Updates)
		}
	}
	return err
}
