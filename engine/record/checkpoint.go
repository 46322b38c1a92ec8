package record

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/rendezvous"
	"drun/engine/transfer"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Checkpoints are those of the run: what its ranks save and restore.
type Checkpoints struct {
	rows
	// Held is what other nodes may ask for to restore their ranks.
	Held transfer.Held

	newest   int // see Config.Keep
	places   []rendezvous.Placement
	store    *checkpoints.Store
	from     *origin        // of --resume
	pending  sync.WaitGroup // saves and restores under way
	next     *saving        // not all ranks have come to it, or it waits for the one in flight
	flight   *saving        // being handed over or stored
	begun    int            // saves that were handed over, or are being handed over
	saves    int            // saves that were handed over
	saved    saved
	regions  transfer.Regions
	restores *restores
}

// saved tells which complete checkpoints this process has of the run.
type saved struct {
	mu      sync.Mutex
	durable bool      // there are some on disk
	failed  error     // why a checkpoint is not stored
	lost    error     // why a checkpoint is not stored: its data was on a node that is gone
	lostIn  int       // the attempt in which that happened
	memory  *snapshot // the newest in memory, unless a durable one is newer
}

// snapshot is a checkpoint in memory.
type snapshot struct {
	step   int64
	points int64 // of the run before the checkpoint
	parts  map[int]*engine.Part
	region *transfer.Region // the parts' data
	number uint64           // of the state, for nodes that ask for it
}

func (s *snapshot) part(rank int, near bool) *engine.Restored {
	out := &engine.Restored{Entries: slices.Clone(s.parts[rank].Entries)}
	in := s.region != nil && s.parts[rank].Apart
	if in && near {
		s.region.Lend(out)
	} else if in {
		out.State, out.Size = s.number, s.region.Used
	}
	for i := range out.Entries {
		if e := &out.Entries[i]; in {
			e.Data = nil
		} else {
			e.Data = bytes.Clone(e.Data)
		}
	}
	return out
}

func (s *saved) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory != nil || s.durable
}

// Saved reports whether the run has a checkpoint on disk.
func (r *Checkpoints) Saved() bool {
	r.saved.mu.Lock()
	defer r.saved.mu.Unlock()
	return r.saved.durable
}

// Save collects the ranks' parts of a checkpoint. After the last part, and once the previous save has ended, the
// ranks hand over their data and go on; the checkpoint is then stored in the background.
func (r *Checkpoints) Save(rank int, part *engine.Part, ranks Ranks) {
	if r.next == nil {
		s := newSaving()
		r.next = s
		s.await(ranks, part.Step, "to save it", func() (missing []int) {
			for rank := range r.places {
				if s.parts[rank] == nil {
					missing = append(missing, rank)
				}
			}
			return missing
		})
	}
	r.next.parts[rank] = part
	r.decideBySaving(rank)
	if len(r.next.parts) == len(r.places) {
		r.next.come()
		r.next.points = r.attempt.count() // every rank waits, so these were recorded before the save
		r.begin(ranks)
	}
}

// begin lets the ranks hand over the next checkpoint, if all have come to it and none is in flight.
func (r *Checkpoints) begin(ranks Ranks) {
	s := r.next
	if s == nil || len(s.parts) < len(r.places) || r.flight != nil {
		return
	}
	r.next = nil
	for _, state := range r.forgetRestores() { // no rank is reading
		ranks.Forget(state)
	}
	err := r.SaveError()
	if err == nil {
		err = s.prepare(ranks.Near, &r.regions)
		s.attempt, s.forget = r.attempt.number, func() { ranks.Forget(s.number) }
	}
	if err != nil {
		for rank := range r.places {
			ranks.Taken(rank, err)
		}
		return
	}
	r.flight = s
	r.begun++
	for rank := range r.places {
		spans, asked := s.asked[rank]
		if !asked {
			ranks.Taken(rank, nil)
			continue
		}
		ask := &engine.HandOver{Spans: spans}
		if s.region != nil && ranks.Near(rank) {
			s.region.Ask(ask)
		} else if s.region != nil {
			s.nodes[rank] = ranks.Node(rank)
			ask.State, ask.Size = s.number, s.region.Used
		}
		ranks.Ask(rank, ask)
	}
	if len(s.asked) > 0 {
		s.await(ranks, s.parts[0].Step, "to hand over its state", func() []int { return slices.Collect(maps.Keys(s.asked)) })
	}
	r.complete(ranks)
}

func (r *Checkpoints) Handed(rank int, m *engine.Handed, ranks Ranks) {
	if r.flight == nil {
		return
	}
	if _, asked := r.flight.asked[rank]; asked {
		r.flight.take(rank, m)
		r.complete(ranks)
	}
}

// complete stores the checkpoint in flight once all its data has arrived.
func (r *Checkpoints) complete(ranks Ranks) {
	s := r.flight
	if len(s.asked) > 0 {
		return
	}
	s.come()
	r.saves++
	r.pending.Go(func() {
		step := s.parts[0].Step
		err := s.err
		s.sort()
		if err == nil && s.parts[0].Memory {
			err = s.bringAll()
		}
		if err == nil {
			err = s.fill()
		}
		var chunks map[int64][]checkpoints.Chunk
		if err == nil {
			chunks, err = s.chunks()
		}
		if err == nil && s.region != nil {
			if len(s.distant) == 0 {
				s.region.Written = max(s.region.Written, s.region.Used)
			}
			s.hold()
		}
		switch {
		case err != nil:
			r.regions.Give(s.region)
		case s.parts[0].Memory:
			r.remember(&snapshot{step, s.points, s.parts, s.region, s.number})
		default:
			err = r.storeParts(step, s.points, s.parts, chunks)
			r.regions.Give(s.region)
		}
		s.forget()
		if err != nil {
			r.saved.fail(exit.WithCode(fmt.Errorf("checkpoint of step %d: %w", step, err), exit.Storage), s.attempt)
		}
		close(s.ended)
		ranks.Saved(step, err)
	})
}

// Saves counts the checkpoints that all ranks have handed over.
func (r *Checkpoints) Saves() int { return r.saves }

// SaveEnded notes that the save in flight has ended, so that the next may begin.
func (r *Checkpoints) SaveEnded(ranks Ranks) {
	r.flight = nil
	r.begin(ranks)
}

// Abandon drops checkpoints that the ranks had not handed over when they ended.
func (r *Checkpoints) Abandon() {
	if r.next != nil {
		r.next.come()
		r.next = nil
	}
	if s := r.flight; s != nil && len(s.asked) > 0 {
		s.come()
		if s.region != nil {
			s.region.Close() // a rank may still write to it
		}
		s.forget()
		close(s.ended)
	}
	r.flight = nil
}

// SaveError returns why a checkpoint that ranks have handed over is not stored, or nil.
func (r *Checkpoints) SaveError() error {
	r.saved.mu.Lock()
	defer r.saved.mu.Unlock()
	if r.saved.lost != nil && r.saved.lostIn == r.attempt.number {
		return r.saved.lost
	}
	return r.saved.failed
}

// fail notes the first failure. The loss of a node fails only that attempt: the next goes on from an older
// checkpoint.
func (s *saved) fail(err error, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.As(err, new(*transfer.GoneError)) {
		s.lost, s.lostIn = exit.WithCode(err, exit.RankLost), attempt
	} else if s.failed == nil {
		s.failed = err
	}
}

// remember replaces the checkpoint in memory by s, which may be nil.
func (r *Checkpoints) remember(s *snapshot) {
	r.saved.mu.Lock()
	old := r.saved.memory
	r.saved.memory = s
	r.saved.mu.Unlock()
	if s != nil && s.region != nil {
		r.Held.Put(s.number, s.region)
	}
	if old != nil {
		r.Held.Remove(old.number)
		r.regions.Give(old.region)
	}
}

func (r *Checkpoints) storeParts(step, points int64, parts map[int]*engine.Part, chunks map[int64][]checkpoints.Chunk) (err error) {
	defer try.Caught(&err)
	if r.store == nil {
		r.store = try.To(checkpoints.Open(r.home))
	}
	// What the ranks recorded earlier arrived before their parts, and is stored first: a run that goes on from here
	// does not record it again.
	try.Ok(r.writer.sync())
	try.Ok(history.Sync(r.home, r.run.UID))
	info := try.To(r.store.SaveAfter(points, r.run.UID, step, parts[0].Score, entriesOf(parts, chunks)))
	r.saved.mu.Lock()
	r.saved.durable = true
	r.saved.mu.Unlock()
	r.remember(nil)
	r.writer.add(1, 0, func(b *history.Batch) {
		b.Checkpoints = append(b.Checkpoints, history.Checkpoint{Step: step, Bytes: info.Bytes, Score: (*records.Float)(info.Score), Time: time.Now(), Points: points})
	})
	if r.newest > 0 {
		gone := try.To(r.store.Keep(r.run.UID, r.newest))
		r.writer.add(len(gone), 0, func(b *history.Batch) { b.Removed = append(b.Removed, gone...) })
	}
	return r.writer.sync()
}

// Preserve stores the newest checkpoint if it is only in memory, so that a run that did not end well can be resumed
// from it.
func (r *Checkpoints) Preserve() error {
	r.saved.mu.Lock()
	m, failed := r.saved.memory, r.saved.failed
	r.saved.mu.Unlock()
	if m == nil || failed != nil {
		return nil
	}
	err := bounded(r.home, saveFactor*r.atMost, r.writer.hurry, func() error { return r.storeParts(m.step, m.points, m.parts, nil) })
	if err != nil {
		return fmt.Errorf("the checkpoint of step %d, which was in memory, could not be stored: %w", m.step, err)
	}
	r.Say(fmt.Sprintf("drun: the checkpoint of step %d was in memory, and is on disk now", m.step))
	return nil
}

// entriesOf returns the ranks' parts in the store's form; chunks stand for data that is not all here.
func entriesOf(parts map[int]*engine.Part, chunks map[int64][]checkpoints.Chunk) map[int][]checkpoints.Entry {
	byRank := make(map[int][]checkpoints.Entry, len(parts))
	for rank, p := range parts {
		for _, e := range p.Entries {
			kind := "tensor"
			if e.DType == "" {
				kind = "value"
			}
			to := checkpoints.Entry{Name: e.Name, Kind: kind, DType: e.DType, Shape: e.Shape, Data: e.Data}
			if list := chunks[e.Offset]; list != nil && e.Bytes > 0 {
				to.Data, to.Chunks = nil, list
			}
			byRank[rank] = append(byRank[rank], to)
		}
	}
	return byRank
}
