package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/transfer"
	"drun/history"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/try"
)

// restores answers the ranks' requests for checkpoints. Ranks that make the same request after the same number of
// the run's saves get the same answer.
type restores struct {
	mu      sync.Mutex
	found   map[question]*found
	loaded  *loaded         // the checkpoint requested last
	reading map[int]*loaded // by rank
	fetched map[uint64]bool // states that nodes have asked for
}

func newRestores() *restores {
	return &restores{found: map[question]*found{}, reading: map[int]*loaded{}, fetched: map[uint64]bool{}}
}

// loaded is the data of a checkpoint for the ranks that read it: on disk, and in memory as far as ranks of this
// machine have asked for it. The nodes of other ranks ask for pieces, which are read then.
type loaded struct {
	by      *Checkpoints
	of      *found
	once    sync.Once
	view    *checkpoints.View
	number  uint64 // of the state, for nodes that ask for it
	err     error
	readers int

	mu     sync.Mutex
	region *transfer.Region // with the data at its offsets in the view; nil: no rank of this machine has asked
	there  map[int64]bool   // the offsets of what is in region
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
	told   bool // a rank has been given it

	none   bool               // there is no checkpoint at all
	own    bool               // it is this run's
	points int64              // of the run before it, if own
	memory *snapshot          // nil: it is durable
	store  *checkpoints.Store // which contains it
}

// Restore gives a rank its part of the checkpoint that it asks for, until Taken: in a memory file if the rank is near
// and can open it, otherwise for its node to ask for (see Held). It waits for the save in flight, and answers in the
// background.
func (r *Checkpoints) Restore(rank int, step string, near bool, send func(*engine.Restored)) {
	q, flight := question{step, r.begun}, r.flight
	r.pending.Go(func() {
		if flight != nil {
			<-flight.ended
		}
		state, err := (*engine.Restored)(nil), r.SaveError()
		if err == nil {
			state, err = r.restore(rank, q, near)
		}
		if err != nil {
			state = &engine.Restored{Error: err.Error(), Code: exit.CodeOf(err), Hint: exit.HintOf(err)}
		}
		send(state)
	})
}

// Taken notes that a rank has opened the file that Restore named.
func (r *Checkpoints) Taken(rank int) {
	r.restores.mu.Lock()
	defer r.restores.mu.Unlock()
	if l := r.restores.reading[rank]; l != nil {
		delete(r.restores.reading, rank)
		if l.readers--; l.readers == 0 && l != r.restores.loaded {
			r.giveLoaded(l)
		} else if l.readers == 0 && l.view != nil {
			l.view.Release()
		}
	}
}

// forgetRestores drops what ranks have restored; no rank may be reading it. It returns the states that nodes may
// have fetched.
func (r *Checkpoints) forgetRestores() (fetched []uint64) {
	r.restores.mu.Lock()
	defer r.restores.mu.Unlock()
	if l := r.restores.loaded; l != nil {
		r.giveLoaded(l)
	}
	fetched = slices.Collect(maps.Keys(r.restores.fetched))
	r.restores.found, r.restores.loaded, r.restores.reading, r.restores.fetched = map[question]*found{}, nil, map[int]*loaded{}, map[uint64]bool{}
	return fetched
}

func (r *Checkpoints) restore(rank int, q question, near bool) (*engine.Restored, error) {
	r.restores.mu.Lock()
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
	if f.none {
		return &engine.Restored{}, nil
	}
	part := rank
	if f.info.WorldSize != len(r.places) {
		part = 0
	}
	var out *engine.Restored
	if f.memory != nil {
		out = f.memory.part(part, near)
	} else {
		l := r.load(rank, f)
		err := l.err
		if err == nil {
			out, err = r.part(l, part, near)
		}
		if err == nil && f.info.WorldSize != len(r.places) {
			out.Cut, err = l.cut(f.differ, rank, len(r.places))
		}
		if err != nil {
			r.Taken(rank)
			return nil, r.unread(f, err)
		}
	}
	out.Found, out.Step, out.Run, out.Score, out.WorldSize, out.Differ = true, f.info.Step, f.run, f.info.Score, f.info.WorldSize, f.differ
	if f.own {
		r.restored(rank, &out.Step, f.points)
	} else {
		r.restored(rank, nil, 0)
	}
	r.restores.mu.Lock()
	out.First, f.told = !f.told, true
	if out.State != 0 {
		r.restores.fetched[out.State] = true
	}
	r.restores.mu.Unlock()
	return out, nil
}

// load opens the data of all ranks' parts, unless that was done for another rank already. The rank reports with Taken
// that it has opened the file.
func (r *Checkpoints) load(rank int, f *found) *loaded {
	r.restores.mu.Lock()
	l := r.restores.loaded
	if l == nil || l.of != f {
		if l != nil && l.readers == 0 {
			r.giveLoaded(l)
		}
		l = &loaded{by: r, of: f}
		r.restores.loaded = l
	}
	l.readers++
	r.restores.reading[rank] = l
	r.restores.mu.Unlock()
	l.once.Do(func() {
		ranks := []int{0}
		if f.info.WorldSize == len(r.places) || len(f.differ) > 0 {
			for rank := 1; rank < f.info.WorldSize; rank++ {
				ranks = append(ranks, rank)
			}
		}
		if l.view, l.err = f.store.View(f.info.Run, f.info.Ref(), ranks); l.err == nil && l.view.Size > 0 {
			l.number = transfer.Number()
			r.Held.PutReader(l.number, l, l.view.Size)
		}
	})
	return l
}

// unread adds to an error in reading a checkpoint which checkpoint it is, and what to do.
func (r *Checkpoints) unread(f *found, err error) error {
	name := strings.TrimPrefix(f.run, "run ")
	if f.own {
		name = r.run.Name
	}
	return exit.WithHint(fmt.Errorf("step %d of run %s: %w", f.info.Step, name, err),
		fmt.Sprintf("drun checkpoints verify %s says what is damaged; drun checkpoints rm %s@%d removes this one, so that the one before it counts", name, name, f.info.Step))
}

// ReadAt is how nodes read a checkpoint, with errors worded for them.
func (l *loaded) ReadAt(p []byte, offset int64) (int, error) {
	n, err := l.view.ReadAt(p, offset)
	if err != nil {
		err = exit.WithCode(l.by.unread(l.of, err), exit.Storage)
	}
	return n, err
}

// giveLoaded gives back the memory of data that no rank reads.
func (r *Checkpoints) giveLoaded(l *loaded) {
	r.Held.Remove(l.number)
	if l.view != nil {
		l.view.Close()
	}
	r.regions.Give(l.region)
}

func (r *Checkpoints) part(l *loaded, rank int, near bool) (_ *engine.Restored, err error) {
	defer try.Caught(&err)
	out := &engine.Restored{}
	if near && l.view.Size > 0 {
		try.Ok(l.bring(l.view.Parts[rank], &r.regions))
		l.region.Lend(out)
	} else if l.view.Size > 0 {
		out.State, out.Size = l.number, l.view.Size
	}
	for _, e := range l.view.Parts[rank] {
		out.Entries = append(out.Entries, engine.Entry{Name: e.Name, DType: e.DType, Shape: e.Shape, Bytes: e.Bytes, Offset: e.Offset})
	}
	return out, nil
}

// bring loads entries into memory that ranks of this machine can open, unless they are there already. What no rank
// of this machine asks for takes no memory.
func (l *loaded) bring(part []checkpoints.Located, regions *transfer.Regions) (err error) {
	defer try.Caught(&err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.region == nil {
		l.region = try.To(regions.Take(l.view.Size))
		l.region.Holds, l.there = nil, map[int64]bool{}
	}
	for _, e := range part {
		if e.Bytes == 0 || l.there[e.Offset] {
			continue
		}
		try.Ok(l.view.Copy(l.region, e.Offset, e.Bytes))
		l.there[e.Offset] = true
	}
	return nil
}

// cut gives a rank, in a world of another size, its share of tensors that differ between the ranks that saved them:
// the rows of all of them, in rank order, are divided equally among the new ranks.
func (l *loaded) cut(differ []string, rank, world int) (cut []engine.Entry, err error) {
	defer try.Caught(&err)
	for _, name := range differ {
		var from []checkpoints.Located
		for _, part := range l.view.Parts {
			i := slices.IndexFunc(part, func(e checkpoints.Located) bool { return e.Name == name })
			if i < 0 || part[i].DType == "" || len(part[i].Shape) == 0 {
				break
			}
			from = append(from, part[i])
		}
		if len(from) < len(l.view.Parts) || slices.ContainsFunc(from, func(e checkpoints.Located) bool {
			return e.DType != from[0].DType || !slices.Equal(e.Shape, from[0].Shape)
		}) {
			continue
		}
		rows := from[0].Shape[0]
		if rows == 0 || rows*len(from)%world != 0 {
			continue
		}
		share, size := rows*len(from)/world, from[0].Bytes/int64(rows)
		e := engine.Entry{Name: name, DType: from[0].DType, Shape: append([]int{share}, from[0].Shape[1:]...)}
		if size > 0 {
			e.Data = make([]byte, int64(share)*size)
		}
		to := e.Data
		for at, end := rank*share, (rank+1)*share; at < end && size > 0; {
			part, n := from[at/rows], min(rows-at%rows, end-at)
			try.To(l.view.ReadAt(to[:int64(n)*size], part.Offset+int64(at%rows)*size))
			at, to = at+n, to[int64(n)*size:]
		}
		cut = append(cut, e)
	}
	return cut, nil
}

// find decides which checkpoint is meant: "last" is this run's own or, before it has saved one, that of --resume;
// others are looked for in this run and in those that it came from.
func (r *Checkpoints) find(step string, f *found) (err error) {
	defer try.Caught(&err)
	line := []history.Summary{{ID: r.run.ID, UID: r.run.UID, Name: r.run.Name}}
	if r.from != nil {
		line = append(line, r.from.line...)
	}
	ref := try.To(checkpoints.ParseRef(step))
	if f.memory = r.remembered(step); f.memory != nil {
		f.own, f.points = true, f.memory.points
		f.run = "this run, from memory"
		f.info = checkpoints.Info{Step: f.memory.step, Score: f.memory.parts[0].Score, WorldSize: len(r.places)}
		return nil
	}
	if r.from != nil && r.from.store != nil {
		return r.findReplayed(step, ref, f)
	}
	f.store = r.store
	if r.store == nil {
		if r.saved.any() { // there are some in memory, but not this one
			return noSuch(step, false)
		}
		f.none = true // neither resumed nor anything saved
		return nil
	}
	which := 0
	if step == "last" {
		f.info, err = r.store.Find(line[0].UID, ref)
		if errors.As(err, new(*checkpoints.ErrNone)) && r.from != nil {
			f.info, which, err = r.from.info, 1, nil
		}
	} else {
		runs := uids(line)
		f.info, err = r.store.Hold(func() (checkpoints.Info, error) { return r.store.FindAmong(runs, ref) })
		which = slices.Index(runs, f.info.Run)
	}
	if errors.As(err, new(*checkpoints.ErrNone)) {
		if !r.saved.any() && r.from == nil { // the first save failed
			f.none = true
			return nil
		}
		return noSuch(step, len(line) > 1)
	}
	if err != nil {
		return err
	}
	f.own = which == 0
	if f.run = "this run"; which > 0 {
		f.run = "run " + line[which].Name
	}
	if f.points = f.info.Points; f.points < 0 { // saved by an older drun
		f.points = r.attempt.before
	}
	if f.info.WorldSize != len(r.places) {
		f.differ, err = r.store.Differing(f.info.Run, f.info.Ref())
	}
	return err
}

func uids(line []history.Summary) []string {
	return each.Of(line, func(run history.Summary) string { return run.UID })
}

// remembered returns the checkpoint in memory, if that is the one asked for.
func (r *Checkpoints) remembered(step string) *snapshot {
	r.saved.mu.Lock()
	defer r.saved.mu.Unlock()
	if m := r.saved.memory; m != nil && (step == "last" || step == strconv.FormatInt(m.step, 10)) {
		return m
	}
	return nil
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
