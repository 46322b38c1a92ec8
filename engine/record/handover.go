package record

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"drun/collective/sharedmem"
	"drun/engine"
)

// Ranks is how a save reaches the ranks.
type Ranks struct {
	Near  func(rank int) bool // it can open this process's files
	Ask   func(rank int, what *engine.HandOver)
	Taken func(rank int, err error)   // it has nothing to hand over, and goes on
	Saved func(step int64, err error) // all was handed over, and this became of it
}

// saving is a checkpoint whose parts come in: first what they consist of, of all ranks, then
// the data, which is handed over in the region. Equal data of several ranks is handed over by
// one of them.
type saving struct {
	parts  map[int]*engine.Part
	asked  map[int][]engine.Span // of ranks whose data is not there yet
	same   map[entry]entry       // whose data is another's
	region *region               // nil: no rank was asked, or all send their data
	points int64                 // of the run before it
	err    error
	ended  chan struct{} // closed when it is stored, or will not be
}

func newSaving() *saving {
	return &saving{parts: map[int]*engine.Part{}, asked: map[int][]engine.Span{}, same: map[entry]entry{}, ended: make(chan struct{})}
}

// entry is one of a rank's.
type entry struct{ rank, i int }

// region is memory in which ranks hand over their data. It has no name outside of this
// process, and ends with it.
type region struct {
	file *os.File
	mu   sync.RWMutex // held for writing while mem is unmapped
	mem  []byte
}

func newRegion(bytes int) (*region, error) {
	file, err := sharedmem.Create(engine.StateMemory)
	if err != nil {
		return nil, err
	}
	mem, err := sharedmem.Map(file, 0, sharedmem.PageRound(bytes))
	if err != nil {
		file.Close()
		return nil, err
	}
	return &region{file: file, mem: mem}, nil
}

// close gives the memory back. Nothing that refers to it is used any more.
func (g *region) close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mem != nil {
		_ = sharedmem.Unmap(g.mem)
		g.mem = nil
		g.file.Close()
	}
}

// path is where the ranks of this machine can open it.
func (g *region) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), g.file.Fd()) }

// align keeps data of different entries in different cache lines.
const align = 64

// maxState bounds what a save may say to consist of.
const maxState = 1 << 40

// share decides which rank hands over what, and where in the region that goes, whose size is
// the result. Of ranks with equal data it is one that is near, with the fewest bytes so far.
func (s *saving) share(near func(rank int) bool) (size int64, err error) {
	type content struct {
		dtype, sum string
		bytes      int64
	}
	holders := map[content][]entry{}
	var distinct [][]entry
	for rank := range len(s.parts) {
		part := s.parts[rank]
		if !part.Apart {
			continue
		}
		s.asked[rank] = nil
		for i, e := range part.Entries {
			if e.Bytes < 0 || e.Bytes > maxState {
				return 0, fmt.Errorf("%q of rank %d has %d bytes", e.Name, rank, e.Bytes)
			}
			if e.Bytes == 0 {
				continue
			}
			is := content{e.DType, string(e.Sum), e.Bytes}
			if len(e.Sum) > 0 && holders[is] != nil {
				holders[is] = append(holders[is], entry{rank, i})
				continue
			}
			if len(e.Sum) == 0 {
				distinct = append(distinct, []entry{{rank, i}})
				continue
			}
			holders[is] = []entry{{rank, i}}
		}
	}
	for _, h := range holders {
		distinct = append(distinct, h)
	}
	bytes := func(h []entry) int64 { return s.parts[h[0].rank].Entries[h[0].i].Bytes }
	slices.SortFunc(distinct, func(a, b []entry) int { // the largest first: the ranks' shares come out even
		if d := bytes(b) - bytes(a); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return slices.Compare([]int{a[0].rank, a[0].i}, []int{b[0].rank, b[0].i})
	})
	load := map[int]int64{}
	for _, h := range distinct {
		from := slices.MinFunc(h, func(a, b entry) int {
			if near(a.rank) != near(b.rank) {
				if near(a.rank) {
					return -1
				}
				return 1
			}
			return int(max(-1, min(1, load[a.rank]-load[b.rank])))
		})
		load[from.rank] += bytes(h)
		s.asked[from.rank] = append(s.asked[from.rank], engine.Span{Entry: from.i, Offset: size})
		for _, e := range h {
			if e != from {
				s.same[e] = from
			}
		}
		size += (bytes(h) + align - 1) / align * align
		if size > maxState {
			return 0, errors.New("the state is larger than drun can hand over")
		}
	}
	return size, nil
}

// prepare decides what the ranks hand over, and makes room for it.
func (s *saving) prepare(near func(rank int) bool) error {
	size, err := s.share(near)
	if err == nil && size > 0 {
		s.region, err = newRegion(int(size))
	}
	return err
}

// take puts in a rank's data.
func (s *saving) take(rank int, m *engine.Handed) {
	spans := s.asked[rank]
	delete(s.asked, rank)
	switch {
	case m.Error != "":
		s.err = errors.Join(s.err, fmt.Errorf("rank %d: %s", rank, m.Error))
		return
	case len(m.Data) != 0 && len(m.Data) != len(spans), len(m.Data) == 0 && len(spans) > 0 && s.region == nil:
		s.err = errors.Join(s.err, fmt.Errorf("rank %d has handed over %d of %d entries", rank, len(m.Data), len(spans)))
		return
	}
	for n, span := range spans {
		e := &s.parts[rank].Entries[span.Entry]
		if len(m.Data) == 0 {
			e.Data = s.region.mem[span.Offset:][:e.Bytes:e.Bytes]
		} else if e.Data = m.Data[n]; int64(len(e.Data)) != e.Bytes {
			s.err = errors.Join(s.err, fmt.Errorf("%q of rank %d has %d bytes, not %d", e.Name, rank, len(e.Data), e.Bytes))
		}
	}
}

// fill gives the entries that have the data of others that. The error says which has none.
func (s *saving) fill() error {
	for e, from := range s.same {
		s.parts[e.rank].Entries[e.i].Data = s.parts[from.rank].Entries[from.i].Data
	}
	for rank, part := range s.parts {
		for _, e := range part.Entries {
			if part.Apart && int64(len(e.Data)) != e.Bytes {
				return fmt.Errorf("%q of rank %d was not handed over", e.Name, rank)
			}
		}
	}
	return nil
}
