package record

import (
	"encoding/hex"
	"slices"

	"drun/checkpoints"
	"drun/engine/transfer"
	"drun/internal/each"

	"golang.org/x/sync/errgroup"
)

// distant is data that ranks have handed over to their node, which keeps it until the checkpoint is stored, in its
// own memory at the same offset that it would have in the region.
type distant struct {
	from, to int64
	node     Node
}

// overlapping lists, in order, which of these bytes of the region nodes keep.
func (s *saving) overlapping(offset, bytes int64) []distant {
	first, _ := slices.BinarySearchFunc(s.distant, offset, func(d distant, offset int64) int {
		if d.to <= offset {
			return -1
		}
		return 1
	})
	last := first
	for last < len(s.distant) && s.distant[last].from < offset+bytes {
		last++
	}
	return s.distant[first:last]
}

// sort orders what nodes keep, and joins adjacent ranges of one node.
func (s *saving) sort() {
	slices.SortFunc(s.distant, func(a, b distant) int { return int(max(-1, min(1, a.from-b.from))) })
	joined := s.distant[:0]
	for _, d := range s.distant {
		if last := len(joined) - 1; last >= 0 && joined[last].to == d.from && joined[last].node == d.node {
			joined[last].to = d.to
			continue
		}
		joined = append(joined, d)
	}
	s.distant = joined
}

// bring copies into the region the parts of a range that nodes keep.
func (s *saving) bring(list []distant, offset, bytes int64) error {
	for _, d := range list {
		from, to := max(d.from, offset), min(d.to, offset+bytes)
		if err := d.node.Copy(s.region, from, s.number, transfer.Range{Offset: from, Bytes: to - from}); err != nil {
			return err
		}
	}
	return nil
}

// bringAll copies everything that nodes keep into the region, from all nodes at the same time.
func (s *saving) bringAll() error {
	byNode := map[Node][]distant{}
	for _, d := range s.distant {
		byNode[d.node] = append(byNode[d.node], d)
	}
	err := eachNode(byNode, func(_ Node, list []distant) error { return s.bring(list, 0, s.region.Used) })
	if err == nil {
		s.distant = nil
	}
	return err
}

// eachNode calls do for all nodes at the same time, and returns the first error.
func eachNode[T any](all map[Node]T, do func(Node, T) error) error {
	var asked errgroup.Group
	for node, of := range all {
		asked.Go(func() error { return do(node, of) })
	}
	return asked.Wait()
}

// chunks returns the chunks of the entries of which nodes keep some data, by the entry's offset in the region. If
// one node has all of a chunk, only its SHA-256 is asked for; other chunks are put together in the region.
func (s *saving) chunks() (map[int64][]checkpoints.Chunk, error) {
	type offer struct {
		to *checkpoints.Chunk
		r  transfer.Range
	}
	all, offered := map[int64][]checkpoints.Chunk{}, map[Node][]offer{}
	for rank := range len(s.parts) {
		for _, e := range s.parts[rank].Entries {
			if e.Bytes == 0 || e.Offset < 0 || all[e.Offset] != nil || len(s.overlapping(e.Offset, e.Bytes)) == 0 {
				continue
			}
			chunks := make([]checkpoints.Chunk, (e.Bytes+checkpoints.ChunkSize-1)/checkpoints.ChunkSize)
			for i := range chunks {
				at := int64(i) * checkpoints.ChunkSize
				r := transfer.Range{Offset: e.Offset + at, Bytes: min(checkpoints.ChunkSize, e.Bytes-at)}
				list := s.overlapping(r.Offset, r.Bytes)
				if len(list) == 1 && list[0].from <= r.Offset && r.Offset+r.Bytes <= list[0].to {
					offered[list[0].node] = append(offered[list[0].node], offer{&chunks[i], r})
					continue
				}
				if err := s.bring(list, r.Offset, r.Bytes); err != nil {
					return nil, err
				}
				chunks[i].Data = s.region.Mem[r.Offset:][:r.Bytes:r.Bytes]
			}
			all[e.Offset] = chunks
		}
	}
	return all, eachNode(offered, func(node Node, offers []offer) error {
		ranges := each.Of(offers, func(o offer) transfer.Range { return o.r })
		sums, err := node.Sums(s.number, ranges)
		for i := range sums {
			o := offers[i]
			o.to.Bytes, o.to.SHA256 = int(o.r.Bytes), hex.EncodeToString(sums[i][:])
			o.to.Fetch = func() ([]byte, error) { return node.Chunk(s.number, o.r, sums[i]) }
		}
		return err
	})
}
