package replay

import (
	"fmt"
	"slices"

	"drun/checkpoints"
	"drun/engine"
	recipes "drun/engine/recipe"
	"drun/engine/record"
	"drun/engine/run"
	"drun/history"
	"drun/internal/try"
)

// Rerun is the repetition of a run that somebody leads, such as a debugger.
type Rerun struct {
	Options run.Options
	Bundle  *recipes.Bundle
	From    *int64 // the step of the run's checkpoint from which it goes on; nil: the run's beginning
	Updates int64  // of the parameters that had been made by then, if From is not nil
}

// Prepare prepares the repetition of a run in another home: from the nearest of its checkpoints that has fewer than so many
// updates or, with 0 or without one, from its beginning. Those of earlier repetitions, in more homes, count as well. o has the
// options that do not affect what is computed; given, if not nil, are the run's parameters, which the history may not have yet.
func Prepare(o run.Options, db *history.DB, home string, id int64, secrets, given []engine.Param, updates int64, dir string, more ...string) (_ *Rerun, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, secrets, false))
	if given != nil {
		p.replay.Params = given
	}
	a := &Rerun{Bundle: p.replay.Bundle}
	if updates > 0 && p.replay.Bundle.Names("restore") {
		try.Ok(a.nearest(p.replay, db, home, id, updates))
		for _, home := range more {
			db := try.To(history.OpenReadOnly(home))
			err := a.nearest(p.replay, db, home, 1, updates)
			db.Close()
			try.Ok(err)
		}
	}
	a.Options = p.options(o, dir)
	a.Options.MaxRestarts = 0
	return a, nil
}

// nearest begins at a checkpoint of a run, in a home, if one has more updates than where it begins now, but fewer than a number.
func (a *Rerun) nearest(r *record.Replay, db *history.DB, home string, id, updates int64) (err error) {
	defer try.Caught(&err)
	store := try.To(checkpoints.OpenIfAny(home))
	defer store.Close()
	kept := try.To(store.List(try.To(db.Get(id)).UID))
	for _, s := range savedSteps(try.To(db.Marks(id))) {
		there := slices.ContainsFunc(kept, func(c checkpoints.Info) bool { return c.Step == s.step })
		if there && s.updates < updates && (a.From == nil || s.updates >= a.Updates) {
			r.Home, r.From, r.Own = home, fmt.Sprintf("%d@%d", id, s.step), true
			a.From, a.Updates = &s.step, s.updates
		}
	}
	return nil
}

// UpdatesAt tells how many updates a run had made at a step, as At finds it.
func UpdatesAt(db *history.DB, home string, id, step int64) (_ int64, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, nil, true))
	marks := try.To(db.Marks(id))
	a := &attempt{past: p, want: try.To(db.Digests(id))}
	t := try.To(targetOf(p.detail, marks, savedSteps(marks), a.made(), step, ""))
	return t.Updates, nil
}

// Captured is the recipe of a run, as the history has it.
func Captured(db *history.DB, home string, id int64) (_ *recipes.Bundle, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, nil, true))
	r := recipes.Bundle{Name: p.detail.Recipe, Project: recipes.Project(p.detail.Project), Sources: try.To(db.Sources(id))}
	for _, s := range r.Sources {
		if s.Role == "recipe" {
			r.Main = s.Path
		}
	}
	r.Dir = p.detail.Dir
	return &r, nil
}
