package record

import (
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/history"
)

// Save collects the ranks' parts of a checkpoint. With the last part it is stored,
// in the background, and done is told how that ended.
func (r *Record) Save(rank int, part *engine.Part, done func(step int64, err error)) {
	parts := r.parts[part.Step]
	if parts == nil {
		parts = map[int]*engine.Part{}
		r.parts[part.Step] = parts
	}
	parts[rank] = part
	if len(parts) < len(r.places) {
		return
	}
	delete(r.parts, part.Step)
	r.pending.Go(func() { done(part.Step, r.storeParts(part.Step, parts)) })
}

func (r *Record) storeParts(step int64, parts map[int]*engine.Part) (err error) {
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
	r.writer.add(1, 0, func(b *history.Batch) {
		b.Removed = append(b.Removed, gone...)
		b.Checkpoints = append(b.Checkpoints, history.Checkpoint{Step: step, Bytes: info.Bytes, Score: (*history.Float)(info.Score), Time: time.Now()})
	})
	return r.writer.sync()
}
