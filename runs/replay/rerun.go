package replay

import (
	"fmt"
	"slices"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	recipes "drun/engine/recipe"
	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// Rerun is the repetition of a run that somebody leads, such as a debugger.
type Rerun struct {
	Options run.Options
	Bundle  *recipes.Bundle
	From    State // from which it goes on; the zero value: the run's beginning
}

// State is one that a run has saved.
type State struct {
	Home      string
	Run, Step int64
	Updates   int64 // of the parameters that had been made by then
}

// States lists those of a run that are there, in the order of steps.
func States(home string, id int64) (list []State, err error) {
	defer try.Caught(&err)
	store := try.To(checkpoints.OpenIfAny(home))
	if store == nil {
		return nil, nil
	}
	defer store.Close()
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	kept := try.To(store.List(try.To(db.Get(id)).UID))
	for _, s := range savedSteps(try.To(db.Marks(id))) {
		if slices.ContainsFunc(kept, func(c checkpoints.Info) bool { return c.Step == s.step }) {
			list = append(list, State{home, id, s.step, s.updates})
		}
	}
	return list, nil
}

// Prepare prepares the repetition of a run in another home, from a state that it or a repetition has saved. o has the options
// that do not affect what is computed; given, if not nil, are the run's parameters, which the history may not have yet.
func Prepare(o run.Options, db *history.DB, home string, id int64, secrets, given []engine.Param, from State, dir string) (_ *Rerun, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, secrets, false))
	if given != nil {
		p.replay.Params = given
	}
	if from != (State{}) {
		p.replay.Home, p.replay.From, p.replay.Own = from.Home, fmt.Sprintf("%d@%d", from.Run, from.Step), true
	}
	a := &Rerun{p.options(o, dir), p.replay.Bundle, from}
	a.Options.MaxRestarts = 0
	return a, nil
}

// TargetAt tells where a run was at a step, as At finds it.
func TargetAt(db *history.DB, home string, id, step int64) (_ *engine.Target, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, nil, true))
	marks := try.To(db.Marks(id))
	a := &attempt{past: p, want: try.To(db.Digests(id))}
	t, err := targetOf(p.detail, marks, savedSteps(marks), a.made(), step, "")
	if strings.Contains(exit.HintOf(err), "--metric") { // which only drun at has
		err = exit.WithHint(err, "drun at RUN STEP --metric NAME tells after how many updates that was; break update N, in drun debug RECIPE, stops there")
	}
	try.Ok(err)
	if t.Updates < 1 && t.Save == nil {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "nothing tells where run %s was at step %d: no update had been made by then, and it saved no checkpoint of that step", p.detail.Name, step),
			"drun debug RECIPE begins at the beginning of main")
	}
	return t, nil
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
