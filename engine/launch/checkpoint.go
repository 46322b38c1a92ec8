package launch

import (
	"fmt"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/history"
)

// savedEvent is the end of a save, which runs beside the agent's loop.
type savedEvent struct {
	step int64
	err  error
}

// save collects the ranks' parts of a checkpoint; with the last it is stored.
func (a *agent) save(rank int, part *engine.Part) {
	if a.saves == nil {
		a.saves = map[int64]map[int]*engine.Part{}
	}
	parts := a.saves[part.Step]
	if parts == nil {
		parts = map[int]*engine.Part{}
		a.saves[part.Step] = parts
	}
	parts[rank] = part
	if len(parts) < a.world {
		return
	}
	delete(a.saves, part.Step)
	a.pending.Go(func() {
		err := a.storeParts(part.Step, parts)
		a.events <- event{saved: &savedEvent{part.Step, err}}
	})
}

func (a *agent) storeParts(step int64, parts map[int]*engine.Part) (err error) {
	if a.store == nil {
		if a.store, err = checkpoints.Open(a.o.Home); err != nil {
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
	if err := a.keeper.sync(); err != nil {
		return err
	}
	if err := history.Sync(a.o.Home, a.record.UID); err != nil {
		return err
	}
	info, err := a.store.Save(a.record.UID, step, parts[0].Score, byRank)
	if err != nil {
		return err
	}
	a.keeper.add(1, 0, func(b *history.Batch) {
		b.Checkpoints = append(b.Checkpoints, history.Checkpoint{Step: step, Bytes: info.Bytes, Score: (*history.Float)(info.Score), Time: time.Now()})
	})
	return a.keeper.sync()
}

// reply tells every rank how its save ended.
func (a *agent) reply(s *savedEvent) {
	a.saved++
	msg := &engine.ToWorker{Saved: &engine.Saved{}}
	if s.err != nil {
		msg.Saved.Error = fmt.Sprintf("checkpoint of step %d: %v", s.step, s.err)
	}
	for _, p := range a.procs {
		if !p.exited {
			p.send(msg)
		}
	}
}
