package board

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
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
		if bytes.Equal(r.Slot, had.Slot) {
			r.Slot = nil
		} else {
			had.Slot, same = r.Slot, false
		}
		if bytes.Equal(r.Names, had.Names) {
			r.Names = nil
		} else {
			had.Names, same = r.Names, false
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

// Sets of ranks mostly contain none, all, or all but a few, and tables of names are mostly empty. They are packed
// as runs of equal words: for each, four times its length plus one of these constants, then for theseRanks the word
// itself.
const (
	noRanks = iota
	allRanks
	theseRanks
)

// pack compresses whole 8-byte words.
func pack(words []byte) []byte {
	out := []byte{}
	for len(words) > 0 {
		word, n := words[:8], 1
		for ; 8*n < len(words) && bytes.Equal(words[8*n:][:8], word); n++ {
		}
		kind := uint64(theseRanks)
		switch binary.LittleEndian.Uint64(word) {
		case 0:
			kind = noRanks
		case 1<<64 - 1:
			kind = allRanks
		}
		if out = binary.AppendUvarint(out, uint64(n)<<2|kind); kind == theseRanks {
			out = append(out, word...)
		}
		words = words[8*n:]
	}
	return out
}

// unpack restores size bytes; false: packed does not hold that many.
func unpack(packed []byte, size int) ([]byte, bool) {
	out := make([]byte, 0, size)
	for len(packed) > 0 {
		head, took := binary.Uvarint(packed)
		if took <= 0 || head>>2 > uint64(size-len(out))/8 {
			return nil, false
		}
		packed = packed[took:]
		word := make([]byte, 8)
		switch head & 3 {
		case noRanks:
		case allRanks:
			binary.LittleEndian.PutUint64(word, 1<<64-1)
		case theseRanks:
			if len(packed) < 8 {
				return nil, false
			}
			word, packed = packed[:8], packed[8:]
		default:
			return nil, false
		}
		out = append(out, bytes.Repeat(word, int(head>>2))...)
	}
	return out, len(out) == size
}
