package replay

import (
	"errors"
	"fmt"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/try"
)

// Place is where a run from elsewhere is repeated: its own folders and plugins do not count.
type Place struct {
	Home     string // that contains the run and the checkpoints to begin from
	Dir      string // the recipe's folder, for files that it reads
	DataDirs []string
	Backend  string
}

// Span is a part of a run to be repeated.
type Span struct {
	From *int64         // step of the run's checkpoint that it begins from; nil: from its beginning
	To   *engine.Target // nil: to its end
}

// Again is a span that was repeated.
type Again struct {
	DB      *history.DB
	ID      int64
	Store   *checkpoints.Store // nil: nothing was saved
	UID     string
	Digests []map[int64][records.DigestSize]byte
	Result  *run.Result
}

func (a *Again) Close() { _ = errors.Join(a.Store.Close(), a.DB.Close()) }

// Saved is the step under which a span has the state at its target.
const Saved = engine.TargetStep

// Restores reports whether a run's recipe goes on from checkpoints.
func Restores(db *history.DB, home string, id int64, secrets []engine.Param) (bool, error) {
	p, err := newPast(db, home, id, secrets, false)
	return err == nil && p.replay.Bundle.Names("restore"), err
}

// Repeat runs a span of a run again, in a new home. If the recipe fails, Result says so, and the rest is what there was
// until then.
func Repeat(o run.Options, db *history.DB, place *Place, id int64, secrets []engine.Param, span Span, home, trace string) (_ *Again, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, place.Home, id, secrets, false))
	p.place = place
	p.replay.Bundle.Dir = place.Dir
	if span.From != nil {
		p.replay.From, p.replay.Own = fmt.Sprintf("%d@%d", id, *span.From), true
	}
	p.replay.Target, p.replay.Trace = span.To, trace
	result := try.To(p.run(o, home))
	a := &Again{Result: result}
	a.DB = try.To(history.OpenReadOnly(home))
	defer try.CaughtOr(&err, a.Close)
	d := try.To(a.DB.Get(result.ID))
	a.ID, a.UID = d.ID, d.UID
	a.Digests = try.To(a.DB.Digests(result.ID))
	a.Store = try.To(checkpoints.OpenIfAny(home))
	return a, nil
}

// LastOf returns the last operation in a rank's trace; "" if there is none.
func LastOf(folder string, rank int) (op, line string, err error) {
	t, err := openTrace(folder, rank)
	if err != nil || t == nil {
		return "", "", err
	}
	defer t.file.Close()
	for {
		c, err := t.next()
		if err != nil {
			return op, line, damaged(err)
		}
		op, line = c.op, c.line
	}
}

// SavedAt returns how many updates a run had made when it saved each of its steps.
func SavedAt(marks []records.Mark) map[int64]int64 {
	at := map[int64]int64{}
	for _, s := range savedSteps(marks) {
		at[s.step] = s.updates
	}
	return at
}

// StepAfter returns the step that a run recorded, or saved, after an update; false: none is known.
func StepAfter(marks []records.Mark, update int64) (step int64, known bool) {
	for _, m := range marks {
		for i := range m.Count {
			if n := m.Updates + i*m.UpdatesBy; n == update && (m.Name != "" || !known) {
				step, known = m.Step+i*m.StepBy, true
			}
		}
	}
	return step, known
}
