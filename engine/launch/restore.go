package launch

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"drun/checkpoints"
	"drun/engine"
	"drun/internal/exit"
)

// restores answers the ranks' questions for checkpoints. A question that a rank
// asks after as many saves of the run as another gets the same answer.
type restores struct {
	mu    sync.Mutex
	found map[question]*found
}

type question struct {
	step  string
	saves int
}

type found struct {
	once   sync.Once
	info   checkpoints.Info
	run    string   // for messages
	differ []string // see engine.Restored
	err    error
	told   bool // a rank has got it
}

// restore sends a rank its part of the checkpoint that it asks for.
func (a *agent) restore(rank int, r *engine.Restore) {
	p, q := a.procs[rank], question{r.Step, a.saved}
	if a.store == nil { // neither resumed nor anything saved
		p.send(&engine.ToWorker{State: &engine.Restored{}})
		return
	}
	a.pending.Go(func() {
		state, err := a.restored(rank, q)
		if err != nil {
			state = &engine.Restored{Error: err.Error(), Code: exit.CodeOf(err)}
		}
		p.send(&engine.ToWorker{State: state})
	})
}

func (a *agent) restored(rank int, q question) (*engine.Restored, error) {
	a.restores.mu.Lock()
	if a.restores.found == nil {
		a.restores.found = map[question]*found{}
	}
	f := a.restores.found[q]
	if f == nil {
		f = &found{}
		a.restores.found[q] = f
	}
	a.restores.mu.Unlock()
	f.once.Do(func() { f.err = a.find(q.step, f) })
	if f.err != nil {
		return nil, f.err
	}
	out := &engine.Restored{Found: true, Step: f.info.Step, Run: f.run, Score: f.info.Score, WorldSize: f.info.WorldSize, Differ: f.differ}
	if f.info.WorldSize != a.world {
		rank = 0
	}
	_, entries, err := a.store.Load(f.info.Run, f.info.Ref(), rank)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out.Entries = append(out.Entries, engine.Entry{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: e.Data})
	}
	a.restores.mu.Lock()
	out.First, f.told = !f.told, true
	a.restores.mu.Unlock()
	return out, nil
}

// find decides which checkpoint is meant: "last" is this run's own or, before it
// has saved one, that of --resume; others are looked for in this run and in those
// that it came from.
func (a *agent) find(step string, f *found) error {
	line := []ancestor{{a.record.ID, a.record.UID, a.record.Name}}
	if a.from != nil {
		line = append(line, a.from.line...)
	}
	ref, err := parseRef(step)
	if err != nil {
		return err
	}
	which := 0
	if step == "last" {
		f.info, err = a.store.Find(line[0].uid, ref)
		if errors.As(err, new(*checkpoints.ErrNone)) && a.from != nil {
			f.info, which, err = a.from.info, 1, nil
		}
	} else {
		runs := make([]string, len(line))
		for i := range line {
			runs[i] = line[i].uid
		}
		f.info, err = a.store.FindAmong(runs, ref)
		which = slices.Index(runs, f.info.Run)
	}
	if errors.As(err, new(*checkpoints.ErrNone)) {
		return noSuch(step, len(line) > 1)
	}
	if err != nil {
		return err
	}
	if f.run = "this run"; which > 0 {
		f.run = "run " + line[which].name
	}
	if f.info.WorldSize != a.world {
		f.differ, err = a.store.Differing(f.info.Run, f.info.Ref())
	}
	return err
}

func noSuch(step string, resumed bool) error {
	of := "of this run"
	if resumed {
		of += ", nor of those that it came from"
	}
	if step == "best" {
		return fmt.Errorf("there is no checkpoint with a score %s: checkpoint.save(state, step, score = …) gives it one", of)
	}
	return fmt.Errorf("there is no checkpoint of step %s %s", step, of)
}
