package record

import (
	"drun/internal/exit"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	"drun/history"
	"drun/internal/secret"
)

// origin is the checkpoint that --resume names. It is decided once, even if its run goes on saving.
type origin struct {
	info   checkpoints.Info
	line   []history.Summary // its run, and those it came from in turn, latest first
	params []engine.Param
	seed   int64

	store *checkpoints.Store // of another home, for a replay; nil: this home's
	own   bool               // the replay starts from a checkpoint of the run that it repeats
}

// Foresee returns the error that Open would return for the user's names: a run name that is taken, or a run to
// resume that does not exist. They are so reported before the run waits for other nodes.
func Foresee(c Config) error {
	if c.Resume == Auto || c.Replay != nil {
		return nil
	}
	db, err := history.OpenReadOnly(c.Home)
	if errors.As(err, new(*history.ErrNone)) && c.Resume == "" {
		return nil // Open creates the history
	}
	if err != nil {
		return err
	}
	defer db.Close()
	if c.Name != "" {
		if err := db.CheckFree(c.Name); err != nil {
			return err
		}
	}
	if c.Resume != "" {
		name, _, _ := strings.Cut(c.Resume, "@")
		_, err = db.Find(name)
	}
	return err
}

// findOrigin parses RUN, RUN@STEP or RUN@best and finds the checkpoint.
func findOrigin(db *history.DB, store *checkpoints.Store, spec string) (*origin, error) {
	name, step, _ := strings.Cut(spec, "@")
	id, err := db.Find(name)
	if err != nil {
		return nil, err
	}
	show, err := db.Get(id)
	if err != nil {
		return nil, err
	}
	ref, err := checkpoints.ParseRef(step)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--resume %s: %w", spec, err)
	}
	list, err := store.List(show.UID)
	if err != nil {
		return nil, err
	}
	if missing := MissingAt(&show.Summary, list, step); missing != nil {
		err := MissingError(filepath.Dir(store.Path()), name, missing.Step)
		if len(list) > 0 {
			err = exit.WithHint(err, exit.HintOf(err)+fmt.Sprintf("; --resume %s@%d goes on from the newest that is there", name, list[len(list)-1].Step))
		}
		return nil, err
	}
	o := &origin{seed: show.Seed}
	if o.info, err = store.Hold(func() (checkpoints.Info, error) { return store.Find(show.UID, ref) }); err != nil {
		if none := (*checkpoints.ErrNone)(nil); errors.As(err, &none) {
			problem := "the run has no such checkpoint"
			if _, err := store.Find(show.UID, checkpoints.Last); err == nil && step == "best" {
				problem = "none of the run's checkpoints has a score"
			}
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "%s", "--resume "+spec+": "+problem),
				"drun checkpoints "+name+" lists them")
		}
		return nil, err
	}
	if o.line, err = ancestors(db, show.Summary); err != nil {
		return nil, err
	}
	o.params = paramsOf(show)
	return o, nil
}

// paramsOf returns the parameters that a run had.
func paramsOf(show *history.Detail) (params []engine.Param) {
	for name, value := range show.Params {
		if value == (history.Secret{}) {
			params = append(params, engine.Param{Name: name, Kind: secret.Withheld})
			continue
		}
		if value != nil { // None is the recipe's own default
			text, kind := paramText(value)
			params = append(params, engine.Param{Name: name, Value: text, Kind: kind})
		}
	}
	return params
}

// paramText writes a value exactly, as -p reads it, and its type as a recipe names it.
func paramText(v any) (text, kind string) {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), "float"
	case bool:
		return strconv.FormatBool(v), "bool"
	case string:
		return v, "string"
	case history.List:
		return string(v), "list"
	}
	return fmt.Sprint(v), "int"
}

// inherit returns the parameters of the resumed run, overridden by given.
func inherit(params, given []engine.Param) []engine.Param {
	out := slices.Clone(params)
	for _, p := range given {
		i := slices.IndexFunc(out, func(q engine.Param) bool { return q.Name == p.Name })
		if i < 0 {
			out = append(out, p)
		} else {
			out[i] = p
		}
	}
	return out
}

// ancestors lists a run and those it came from.
func ancestors(db *history.DB, run history.Summary) (line []history.Summary, err error) {
	seen := map[int64]bool{}
	for {
		if seen[run.ID] {
			return nil, exit.Errorf(exit.Storage, "history.db is damaged: runs.parent of run %d: the run is its own ancestor", run.ID)
		}
		seen[run.ID] = true
		line = append(line, run)
		if run.Parent == nil {
			return line, nil
		}
		show, err := db.Get(run.Parent.ID)
		if err != nil {
			return nil, err
		}
		run = show.Summary
	}
}
