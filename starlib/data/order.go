package data

// share is what one rank takes of one epoch: its sample indices, batch after
// batch.
//
// With shuffle, an epoch is cut into global batches of size·batch samples; rank r
// takes the r-th part of each. What is left is shared to within one sample, or
// dropped if it is smaller than the group (always with dropLast): every rank gets
// equally many batches. Without shuffle, rank r takes the r-th of size nearly
// equal runs of the data, so that each sample comes exactly once; dropLast drops
// the rank's own incomplete batch.
type share struct {
	batch int
	full  int // batches of batch samples
	tail  int // samples of the last, smaller batch; 0 if there is none

	// rank r's part of global batch i begins at i·stride + first; that of the
	// tail at tailAt.
	first, stride, tailAt int
}

func newShare(n, batch, rank, size int, shuffle, dropLast bool) share {
	batch = min(batch, n+1) // one that is never full, whatever its size
	if !shuffle {
		lo, hi := rank*n/size, (rank+1)*n/size
		s := share{batch: batch, full: (hi - lo) / batch, tail: (hi - lo) % batch, first: lo, stride: batch}
		s.tailAt = lo + s.full*batch
		if dropLast {
			s.tail = 0
		}
		return s
	}
	global := batch * size
	s := share{batch: batch, full: n / global, first: rank * batch, stride: global}
	if rest := n - s.full*global; rest >= size && !dropLast {
		lo, hi := rank*rest/size, (rank+1)*rest/size
		s.tail, s.tailAt = hi-lo, s.full*global+lo
	}
	return s
}

// batches is the number of batches in an epoch.
func (s *share) batches() int {
	if s.tail > 0 {
		return s.full + 1
	}
	return s.full
}

// bounds returns batch i as positions lo up to hi in the epoch's order.
func (s *share) bounds(i int) (lo, hi int) {
	if i < s.full {
		lo = s.first + i*s.stride
		return lo, lo + s.batch
	}
	return s.tailAt, s.tailAt + s.tail
}
