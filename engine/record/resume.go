package record

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/recipe"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/try"
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

// CheckNames returns the error that Open would return for the user's names: a run name that is taken, or a run to
// resume that does not exist. So the user learns of them before the run waits for other nodes.
func CheckNames(h History) (err error) {
	defer try.Caught(&err)
	if h.Resume == Auto || h.Replay != nil || h.UID != "" {
		return nil
	}
	db, err := history.OpenReadOnly(h.Home)
	if errors.As(err, new(*history.ErrNone)) && h.Resume == "" {
		return nil // Open creates the history
	}
	if err != nil {
		return err
	}
	defer db.Close()
	if h.Name != "" {
		try.Ok(db.CheckFree(h.Name))
	}
	if h.Resume != "" {
		name, _, _ := strings.Cut(h.Resume, "@")
		_, err = db.Find(name)
	}
	return err
}

// findOrigin parses RUN, RUN@STEP or RUN@best and finds the checkpoint.
func findOrigin(db *history.DB, store *checkpoints.Store, spec string) (_ *origin, err error) {
	defer try.Caught(&err)
	name, step, _ := strings.Cut(spec, "@")
	show := try.To(db.Get(try.To(db.Find(name))))
	ref, err := checkpoints.ParseRef(step)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--resume %s: %w", spec, err)
	}
	list := try.To(store.List(show.UID))
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
	o.line = try.To(ancestors(db, show.Summary))
	o.params = paramsOf(show)
	return o, nil
}

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

// Override returns parameters with those given in their place, or after them; of several given, the last counts.
func Override(params, given []engine.Param) []engine.Param {
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

func ancestors(db *history.DB, run history.Summary) (line []history.Summary, err error) {
	defer try.Caught(&err)
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
		show := try.To(db.Get(run.Parent.ID))
		run = show.Summary
	}
}

// Auto as Config.Resume continues the run of the given name, or begins it if there is none: for jobs that a
// scheduler starts again.
const Auto = "auto"

// DoneError says that the run to continue has already finished.
type DoneError struct{ Earlier }

func (e *DoneError) Error() string       { return fmt.Sprintf("run %d %s is done already", e.ID, e.Name) }
func (e *DoneError) ExitCode() exit.Code { return exit.Done }

// unfinished finds the run to continue; nil: there is none, so it is to be begun.
func (r *Record) unfinished(c Config) (_ *history.Detail, err error) {
	defer try.Caught(&err)
	if c.Name == "" && c.UID == "" {
		return nil, exit.Errorf(exit.Usage, "--resume auto needs --name, the run that it continues or begins")
	}
	id, err := int64(0), error(nil)
	if c.UID != "" {
		id, err = r.db.FindUID(c.UID)
	} else {
		id, err = r.db.Find(c.Name)
	}
	if errors.As(err, new(*history.NotFound)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := r.db.Get(id)
	switch {
	case err != nil:
		return nil, err
	case d.Status == history.Pending && c.UID != "":
		return nil, nil
	case d.Status == history.Pending:
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %d %s belongs to a job that has not begun", d.ID, d.Name), "drun jobs lists it")
	case d.Status == history.Done:
		try.Ok(otherParams(d, c.Params))
		return nil, &DoneError{Earlier{d.ID, d.Name, *d.Seconds}}
	case c.SeedGiven && d.Seed != c.Seed:
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %s was begun with --seed %d, not %d", c.Name, d.Seed, c.Seed),
			"another seed draws other numbers: give the same one, or the new run another name")
	}
	r.Seed = d.Seed
	return d, nil
}

// otherParams returns an error that names the parameters whose given values differ from those of a finished run.
func otherParams(d *history.Detail, given []engine.Param) error {
	var had, now []string
	for _, p := range given {
		value, is := d.Params[p.Name]
		if is && sameParam(value, p.Value) {
			continue
		}
		text := "no " + p.Name
		if is {
			text = p.Name + "=" + d.Params.Text(p.Name)
		}
		had, now = append(had, text), append(now, "-p "+p.Name+"="+p.Value)
	}
	if len(had) == 0 {
		return nil
	}
	return exit.WithHint(exit.Errorf(exit.Usage, "run %d %s is done already, with %s: %s was not run", d.ID, d.Name, strings.Join(had, ", "), strings.Join(now, " ")),
		"give a new run another --name, with --resume "+d.Name+" if it is to go on from this one")
}

// sameParam reports whether -p would give a parameter the value that it has.
func sameParam(value any, given string) bool {
	switch v := value.(type) {
	case history.Secret: // nobody knows its value
		return true
	case nil:
		return given == "None"
	case float64:
		x, err := strconv.ParseFloat(given, 64)
		return err == nil && (x == v || x != x && v != v)
	case bool:
		return slices.Contains(map[bool][]string{true: {"true", "1", "yes", "on"}, false: {"false", "0", "no", "off"}}[v], strings.ToLower(given))
	case history.List:
		return v.Same(given)
	}
	if _, is := value.(string); !is {
		if n, ok := new(big.Int).SetString(given, 0); ok { // 0x10 is 16
			given = n.String()
		}
	}
	text, _ := paramText(value)
	return text == given
}

// sayOtherParams reports parameters whose values differ from those of earlier attempts.
func (r *Record) sayOtherParams(params []history.Param) {
	was, is := r.before, history.Params{}
	r.before = nil
	for _, p := range params {
		is[p.Name] = p.Value
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if old, now := was.Text(name), is.Text(name); old != now {
			r.Say(fmt.Sprintf("drun: run %s was begun with %s=%s, and goes on with %s", r.run.Name, name, old, now))
		}
	}
}

// reopen begins the next attempt of a run that another process began. It goes on from the run's own checkpoints, or
// from the one that the run was resumed from.
func (r *Record) reopen(d *history.Detail, info history.RunInfo) (err error) {
	defer try.Caught(&err)
	r.Params = Override(paramsOf(d), r.Params)
	if _, err := os.Stat(filepath.Join(r.home, "checkpoints.db")); err == nil {
		r.store = try.To(checkpoints.Open(r.home))
		r.saved.durable = len(try.To(r.store.List(d.UID))) > 0
	}
	if len(d.Checkpoints) > 0 && !r.saved.durable {
		return exit.WithHint(exit.Errorf(exit.Storage, "run %s has saved %d checkpoints, and %s has none of them", d.Name, len(d.Checkpoints), filepath.Join(r.home, "checkpoints.db")),
			"put the right file back, or begin a new run with another --name")
	}
	if d.Parent != nil && r.store != nil {
		from, err := findOrigin(r.db, r.store, fmt.Sprintf("%d@%d", d.Parent.ID, d.Parent.Step))
		if err != nil && !r.saved.durable {
			return err // otherwise its own checkpoints are enough
		}
		r.from = from
	}
	run, past := try.To2(r.db.Reopen(d.ID, info))
	r.run, r.earlier = run, info.Started.Sub(past.Started)
	r.attempt = newAttempt(past.Attempts, info.Started, past.Points)
	return nil
}

// sayChanges reports which files of the recipe have changed since the run began.
func (r *Record) sayChanges(d *history.Detail, now *recipe.Bundle) {
	if now.Name != d.Recipe {
		r.Say(fmt.Sprintf("drun: run %s was begun with the recipe %s, not %s", d.Name, d.Recipe, now.Name))
	}
	for _, old := range d.Sources {
		for _, s := range now.Sources {
			if s.Path == old.Path && s.SHA256 != old.SHA256 {
				r.Say(fmt.Sprintf("drun: %s has changed since run %s was begun", s.Path, d.Name))
			}
		}
	}
}

// sayMissing reports that the run does not go on from the newest of its checkpoints, and removes missing ones from
// the history.
func (r *Record) sayMissing(d *history.Detail) (err error) {
	defer try.Caught(&err)
	list := try.To(r.store.List(d.UID))
	for _, c := range Missing(&d.Summary, list) {
		text := fmt.Sprintf("drun: %v", MissingError(r.home, d.Name, c.Step))
		if newest := MissingAt(&d.Summary, list, "last"); newest != nil && newest.Step == c.Step {
			text += "; the run goes on from the one before"
		}
		r.Say(text)
	}
	for _, c := range unlisted(d.Checkpoints, list) {
		r.writer.add(1, 0, func(b *history.Batch) { b.Removed = append(b.Removed, c.Step) })
	}
	return nil
}

// Missing lists the checkpoints of a run that the history has and the catalog does not, in the order of saving: the
// catalog is damaged or an older one, or a removal was interrupted. If the run's drun was killed, --keep may have
// removed others, so only the newest and the best are listed.
func Missing(run *history.Summary, list []checkpoints.Info) (missing []history.Checkpoint) {
	missing = unlisted(run.Checkpoints, list)
	if run.Status != history.Lost {
		return missing
	}
	newest, best := MissingAt(run, list, "last"), MissingAt(run, list, "best")
	return slices.DeleteFunc(missing, func(c history.Checkpoint) bool {
		return (newest == nil || newest.Step != c.Step) && (best == nil || best.Step != c.Step)
	})
}

func unlisted(had []history.Checkpoint, list []checkpoints.Info) (missing []history.Checkpoint) {
	for _, c := range had {
		if !slices.ContainsFunc(list, func(i checkpoints.Info) bool { return i.Step == c.Step }) {
			missing = append(missing, c)
		}
	}
	slices.SortFunc(missing, func(a, b history.Checkpoint) int { return a.Time.Compare(b.Time) })
	return missing
}

// MissingError says that a checkpoint is missing.
func MissingError(home, run string, step int64) error {
	return exit.WithHint(exit.Errorf(exit.Storage, "%s@%d is in the history, but not in %s: that file is damaged or was replaced, or a removal was cut short", run, step, filepath.Join(home, "checkpoints.db")),
		"put the right checkpoints.db back, or let drun gc take what is missing out of the history")
}

// MissingAt returns the checkpoint that a step's number, last (or nothing) or best would have named, if it is
// missing.
func MissingAt(run *history.Summary, list []checkpoints.Info, step string) (found *history.Checkpoint) {
	missing := unlisted(run.Checkpoints, list)
	for i := range missing {
		switch c := &missing[i]; step {
		case "", "last":
			found = c
		case "best":
			if c.Score != nil && (found == nil || *c.Score >= *found.Score) {
				found = c
			}
		default:
			if strconv.FormatInt(c.Step, 10) == step {
				return c
			}
		}
	}
	other := false // another one would have been named, a newer or better one
	if found != nil && step == "best" {
		other = slices.ContainsFunc(list, func(i checkpoints.Info) bool { return i.Score != nil && records.Float(*i.Score) > *found.Score })
	} else if found != nil {
		other = slices.ContainsFunc(run.Checkpoints, func(c history.Checkpoint) bool { return c.Time.After(found.Time) })
	}
	if other {
		return nil
	}
	return found
}
