package board

import (
	"sync/atomic"

	"drun/collective/sharedmem"
)

// detail is a rank's full description of its latest call, for disagreements in which the short entries of the
// journal look alike. It lies at the end of the rank's names.
type detail struct {
	seq   atomic.Uint64 // of the call, written after the rest
	group uint32
	size  uint32
	text  [detailSize - 16]byte
}

func (b *Board) detailOf(rank int) *detail {
	return sharedmem.At[detail](b.mem, b.namesAt+(rank+1)*tableSize-detailSize)
}

// tell writes the details of a call, which may be empty.
func (g *guard) tell(w *guardedWork) {
	d, text := g.board.detailOf(g.board.rank), ""
	if w.detail != nil {
		text = w.detail()
	}
	if len(text) > len(d.text) {
		text = text[:len(d.text)-3] + "…"
	}
	d.seq.Store(0)
	d.group, d.size = g.group, uint32(copy(d.text[:], text))
	d.seq.Store(w.seq)
}

// told reports whether a rank has written the details of a call.
func (b *Board) told(rank int, group uint32, seq uint64) bool {
	d := b.detailOf(rank)
	return d.seq.Load() == seq && d.group == group
}

// detail gives what tell wrote; it may be empty.
func (b *Board) detail(rank int, group uint32, seq uint64) string {
	if d := b.detailOf(rank); b.told(rank, group, seq) {
		return string(d.text[:min(int(d.size), len(d.text))])
	}
	return ""
}
