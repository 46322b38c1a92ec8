package board

import (
	"bytes"
	"maps"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Told is what another board already has of this one's ranks, so that a mirror need hold only what is new. For a
// rank that goes on waiting, that is only that it still waits.
type Told struct{ ranks map[int]*MirroredRank }

// News removes from a mirror what earlier ones contained. All mirrors must reach the same board, in this order.
func (t *Told) News(m *Mirror) {
	if t.ranks == nil {
		t.ranks = map[int]*MirroredRank{}
	}
	kept := m.Ranks[:0]
	for _, r := range m.Ranks {
		had := t.ranks[r.Rank]
		if had == nil {
			had = &MirroredRank{}
			t.ranks[r.Rank] = had
		}
		same := bytes.Equal(r.Needs, had.Needs)
		if markOf(&r) == markOf(had) && bytes.Equal(r.Sets, had.Sets) && slices.Equal(r.Ended, had.Ended) {
			r.Sets, r.Ended = nil, nil
		} else {
			had.Sets, had.Ended, same = r.Sets, r.Ended, false
		}
		if maps.Equal(r.Flows, had.Flows) {
			r.Flows = nil
		} else {
			had.Flows, same = r.Flows, false
		}
		had.Needs = r.Needs
		for _, part := range [][2]*[]byte{{&r.Slot, &had.Slot}, {&r.Names, &had.Names}} {
			if now, before := part[0], part[1]; bytes.Equal(*now, *before) {
				*now = nil
			} else {
				*before, same = *now, false
			}
		}
		r.Groups = slices.DeleteFunc(r.Groups, func(g MirroredGroup) bool {
			i := slices.IndexFunc(had.Groups, func(h MirroredGroup) bool { return h.ID == g.ID })
			if i < 0 {
				had.Groups = append(had.Groups, g)
				return false
			}
			h := &had.Groups[i]
			if g.Arrived == h.Arrived && (g.Entries == nil || g.First == h.First && bytes.Equal(g.Entries, h.Entries)) {
				return true
			}
			if h.Arrived = g.Arrived; g.Entries != nil {
				h.First, h.Entries = g.First, g.Entries
			}
			return false
		})
		if !same || len(r.Groups) > 0 {
			kept = append(kept, r)
		}
	}
	m.Ranks = kept
}

// markOf is the mark of a mirrored rank's wait.
func markOf(r *MirroredRank) uint64 {
	if len(r.Needs) != headBytes {
		return 0
	}
	return as[needs](r.Needs).mark.Load()
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
