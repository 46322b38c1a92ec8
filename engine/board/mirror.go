package board

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"

	"github.com/klauspost/compress/s2"
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

// MirroredRank is one rank's part. A part of it that is missing is unchanged.
type MirroredRank struct {
	Rank  int
	Parts map[uint32][]byte
}

// The parts of a rank, in the layout of the board or packed.
const (
	slotPart  uint32 = iota
	namesPart        // packed
	needsPart        // without the sets
	// setsPart is the sets of a wait: its mark, the size of what follows, for each rank in the set the messages that have
	// ended (see traffic.go), and the sets, packed. Where it is missing they are unchanged if the wait is, else empty.
	setsPart
	flowsPart // for each rank that it has spoken to, once it has returned: the rank, messages started and received
	// groupParts begins two parts of each group: the journal, if it was asked for, as the number of its oldest entry and
	// the entries, and how far the rank has arrived.
	groupParts
)

var order = binary.LittleEndian

// shown is how many of a rank's latest calls of a group a mirror holds.
const shown = RecentCalls + 3

// Near says which ranks write on this board, those in [from, to); without it, all. Groups with other ranks compare
// their calls through the backend, see exchanger.
func (b *Board) Near(from, to int) { b.near = [2]int{from, to} }

func (b *Board) isNear(rank int) bool {
	return b.near == [2]int{} || rank >= b.near[0] && rank < b.near[1]
}

// fetchFar has the agents copy the other nodes' boards to this one, before a rank makes a report from it.
func (g *guard) fetchFar() {
	if slices.ContainsFunc(g.ranks, func(r int) bool { return !g.board.isNear(r) }) {
		ask := g.board.head.asks.Add(1)
		within(farGrace, func() bool { return int32(g.board.head.told.Load()-ask) >= 0 })
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
	return slices.ContainsFunc(collective.AllRanks(b.world), func(rank int) bool {
		waits := b.State(rank) == collective.Waiting && since(b.slot(rank).entered) >= long
		return b.isNear(rank) && (waits || b.needsOf(rank).outside.Load() != 0)
	})
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
		ranks = slices.DeleteFunc(collective.AllRanks(b.world), func(rank int) bool { return !b.isNear(rank) })
	}
	for _, rank := range ranks {
		s, needed := b.slot(rank), slices.Clone(b.needsBytes(rank))
		needsIn(needed, b.world).process.Store(b.stopped(rank))
		parts := map[uint32][]byte{slotPart: slices.Clone(bytesOf(s)), needsPart: needed[:headBytes],
			namesPart: pack(b.mem[b.namesAt+rank*tableSize:][:tableSize])}
		if n := needsIn(needed, b.world); n.mark.Load() != 0 {
			var ended []byte
			if n.message.Load() != 0 {
				for other := range n.ranks.all {
					ended = order.AppendUint32(ended, b.ended(rank, other).Load())
				}
			}
			parts[setsPart] = slices.Concat(order.AppendUint64(nil, n.mark.Load()), order.AppendUint32(nil, uint32(len(ended))), ended, pack(needed[headBytes:]))
		}
		if b.State(rank) == collective.Returned && b.needsOf(rank).spoke.Load() != 0 {
			var flows []byte
			for other := range b.world {
				f := b.flow(rank, other)
				if started, received := f.started.Load(), f.received.Load(); started|received != 0 {
					flows = order.AppendUint64(order.AppendUint64(order.AppendUint32(flows, uint32(other)), started), received)
				}
			}
			parts[flowsPart] = flows
		}
		for id := range b.head.groups.Load() {
			b.showGroup(parts, rank, id, all || id == s.group)
		}
		m.Ranks = append(m.Ranks, MirroredRank{rank, parts})
	}
	return m
}

// Shorten removes the sets of ranks that the ranks wait for, whose size grows with the world, except those that a
// report of this circle names.
func (m *Mirror) Shorten(circle []Wait) {
	for _, r := range m.Ranks {
		if !slices.ContainsFunc(circle[:min(len(circle), mostNamed)], func(w Wait) bool { return w.Rank == r.Rank }) {
			delete(r.Parts, setsPart)
		}
	}
}

func (b *Board) showGroup(parts map[uint32][]byte, rank int, id uint32, journal bool) {
	w, err := b.window(id)
	if err != nil {
		return
	}
	l := w.line(rank)
	calls := l.calls.Load()
	if calls == 0 {
		return
	}
	parts[groupParts+2*id+1] = order.AppendUint64(nil, l.arrived.Load())
	if !journal {
		return
	}
	first := calls - min(calls, shown)
	entries := order.AppendUint64(nil, first)
	for n := first; n < calls; n++ {
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
		entries = append(entries, copied...)
	}
	parts[groupParts+2*id] = entries
}

// Sent is what another board already has of this one's ranks, so that a mirror need hold only what is new. For a
// rank that goes on waiting, that is only that it still waits.
type Sent struct{ ranks map[int]map[uint32][]byte }

// Trim removes from a mirror what earlier ones contained. All mirrors must reach the same board, in this order.
func (s *Sent) Trim(m *Mirror) {
	if s.ranks == nil {
		s.ranks = map[int]map[uint32][]byte{}
	}
	m.Ranks = slices.DeleteFunc(m.Ranks, func(r MirroredRank) bool {
		had := s.ranks[r.Rank]
		if had == nil {
			had = map[uint32][]byte{}
			s.ranks[r.Rank] = had
		}
		maps.DeleteFunc(r.Parts, func(part uint32, data []byte) bool {
			same := bytes.Equal(data, had[part])
			had[part] = data
			return same
		})
		return len(r.Parts) == 0
	})
}

// pack compresses a part of the board: sets of ranks mostly contain none, all, or all but a few, and tables of names
// are mostly empty.
func pack(part []byte) []byte { return s2.Encode(nil, part) }

// unpack restores size bytes; false: packed does not hold that many.
func unpack(packed []byte, size int) ([]byte, bool) {
	if n, err := s2.DecodedLen(packed); err != nil || n != size {
		return nil, false
	}
	out, err := s2.Decode(nil, packed)
	return out, err == nil
}

// Adopt writes a copy of another node's board into this one. Parts that do not fit this board are skipped.
func (b *Board) Adopt(m *Mirror) {
	shift := now() - m.Now
	for _, r := range m.Ranks {
		if r.Rank < 0 || r.Rank >= b.world || b.isNear(r.Rank) || b.isOver(r.Rank) {
			continue
		}
		if names, fit := unpack(r.Parts[namesPart], tableSize); fit {
			copy(b.mem[b.namesAt+r.Rank*tableSize:], names)
		}
		for _, part := range slices.Sorted(maps.Keys(r.Parts)) {
			if part >= groupParts {
				b.adoptGroup(r.Rank, part-groupParts, r.Parts[part], shift)
			}
		}
		for flows := r.Parts[flowsPart]; len(flows) >= 20; flows = flows[20:] {
			if other := int(order.Uint32(flows)); other < b.world {
				f := b.flow(r.Rank, other)
				f.started.Store(order.Uint64(flows[4:]))
				f.received.Store(order.Uint64(flows[12:]))
				b.needsOf(r.Rank).spoke.Store(1)
			}
		}
		if from, fit := as[slot](r.Parts[slotPart]); fit {
			to := b.slot(r.Rank)
			if from.since != 0 {
				to.since = from.since + shift
			}
			to.file, to.line, to.col, to.note = from.file, from.line, from.col, from.note
			to.group = from.group
			to.calls.Store(from.calls.Load())
			to.state.Store(from.state.Load())
		}
		b.adoptNeeds(r)
	}
}

func (b *Board) adoptNeeds(r MirroredRank) {
	own := b.needsOf(r.Rank)
	n, fit := as[needs](r.Parts[needsPart])
	if fit && own.mark.Load() != n.mark.Load() {
		own.ranks.clear()
		own.moving.clear()
	}
	if sets := r.Parts[setsPart]; len(sets) >= 12 {
		ended := sets[12:][:min(int(order.Uint32(sets[8:])), len(sets)-12)]
		if sets, fit := unpack(sets[12+len(ended):], needsBytes(b.world)-headBytes); fit {
			from := needsIn(aligned(slices.Concat(make([]byte, headBytes), sets)), b.world)
			for i := range own.ranks {
				own.ranks[i].Store(from.ranks[i].Load())
				own.moving[i].Store(from.moving[i].Load())
			}
		}
		for other := range own.ranks.all {
			if len(ended) < 4 || other >= b.world {
				break
			}
			b.ended(r.Rank, other).Store(order.Uint32(ended))
			ended = ended[4:]
		}
	}
	if !fit {
		return
	}
	own.message.Store(n.message.Load())
	own.looks.Store(n.looks.Load())
	own.process.Store(n.process.Load())
	own.any.Store(n.any.Load())
	own.outside.Store(n.outside.Load())
	own.group.Store(n.group.Load())
	own.seq.Store(n.seq.Load())
	own.mark.Store(n.mark.Load())
}

// isOver reports whether the agent knows that the rank has ended other than by returning: a copy of its part is
// then out of date.
func (b *Board) isOver(rank int) bool {
	state := b.State(rank)
	return state.Over() && state != collective.Returned
}

// adoptGroup adopts one of the two parts of each group.
func (b *Board) adoptGroup(rank int, part uint32, data []byte, shift int64) {
	const size = int(unsafe.Sizeof(entry{}))
	w, err := b.window(part / 2)
	if err != nil || len(data) < 8 {
		return
	}
	first, entries, to := order.Uint64(data), data[8:], w.line(rank)
	if part%2 == 1 {
		to.arrived.Store(first)
		return
	}
	if len(entries)%size != 0 || len(entries) > journalLen*size {
		return
	}
	b.use(part / 2)
	for ; len(entries) > 0; entries = entries[size:] {
		from, _ := as[entry](entries[:size])
		if from.began != 0 {
			from.began += shift
		}
		if from.ended != 0 {
			from.ended += shift
		}
		to := w.entry(rank, first, b.world)
		to.ver.Add(1)
		sharedmem.StoreFence()
		const ver = unsafe.Sizeof(atomic.Uint32{})
		copy(bytesOf(to)[ver:], bytesOf(from)[ver:])
		to.ver.Add(1)
		first++
	}
	to.calls.Store(first)
}

// Cause gives the cause with which the board was aborted, for other nodes' boards; ok is false if it was not aborted.
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

// as copies bytes that came over a link into a value of the layout, if it has that size.
func as[T any](data []byte) (*T, bool) {
	v := new(T)
	return v, copy(bytesOf(v), data) == len(bytesOf(v))
}
