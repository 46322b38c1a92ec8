package record

import (
	"fmt"
	"slices"
	"strings"

	"drun/engine"
)

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
func (s *saving) findWholes() error {
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
		if err := s.check(w); err != nil {
			return err
		}
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
func (s *saving) join(w *whole) error {
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
			if _, err := s.region.WriteAt(e.Data, w.offset+e.Share.From); err != nil {
				return err
			}
		}
	}
	for _, p := range w.parts {
		e := s.at(p)
		e.Data, e.Bytes, e.Offset, e.Share = mem, w.bytes, w.offset, nil
	}
	return nil
}
