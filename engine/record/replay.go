package record

import (
	"errors"
	"fmt"
	"path/filepath"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/recipe"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/try"
)

// Replay is a run that is repeated in another home, from what the history has of it.
type Replay struct {
	Bundle *recipe.Bundle
	Params []engine.Param
	ID     int64  // that the recipe sees, like Name
	Name   string // likewise

	Home   string         // that contains the run
	From   string         // RUN@STEP there, the checkpoint that the ranks restore; "": none
	Own    bool           // it is the run's own checkpoint, not one that it was resumed from
	Trace  string         // see engine.Job
	Starts int            // earlier starts of the ranks, as run.restart_count counts them
	Target *engine.Target // where it ends; nil: at the recipe's end
}

// FileBackend is the backend of runs that were made from a file of weights, for which no ranks were started.
const FileBackend = "none"

// NewReplay prepares the replay of a run from its beginning. given are values of secret parameters, which the
// history does not have.
func NewReplay(db *history.DB, home string, d *history.Detail, given []engine.Param) (*Replay, error) {
	path := d.Recipe
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.Dir, path)
	}
	sources, err := db.Sources(d.ID)
	if err != nil {
		return nil, err
	}
	r := &Replay{Bundle: &recipe.Bundle{Name: d.Recipe, Dir: filepath.Dir(path), Project: recipe.Project(d.Project), Sources: sources}, Params: paramsOf(d), ID: d.ID, Name: d.Name, Home: home}
	for _, s := range sources {
		if s.Role == "recipe" {
			r.Bundle.Main = s.Path
		}
	}
	if d.Backend == FileBackend {
		return nil, exit.Errorf(exit.Usage, "run %d %s was made from a file of weights, and has no recipe", d.ID, d.Name)
	}
	if r.Bundle.Main == "" {
		return nil, exit.Errorf(exit.Usage, "run %d %s cannot be repeated: the history has no recipe of it", d.ID, d.Name)
	}
	for _, p := range given {
		if value, is := d.Params[p.Name]; !is || value != (history.Secret{}) {
			return nil, exit.Errorf(exit.Usage, "-p %s: only the values of secret parameters are given again, and the run has no such secret", p.Name)
		}
	}
	r.Params = Override(r.Params, given)
	for _, p := range r.Params {
		if p.Kind == secret.Withheld {
			return nil, exit.Errorf(exit.Usage, "the history did not keep the value of parameter %s, as the name says that it is a secret: give it again with -p %s=VALUE", p.Name, p.Name)
		}
	}
	if d.Parent != nil {
		r.From = fmt.Sprintf("%d@%d", d.Parent.ID, d.Parent.Step)
	}
	return r, nil
}

func (r *Record) goOnFrom(p *Replay) (err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(p.Home))
	defer db.Close()
	store := try.To(checkpoints.OpenReadOnly(p.Home))
	if r.from, err = findOrigin(db, store, p.From); err != nil {
		store.Close()
		return fmt.Errorf("the checkpoint from which the replay would go on: %w", err)
	}
	r.from.store, r.from.own = store, p.Own
	return nil
}

// findReplayed is find for a replay that starts from a checkpoint of another home.
func (r *Checkpoints) findReplayed(step string, ref checkpoints.Ref, f *found) error {
	o, err := r.from, error(&checkpoints.ErrNone{Which: step})
	if r.store != nil {
		f.store = r.store
		f.info, err = r.store.Find(r.run.UID, ref)
	}
	none := errors.As(err, new(*checkpoints.ErrNone))
	if err != nil && !none {
		return err
	}
	if step != "last" && o.own {
		return fmt.Errorf("the recipe restores step %s, and the replay began in its middle", step)
	}
	if f.run = "this run"; none || step == "best" {
		theirs := o.info
		if err = nil; step != "last" {
			runs := make([]string, len(o.line))
			for i := range o.line {
				runs[i] = o.line[i].UID
			}
			theirs, err = o.store.FindAmong(runs, ref)
		}
		switch {
		case err == nil && (none || *theirs.Score > *f.info.Score):
			f.store, f.info, f.run = o.store, theirs, "run "+o.line[0].Name
		case err != nil && !errors.As(err, new(*checkpoints.ErrNone)):
			return err
		case err != nil && none:
			return noSuch(step, true)
		}
	}
	if f.info.WorldSize != len(r.places) {
		f.differ, err = f.store.Differing(f.info.Run, f.info.Ref())
		return err
	}
	return nil
}
