package record

import (
	"bytes"
	"fmt"
	"slices"
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
	region *region // the parts' data
}

// part gives a copy of a rank's part.
func (s *snapshot) part(rank int) ([]engine.Entry, error) {
	if s.region != nil {
		s.region.mu.RLock()
		defer s.region.mu.RUnlock()
		if s.region.mem == nil {
			return nil, fmt.Errorf("the checkpoint of step %d is no longer in memory", s.step)
		}
	}
	entries := slices.Clone(s.parts[rank].Entries)
	for i := range entries {
		entries[i].Data = bytes.Clone(entries[i].Data)
	}
	return entries, nil
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
// in the background, once all data has been handed over.
func (r *Record) Save(rank int, part *engine.Part, ranks Ranks) {
	s := r.saving
	if s == nil {
		s = newSaving()
		r.saving = s
	}
	s.parts[rank] = part
	r.beginsFrom(rank, nil, 0) // unless it has restored a state
	if len(s.parts) < len(r.places) {
		return
	}
	s.points = r.attempt.count() // every rank waits, so these were recorded before it
	size, err := s.share(ranks.Near)
	if err == nil && size > 0 {
		s.region, err = newRegion(int(size))
	}
	if err != nil {
		r.saving = nil
		r.failed(part.Step, err, ranks)
		return
	}
	for rank, spans := range s.asked {
		ask := &engine.HandOver{Spans: spans}
		if s.region != nil && ranks.Near(rank) {
			ask.File = s.region.path()
		}
		ranks.Ask(rank, ask)
	}
	r.complete(ranks)
}

// Handed takes what a rank has handed over.
func (r *Record) Handed(rank int, m *engine.Handed, ranks Ranks) {
	if r.saving == nil {
		return
	}
	if _, asked := r.saving.asked[rank]; asked {
		r.saving.take(rank, m)
		r.complete(ranks)
	}
}

// complete stores the checkpoint if all its data is there.
func (r *Record) complete(ranks Ranks) {
	s := r.saving
	if len(s.asked) > 0 {
		return
	}
	r.saving = nil
	step := s.parts[0].Step
	if s.err == nil {
		s.err = s.fill()
	}
	if s.err != nil {
		s.region.close()
		r.failed(step, s.err, ranks)
		return
	}
	r.pending.Go(func() {
		if s.parts[0].Memory {
			r.remember(&snapshot{step, s.points, s.parts, s.region})
			ranks.Saved(step, nil)
			return
		}
		err := r.storeParts(step, s.points, s.parts)
		s.region.close()
		ranks.Saved(step, err)
	})
}

// failed tells of a save that could not begin.
func (r *Record) failed(step int64, err error, ranks Ranks) {
	r.pending.Go(func() { ranks.Saved(step, err) })
}

// abandon lets go of a checkpoint that not all ranks have come to.
func (r *Record) abandon() {
	if r.saving != nil {
		r.saving.region.close()
		r.saving = nil
	}
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
	r.saved.replace(s)
}

// replace puts a checkpoint in memory, or none, in place of the one before.
func (s *saved) replace(by *snapshot) {
	s.mu.Lock()
	old := s.memory
	s.memory = by
	s.mu.Unlock()
	if old != nil {
		old.region.close()
	}
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
	r.saved.points[step] = points
	r.saved.mu.Unlock()
	r.saved.replace(nil)
	r.writer.add(1, 0, func(b *history.Batch) {
		b.Removed = append(b.Removed, gone...)
		b.Checkpoints = append(b.Checkpoints, history.Checkpoint{Step: step, Bytes: info.Bytes, Score: (*history.Float)(info.Score), Time: time.Now(), Points: points})
	})
	return r.writer.sync()
}
