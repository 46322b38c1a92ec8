package record

import (
	"drun/internal/exit"
	"errors"
	"fmt"
	"slices"
	"sync"

	"drun/checkpoints"
	"drun/engine"
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

// Restore gives a rank its part of the checkpoint that it asks for, after so many
// saves of this run, and sends it in the background.
func (r *Record) Restore(rank int, step string, saves int, send func(*engine.Restored)) {
	if r.store == nil { // neither resumed nor anything saved
		send(&engine.Restored{})
		return
	}
	r.pending.Go(func() {
		state, err := r.restored(rank, question{step, saves})
		if err != nil {
			state = &engine.Restored{Error: err.Error(), Code: exit.CodeOf(err)}
		}
		send(state)
	})
}

func (r *Record) restored(rank int, q question) (*engine.Restored, error) {
	r.restores.mu.Lock()
	if r.restores.found == nil {
		r.restores.found = map[question]*found{}
	}
	f := r.restores.found[q]
	if f == nil {
		f = &found{}
		r.restores.found[q] = f
	}
	r.restores.mu.Unlock()
	f.once.Do(func() { f.err = r.find(q.step, f) })
	if f.err != nil {
		return nil, f.err
	}
	out := &engine.Restored{Found: true, Step: f.info.Step, Run: f.run, Score: f.info.Score, WorldSize: f.info.WorldSize, Differ: f.differ}
	if f.info.WorldSize != len(r.places) {
		rank = 0
	}
	_, entries, err := r.store.Load(f.info.Run, f.info.Ref(), rank)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out.Entries = append(out.Entries, engine.Entry{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: e.Data})
	}
	r.restores.mu.Lock()
	out.First, f.told = !f.told, true
	r.restores.mu.Unlock()
	return out, nil
}

// find decides which checkpoint is meant: "last" is this run's own or, before it
// has saved one, that of --resume; others are looked for in this run and in those
// that it came from.
func (r *Record) find(step string, f *found) error {
	line := []ancestor{{r.run.ID, r.run.UID, r.run.Name}}
	if r.from != nil {
		line = append(line, r.from.line...)
	}
	ref, err := checkpoints.ParseRef(step)
	if err != nil {
		return err
	}
	which := 0
	if step == "last" {
		f.info, err = r.store.Find(line[0].uid, ref)
		if errors.As(err, new(*checkpoints.ErrNone)) && r.from != nil {
			f.info, which, err = r.from.info, 1, nil
		}
	} else {
		runs := make([]string, len(line))
		for i := range line {
			runs[i] = line[i].uid
		}
		f.info, err = r.store.Hold(func() (checkpoints.Info, error) { return r.store.FindAmong(runs, ref) })
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
	if f.info.WorldSize != len(r.places) {
		f.differ, err = r.store.Differing(f.info.Run, f.info.Ref())
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
