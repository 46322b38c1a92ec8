package node

import (
	"fmt"
	"sync"

	"drun/engine"
	"drun/engine/cluster"
	"drun/engine/transfer"
	"drun/internal/exit"
)

// handedOver is what this node's ranks have handed over, kept until the coordinator, on another machine, has asked
// for what it needs. It outlives the attempt.
type handedOver struct {
	link   cluster.Link[cluster.ToNode, cluster.ToCoordinator]
	held   transfer.Held
	pool   transfer.Regions
	saves  map[uint64]*save
	source *transfer.Source // the coordinator, which has the states that ranks restore
}

// save is a state that ranks hand over.
type save struct {
	region *transfer.Region
	open   map[int]bool // ranks that have not handed over yet
}

func newHandedOver(link cluster.Link[cluster.ToNode, cluster.ToCoordinator]) *handedOver {
	return &handedOver{link: link, saves: map[uint64]*save{},
		source: transfer.NewSource("the coordinator", func(w *transfer.Want) { link.Send(&cluster.ToCoordinator{Want: w}) })}
}

// ask gives a rank memory of this node to write its state to.
func (h *handedOver) ask(rank int, to *engine.HandOver) error {
	s := h.saves[to.State]
	if s == nil {
		region, err := h.pool.Take(to.Size)
		if err != nil {
			return err
		}
		s = &save{region, map[int]bool{}}
		h.saves[to.State] = s
		h.held.Put(to.State, region)
	}
	s.open[rank] = true
	s.region.Ask(to)
	return nil
}

func (h *handedOver) take(rank int) {
	for _, s := range h.saves {
		delete(s.open, rank)
	}
}

func (h *handedOver) forget(state uint64) {
	s := h.saves[state]
	if s == nil {
		return
	}
	delete(h.saves, state)
	h.held.Remove(state)
	if len(s.open) > 0 { // a rank may still write to it
		s.region.Close()
		return
	}
	h.pool.Give(s.region)
}

func (h *handedOver) close() {
	for state := range h.saves {
		h.forget(state)
	}
	h.pool.Close()
}

// restored is a state that ranks of this node restore from memory they share: each part of it comes over the link
// once.
type restored struct {
	region  *transfer.Region
	readers int // ranks that have not opened it yet

	mu sync.Mutex
	at map[transfer.Range]int64 // where each range of the coordinator's memory lies here
}

// restore fetches a rank's part of a state and passes it on to the rank.
func (n *node) restore(p *process, state *engine.Restored) {
	r := n.restores[state.State]
	if r == nil {
		for number, other := range n.restores {
			if other.readers == 0 {
				n.forgetRestored(number)
			}
		}
		region, err := n.handed.pool.Take(state.Size)
		if err != nil {
			p.send(&engine.ToWorker{State: &engine.Restored{Error: err.Error(), Code: exit.Storage}})
			return
		}
		region.Used = 0 // it holds nothing of this state yet
		r = &restored{region: region, at: map[transfer.Range]int64{}}
		n.restores[state.State] = r
	}
	if before := n.reading[p.rank]; before != nil {
		before.readers--
	}
	r.readers++
	n.reading[p.rank] = r
	go func() {
		if err := r.fetch(state, n.handed.source); err != nil {
			state = &engine.Restored{Error: err.Error(), Code: exit.CodeOf(exit.WithCode(err, exit.RankLost)), Hint: exit.HintOf(err)}
		}
		p.send(&engine.ToWorker{State: state})
	}()
}

// fetch gets what other ranks have not yet fetched of a rank's part, and says where the part lies.
func (r *restored) fetch(state *engine.Restored, source *transfer.Source) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	const align = 64
	for i := range state.Entries {
		e := &state.Entries[i]
		if e.Bytes == 0 {
			continue
		}
		of := transfer.Range{Offset: e.Offset, Bytes: e.Bytes}
		at, there := r.at[of]
		if !there {
			at = (r.region.Used + align - 1) / align * align
			if e.Bytes < 0 || e.Bytes > int64(len(r.region.Mem))-at {
				return fmt.Errorf("%q has %d bytes, which a state of %d does not hold", e.Name, e.Bytes, state.Size)
			}
			if err := source.Copy(r.region, at, state.State, of); err != nil {
				return err
			}
			r.region.Used, r.at[of] = at+e.Bytes, at
		}
		e.Offset = at
	}
	r.region.Lend(state)
	state.State = 0
	return nil
}

// opened notes that a rank has opened what it restores.
func (n *node) opened(rank int) {
	if r := n.reading[rank]; r != nil {
		r.readers--
		delete(n.reading, rank)
	}
}

// forgetRestored closes a state; a rank that has opened it keeps its memory.
func (n *node) forgetRestored(state uint64) {
	if r := n.restores[state]; r != nil {
		r.region.Close()
		delete(n.restores, state)
	}
}
