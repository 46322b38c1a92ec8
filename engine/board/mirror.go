package board

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
)

// A run on several nodes has a board on each, on which only that node's ranks write. While ranks wait, the
// coordinator asks the other nodes in rounds for copies of their boards and writes them into its own, which thus
// shows all ranks as of the last round. The other boards hold only what their own ranks need to know of distant
// ranks: which have ended, and which wait for a message from here. They get the rest when a rank is about to make a
// report: see fetchFar.

// Mirror is a copy of ranks' parts of a board.
type Mirror struct {
	Now   int64 // the clock of the board
	Ranks []MirroredRank
}

// MirroredRank is one rank's part, in the layout of the board. A nil Slot or Names is unchanged.
type MirroredRank struct {
	Rank   int
	Slot   []byte
	Names  []byte            // packed
	Needs  []byte            // without its sets
	Sets   []byte            // packed; nil: unchanged if the wait is the same, else empty
	Ended  []uint32          `cbor:",omitempty"` // of the ranks in Sets, see traffic.go; nil if Sets is
	Flows  map[int][2]uint64 `cbor:",omitempty"` // started and received, of a rank that has returned; nil: unchanged
	Groups []MirroredGroup
}

// MirroredGroup is a rank's part of one group, with its journal only if that was asked for.
type MirroredGroup struct {
	ID      uint32
	Arrived uint64
	Entries []byte `cbor:",omitempty"` // of its journal, oldest first
	First   uint64 `cbor:",omitempty"` // number of the oldest
}

// shown is how many of a rank's latest calls of a group a mirror holds.
const shown = RecentCalls + 3

// Near says which ranks write on this board, those in [from, to); without it, all. Groups with other ranks compare
// their calls by a call of their own.
func (b *Board) Near(from, to int) { b.near = [2]int{from, to} }

// isNear reports whether a rank writes on this board.
func (b *Board) isNear(rank int) bool {
	return b.near == [2]int{} || rank >= b.near[0] && rank < b.near[1]
}

// fetchFar has the agents copy the other nodes' boards to this one, before a rank
// makes a report from it.
func (g *guard) fetchFar() {
	if !slices.ContainsFunc(g.ranks, func(r int) bool { return !g.board.isNear(r) }) {
		return
	}
	h := g.board.head
	ask := h.asks.Add(1)
	for end := time.Now().Add(farGrace); int32(h.told.Load()-ask) < 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Asks counts how often ranks of this board have asked for the other boards; wanted is false once all of these
// requests were answered. See [Board.Tell].
func (b *Board) Asks() (n uint32, wanted bool) {
	n = b.head.asks.Load()
	return n, n != b.head.told.Load()
}

// Tell notes that the requests up to number n were answered.
func (b *Board) Tell(n uint32) { b.head.told.Store(n) }

// Stuck reports whether a rank of this node has waited for that long.
func (b *Board) Stuck(long time.Duration) bool {
	for rank := range b.world {
		if !b.isNear(rank) {
			continue
		}
		if b.needsOf(rank).outside.Load() != 0 || b.State(rank) == collective.Waiting && b.Row(rank).For >= long {
			return true
		}
	}
	return false
}

// Awaits gives a value that changes with each wait of the rank for a message from one of these ranks, and whenever
// more such messages have ended; 0: it waits for none.
func (b *Board) Awaits(rank int, from []int) uint64 {
	n := b.needsOf(rank)
	if n.message.Load() == 0 || !slices.ContainsFunc(from, n.ranks.has) {
		return 0
	}
	ended := uint32(0)
	for _, other := range from {
		ended += b.ended(rank, other).Load()
	}
	return n.mark.Load()<<32 | uint64(ended)
}

// Show copies these ranks' parts of the board; nil stands for the ranks of this node. all includes the journals of
// all their groups, not only of the latest.
func (b *Board) Show(ranks []int, all bool) *Mirror {
	m := &Mirror{Now: now()}
	if ranks == nil {
		for rank := range b.world {
			if b.isNear(rank) {
				ranks = append(ranks, rank)
			}
		}
	}
	for _, rank := range ranks {
		s := b.slot(rank)
		needed := slices.Clone(b.needsBytes(rank))
		r := MirroredRank{Rank: rank, Slot: slices.Clone(bytesOf(s)), Needs: needed[:headBytes]}
		if n := needsIn(needed, b.world); n.mark.Load() != 0 {
			r.Sets = pack(needed[headBytes:])
			if n.message.Load() != 0 {
				for other := range n.ranks.all {
					r.Ended = append(r.Ended, b.ended(rank, other).Load())
				}
			}
		}
		if b.State(rank) == collective.Returned && b.needsOf(rank).spoke.Load() != 0 {
			r.Flows = map[int][2]uint64{}
			for other := range b.world {
				f := b.flow(rank, other)
				if counts := [2]uint64{f.started.Load(), f.received.Load()}; counts != [2]uint64{} {
					r.Flows[other] = counts
				}
			}
		}
		r.Names = pack(b.mem[b.namesAt+rank*tableSize:][:tableSize])
		for id := range b.head.groups.Load() {
			if g, ok := b.showGroup(rank, id, all || id == s.group); ok {
				r.Groups = append(r.Groups, g)
			}
		}
		m.Ranks = append(m.Ranks, r)
	}
	return m
}

// Shorten removes the sets of ranks that the ranks wait for, whose size grows with the world, except those that a
// report of this circle names.
func (m *Mirror) Shorten(circle []Wait) {
	for i := range m.Ranks {
		r := &m.Ranks[i]
		if !slices.ContainsFunc(circle[:min(len(circle), mostNamed)], func(w Wait) bool { return w.Rank == r.Rank }) {
			r.Sets, r.Ended = nil, nil
		}
	}
}

func (b *Board) showGroup(rank int, id uint32, journal bool) (g MirroredGroup, ok bool) {
	w, err := b.window(id)
	if err != nil {
		return g, false
	}
	l := w.line(rank)
	calls := l.calls.Load()
	if calls == 0 {
		return g, false
	}
	g = MirroredGroup{ID: id, Arrived: l.arrived.Load()}
	if !journal {
		return g, true
	}
	g.First = calls - min(calls, shown)
	for n := g.First; n < calls; n++ {
		e := w.entry(rank, n, b.world)
		copied := bytesOf(e)
		for range 1000 {
			ver := e.ver.Load()
			copied = slices.Clone(bytesOf(e))
			sharedmem.LoadFence()
			if ver%2 == 0 && e.ver.Load() == ver {
				break
			}
			sharedmem.Pause()
		}
		g.Entries = append(g.Entries, copied...)
	}
	return g, true
}

// Adopt writes a copy of another node's board into this one. Parts that do not fit this board are skipped.
func (b *Board) Adopt(m *Mirror) {
	shift := now() - m.Now
	for i := range m.Ranks {
		r := &m.Ranks[i]
		if r.Rank < 0 || r.Rank >= b.world || b.isNear(r.Rank) || b.isOver(r.Rank) ||
			r.Slot != nil && len(r.Slot) != int(unsafe.Sizeof(slot{})) || len(r.Needs) != headBytes {
			continue
		}
		sets := make([]byte, needsBytes(b.world)-headBytes)
		if r.Sets != nil {
			var fit bool
			if sets, fit = unpack(r.Sets, len(sets)); !fit {
				continue
			}
		}
		if r.Names != nil {
			names, fit := unpack(r.Names, tableSize)
			if !fit {
				continue
			}
			copy(b.mem[b.namesAt+r.Rank*tableSize:], names)
		}
		for _, g := range r.Groups {
			b.adoptGroup(r.Rank, &g, shift)
		}
		for other, counts := range r.Flows {
			if other < 0 || other >= b.world {
				continue
			}
			f := b.flow(r.Rank, other)
			f.started.Store(counts[0])
			f.received.Store(counts[1])
			b.needsOf(r.Rank).spoke.Store(1)
		}
		if r.Slot != nil {
			from, to := as[slot](r.Slot), b.slot(r.Rank)
			if from.since != 0 {
				to.since = from.since + shift
			}
			to.file, to.line, to.col, to.note = from.file, from.line, from.col, from.note
			to.group = from.group
			to.calls.Store(from.calls.Load())
			to.state.Store(from.state.Load())
		}
		n, own := needsIn(aligned(slices.Concat(r.Needs, sets)), b.world), b.needsOf(r.Rank)
		for i := range own.ranks {
			if r.Sets == nil && own.mark.Load() == n.mark.Load() {
				break // it is already known whom this wait is for
			}
			own.ranks[i].Store(n.ranks[i].Load())
			own.moving[i].Store(n.moving[i].Load())
		}
		i := 0
		for other := range own.ranks.all {
			if i == len(r.Ended) || other >= b.world {
				break
			}
			b.ended(r.Rank, other).Store(r.Ended[i])
			i++
		}
		own.message.Store(n.message.Load())
		own.looks.Store(n.looks.Load())
		own.any.Store(n.any.Load())
		own.outside.Store(n.outside.Load())
		own.group.Store(n.group.Load())
		own.seq.Store(n.seq.Load())
		own.mark.Store(n.mark.Load())
	}
}

// isOver reports whether the agent knows that the rank has ended other than by returning: a copy of its part is
// then out of date.
func (b *Board) isOver(rank int) bool {
	state := b.State(rank)
	return state.Over() && state != collective.Returned
}

func (b *Board) adoptGroup(rank int, g *MirroredGroup, shift int64) {
	const size = int(unsafe.Sizeof(entry{}))
	w, err := b.window(g.ID)
	if err != nil || len(g.Entries)%size != 0 || len(g.Entries) > journalLen*size {
		return
	}
	for i := range len(g.Entries) / size {
		from := as[entry](g.Entries[i*size:][:size])
		if from.began != 0 {
			from.began += shift
		}
		if from.ended != 0 {
			from.ended += shift
		}
		to := w.entry(rank, g.First+uint64(i), b.world)
		to.ver.Add(1)
		sharedmem.StoreFence()
		const ver = unsafe.Sizeof(atomic.Uint32{})
		copy(bytesOf(to)[ver:], bytesOf(from)[ver:])
		to.ver.Add(1)
	}
	b.use(g.ID)
	to := w.line(rank)
	if len(g.Entries) > 0 {
		to.calls.Store(g.First + uint64(len(g.Entries)/size))
	}
	to.arrived.Store(g.Arrived)
}

// Cause gives the cause with which the board was aborted, for other nodes' boards; ok is false if it was not
// aborted.
func (b *Board) Cause() (by int, cause []byte, ok bool) {
	if b.head.aborting.Load() != abortReady {
		return 0, nil, false
	}
	return int(b.head.abortBy), slices.Clone(b.mem[causeAt:][:min(int(b.head.causeLen), b.causeSize)]), true
}

// AbortAs aborts the board with a cause that [Board.Cause] gave on another.
func (b *Board) AbortAs(by int, cause []byte) bool { return b.Abort(by, decode(cause)) }

func bytesOf[T any](p *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

// aligned copies bytes that came over a link to memory aligned for 64-bit numbers.
func aligned(data []byte) []byte {
	words := make([]uint64, (len(data)+7)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(data))
	copy(mem, data)
	return mem
}

// as copies bytes that came over a link into a value of the layout.
func as[T any](data []byte) *T {
	v := new(T)
	copy(bytesOf(v), data)
	return v
}
