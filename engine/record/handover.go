package record

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"drun/engine"
	"drun/engine/transfer"
	"drun/internal/try"
)

// Ranks gives a save access to the ranks.
type Ranks struct {
	Near func(rank int) bool // the rank can open this process's files
	// Node is the node of a rank that is not near; it keeps what its ranks hand over.
	Node func(rank int) Node
	// Forget tells the nodes that a state, which their ranks have handed over or restored, is no longer needed.
	Forget func(state uint64)
	Ask    func(rank int, what *engine.HandOver)
	Taken  func(rank int, err error)   // the rank has nothing to hand over, and goes on
	Saved  func(step int64, err error) // all was handed over; err is the result of storing it
	// Await is called when a save begins to wait for ranks: missing lists those that have not come yet, and done
	// ends the watch.
	Await func(step int64, doing string, missing func() []int) (done func())
}

// Node keeps the states of its ranks until they are stored.
type Node interface {
	Sums(state uint64, ranges []transfer.Range) ([][32]byte, error)
	Chunk(state uint64, r transfer.Range, sum [32]byte) ([]byte, error)
	Copy(to io.WriterAt, at int64, state uint64, r transfer.Range) error
}

// saving is a checkpoint whose parts arrive: first, from all ranks, what they consist of, then the data, which is
// handed over in the region or, on other machines, in memory of the rank's node at the same offset. Of ranks with
// equal data, one hands it over.
type saving struct {
	number  uint64 // of the state
	attempt int    // the attempt in which it began
	parts   map[int]*engine.Part
	asked   map[int][]engine.Span // of ranks whose data has not arrived yet
	nodes   map[int]Node          // of ranks that cannot write to the region
	distant []distant             // data that the nodes keep
	same    map[entry]entry       // entries whose data is handed over by another
	wholes  []*whole              // tensors of which ranks have parts
	region  *transfer.Region      // nil: no rank was asked
	points  int64                 // of the run before the save
	err     error
	come    func()        // ends the watch for ranks that it waits for
	forget  func()        // tells the nodes that the save has ended
	ended   chan struct{} // closed when it is stored, or will not be
}

func newSaving() *saving {
	return &saving{number: transfer.Number(), come: func() {}, forget: func() {}, parts: map[int]*engine.Part{}, asked: map[int][]engine.Span{}, nodes: map[int]Node{}, same: map[entry]entry{}, ended: make(chan struct{})}
}

// await starts a watch for ranks that the save waits for.
func (s *saving) await(ranks Ranks, step int64, doing string, missing func() []int) {
	s.come = ranks.Await(step, doing, func() []int {
		list := missing()
		slices.Sort(list)
		return list
	})
}

type entry struct{ rank, i int }

func contentOf(e engine.Entry) transfer.Content {
	return transfer.Content{DType: e.DType, Sum: string(e.Sum), Bytes: e.Bytes}
}

// align keeps data of different entries in different cache lines.
const align = 64

// maxState limits the size that a save may claim to have.
const maxState = 1 << 40

var errTooLarge = errors.New("the state is larger than drun can hand over")

// share decides which rank hands over what, and where in the region it goes; it returns the region's size. Of ranks
// with equal data, it picks one that is near, with the fewest bytes so far.
func (s *saving) share(near func(rank int) bool) (size int64, err error) {
	defer try.Caught(&err)
	try.Ok(s.findWholes())
	holders := map[transfer.Content][]entry{}
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
			if e.Bytes == 0 || e.Share != nil {
				continue
			}
			is := contentOf(e)
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
	slices.SortFunc(distinct, func(a, b []entry) int { // largest first, which balances the ranks' shares
		if d := bytes(b) - bytes(a); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return slices.Compare([]int{a[0].rank, a[0].i}, []int{b[0].rank, b[0].i})
	})
	load := map[int]int64{}
	for _, w := range s.wholes {
		if !w.apart {
			continue
		}
		w.offset = size
		for _, p := range w.parts {
			if e := s.at(p); s.parts[p.rank].Apart && e.Bytes > 0 {
				load[p.rank] += e.Bytes
				s.asked[p.rank] = append(s.asked[p.rank], engine.Span{Entry: p.i, Offset: size + e.Share.From, Bytes: e.Bytes})
			}
		}
		if size += (w.bytes + align - 1) / align * align; size > maxState {
			return 0, errTooLarge
		}
	}
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
		s.asked[from.rank] = append(s.asked[from.rank], engine.Span{Entry: from.i, Offset: size, Bytes: bytes(h)})
		for _, e := range h {
			if e != from {
				s.same[e] = from
			}
		}
		size += (bytes(h) + align - 1) / align * align
		if size > maxState {
			return 0, errTooLarge
		}
	}
	return size, nil
}

// prepare decides what the ranks hand over, and makes room for it; data that stays with other nodes takes none.
func (s *saving) prepare(near func(rank int) bool, from *transfer.Regions) error {
	size, err := s.share(near)
	if err == nil && size > 0 {
		if s.region, err = from.Take(size); err == nil {
			s.reuse()
		}
	}
	return err
}

// reuse skips data that the region still has from the previous save at the same offset, so that no rank hands it
// over again. Over a network, data that does not change, such as frozen parameters, is sent only once.
func (s *saving) reuse() {
	held := s.region.Holds
	s.region.Holds = nil // until the new data has arrived
	for rank, spans := range s.asked {
		s.asked[rank] = slices.DeleteFunc(spans, func(span engine.Span) bool {
			e := &s.parts[rank].Entries[span.Entry]
			if len(e.Sum) == 0 || held[span.Offset] != contentOf(*e) {
				return false
			}
			e.Offset, e.Data = span.Offset, s.region.Mem[span.Offset:][:e.Bytes:e.Bytes]
			return true
		})
	}
}

// hold notes what the region has, once all of it has arrived.
func (s *saving) hold() {
	s.region.Holds = map[int64]transfer.Content{}
	for _, part := range s.parts {
		for _, e := range part.Entries {
			if part.Apart && len(e.Sum) > 0 && e.Bytes > 0 && len(s.overlapping(e.Offset, e.Bytes)) == 0 {
				s.region.Holds[e.Offset] = contentOf(e)
			}
		}
	}
}

func (s *saving) take(rank int, m *engine.Handed) {
	spans := s.asked[rank]
	delete(s.asked, rank)
	if m.Error != "" {
		s.err = errors.Join(s.err, fmt.Errorf("rank %d: %s", rank, m.Error))
		return
	}
	for _, span := range spans {
		e := &s.parts[rank].Entries[span.Entry]
		if node := s.nodes[rank]; node != nil {
			s.distant = append(s.distant, distant{span.Offset, span.Offset + span.Bytes, node})
		}
		e.Offset = span.Offset
		e.Data = s.region.Mem[span.Offset:][:e.Bytes:e.Bytes]
	}
}

// fill points entries at the data that another rank handed over for them. It fails if an entry has none.
func (s *saving) fill() (err error) {
	defer try.Caught(&err)
	for e, from := range s.same {
		to, from := &s.parts[e.rank].Entries[e.i], &s.parts[from.rank].Entries[from.i]
		to.Data, to.Offset = from.Data, from.Offset
	}
	for rank, part := range s.parts {
		for _, e := range part.Entries {
			try.FailIf(part.Apart && int64(len(e.Data)) != e.Bytes, "%q of rank %d was not handed over", e.Name, rank)
		}
	}
	for _, w := range s.wholes {
		try.Ok(s.join(w))
	}
	return nil
}

// whole is a tensor of which several ranks save a part each. It is put together in the region or, if all its parts
// came with the ranks' messages, in memory of its own. Each of these ranks then has all of it, so that a checkpoint
// does not show how it was divided.
type whole struct {
	name   string
	bytes  int64
	parts  []entry
	apart  bool  // a part is handed over in the region
	offset int64 // in the region, if apart; -1 once it is put together
}

// findWholes collects the parts of tensors in rank order, and checks that they are complete.
func (s *saving) findWholes() (err error) {
	defer try.Caught(&err)
	type key struct{ name, set string }
	known := map[key]*whole{}
	for rank := range len(s.parts) {
		part := s.parts[rank]
		for i := range part.Entries {
			e := &part.Entries[i]
			if e.Share == nil {
				continue
			}
			if !part.Apart {
				e.Bytes = int64(len(e.Data))
			}
			w := known[key{e.Name, e.Share.Set}]
			if w == nil {
				w = &whole{name: e.Name, bytes: e.Share.Whole}
				known[key{e.Name, e.Share.Set}] = w
				s.wholes = append(s.wholes, w)
			}
			w.parts = append(w.parts, entry{rank, i})
			w.apart = w.apart || part.Apart
		}
	}
	for _, w := range s.wholes {
		try.Ok(s.check(w))
	}
	return nil
}

// check returns an error unless the parts of a tensor fit together and cover every byte exactly once.
func (s *saving) check(w *whole) error {
	first := s.at(w.parts[0])
	at, fits := int64(0), w.bytes >= 0 && w.bytes <= maxState
	ordered := slices.SortedStableFunc(slices.Values(w.parts), func(a, b entry) int {
		ea, eb := s.at(a), s.at(b)
		if ea.Share.From != eb.Share.From {
			return int(max(-1, min(1, ea.Share.From-eb.Share.From)))
		}
		return int(max(-1, min(1, ea.Bytes-eb.Bytes))) // an empty part first
	})
	for _, p := range ordered {
		e := s.at(p)
		fits = fits && e.DType == first.DType && slices.Equal(e.Shape, first.Shape) && e.Share.Whole == w.bytes &&
			(e.Bytes == 0 || e.Bytes > 0 && e.Share.From == at)
		at += e.Bytes
	}
	if fits && at == w.bytes {
		return nil
	}
	lines := make([]string, len(w.parts))
	for i, p := range w.parts {
		e := s.at(p)
		lines[i] = fmt.Sprintf("rank %d has %s%v, bytes %d to %d of %d", p.rank, e.DType, e.Shape, e.Share.From, e.Share.From+e.Bytes, e.Share.Whole)
	}
	return fmt.Errorf("the ranks' parts of %q do not make a whole tensor:\n  %s", w.name, strings.Join(lines, "\n  "))
}

func (s *saving) at(p entry) *engine.Entry { return &s.parts[p.rank].Entries[p.i] }

// join puts a tensor together and gives it to the ranks that had parts of it.
func (s *saving) join(w *whole) (err error) {
	defer try.Caught(&err)
	var mem []byte
	if w.apart && w.bytes > 0 {
		mem = s.region.Mem[w.offset:][:w.bytes:w.bytes]
	} else {
		mem, w.offset = make([]byte, w.bytes), -1
	}
	for _, p := range w.parts {
		switch e := s.at(p); {
		case !w.apart:
			copy(mem[e.Share.From:], e.Data)
		case !s.parts[p.rank].Apart && e.Bytes > 0:
			try.To(s.region.WriteAt(e.Data, w.offset+e.Share.From))
		}
	}
	for _, p := range w.parts {
		e := s.at(p)
		e.Data, e.Bytes, e.Offset, e.Share = mem, w.bytes, w.offset, nil
	}
	return nil
}
