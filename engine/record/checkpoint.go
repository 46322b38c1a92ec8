package record

import (
	"bytes"
	"sync"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/history"
)

// saved are the complete checkpoints that this process has of the run.
type saved struct {
	mu     sync.Mutex
	points map[int64]int64 // by step, of the durable ones: points of the run before it
	memory *snapshot       // the newest in memory, unless a durable one is newer
}

// snapshot is a checkpoint in memory.
type snapshot struct {
	step   int64
	points int64 // of the run before it
	parts  map[int]*engine.Part
}

// any tells whether there is one.
func (s *saved) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory != nil || len(s.points) > 0
}

// before is how many points the run had recorded before the durable checkpoint of a step, and
// whether there are any.
func (s *saved) before(step int64) (points int64, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.points[step], len(s.points) > 0
}

// Saved tells whether the run has a checkpoint on disk.
func (r *Record) Saved() bool {
	_, any := r.saved.before(0)
	return any
}

// Save collects the ranks' parts of a checkpoint. With the last part it is stored,
// in the background, and done is told how that ended.
func (r *Record) Save(rank int, part *engine.Part, done func(step int64, err error)) {
	parts := r.parts[part.Step]
	if parts == nil {
		parts = map[int]*engine.Part{}
		r.parts[part.Step] = parts
	}
	parts[rank] = part
	r.beginsFrom(rank, nil, 0) // unless it has restored a state
	if len(parts) < len(r.places) {
		return
	}
	delete(r.parts, part.Step)
	points := r.attempt.count() // every rank waits, so these were recorded before it
	r.pending.Go(func() {
		if part.Memory {
			r.remember(&snapshot{part.Step, points, parts})
			done(part.Step, nil)
			return
		}
		done(part.Step, r.storeParts(part.Step, points, parts))
	})
}

// remember replaces the checkpoint in memory. What several ranks have alike is kept once.
func (r *Record) remember(s *snapshot) {
	first := map[string][]byte{}
	for _, e := range s.parts[0].Entries {
		first[e.Name] = e.Data
	}
	for _, part := range s.parts {
		for i := range part.Entries {
			if e := &part.Entries[i]; bytes.Equal(e.Data, first[e.Name]) {
				e.Data = first[e.Name]
			}
		}
	}
	r.saved.mu.Lock()
	defer r.saved.mu.Unlock()
	r.saved.memory = s
}

func (r *Record) storeParts(step, points int64, parts map[int]*engine.Part) (err error) {
	if r.store == nil {
		if r.store, err = checkpoints.Open(r.home); err != nil {
			return err
		}
	}
	byRank := make(map[int][]checkpoints.Entry, len(parts))
	for rank, p := range parts {
		for _, e := range p.Entries {
			kind := "tensor"
			if e.DType == "" {
				kind = "value"
			}
			byRank[rank] = append(byRank[rank], checkpoints.Entry{Name: e.Name, Kind: kind, DType: e.DType, Shape: e.Shape, Data: e.Data})
		}
	}
	// What the ranks recorded before, on their own channels ahead of their parts, is
	// stored before: a run that goes on from here does not record it again.
	if err := r.writer.sync(); err != nil {
		return err
	}
	if err := history.Sync(r.home, r.run.UID); err != nil {
		return err
	}
	info, err := r.store.Save(r.run.UID, step, parts[0].Score, byRank)
	if err != nil {
		return err
	}
	var gone []int64
	if r.newest > 0 {
		if gone, err = r.store.Keep(r.run.UID, r.newest); err != nil {
			return err
		}
	}
	r.saved.mu.Lock()
	r.saved.points[step], r.saved.memory = points, nil
	r.saved.mu.Unlock()
	r.writer.add(1, 0, func(b *history.Batch) {
		b.Removed = append(b.Removed, gone...)
		b.Checkpoints = append(b.Checkpoints, history.Checkpoint{Step: step, Bytes: info.Bytes, Score: (*history.Float)(info.Score), Time: time.Now(), Points: points})
	})
	return r.writer.sync()
}
