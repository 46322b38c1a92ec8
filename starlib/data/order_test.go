package data

import (
	"fmt"
	"math"
	"testing"
)

// Every combination of sizes: what all ranks together take of an epoch.
func TestShares(t *testing.T) {
	for n := 0; n <= 40; n++ {
		for size := 1; size <= 5; size++ {
			for batch := 1; batch <= 7; batch++ {
				for _, shuffle := range []bool{false, true} {
					for _, last := range []lastPart{keepLast, dropLast, padLast} {
						checkShares(t, n, size, batch, shuffle, last)
					}
				}
			}
		}
	}
}

// A batch may be larger than any dataset: no product of sizes overflows.
func TestHugeBatches(t *testing.T) {
	for _, batch := range []int{1 << 61, 1 << 62, math.MaxInt} {
		for _, shuffle := range []bool{false, true} {
			if s := newShare(10, batch, 1, 4, shuffle, keepLast); s.batches() != 1 || s.count() < 2 || s.count() > 3 {
				t.Errorf("batch %d, shuffle %v: %+v", batch, shuffle, s)
			}
			if s := newShare(10, batch, 1, 4, shuffle, dropLast); s.batches() != 0 {
				t.Errorf("batch %d, shuffle %v: a full batch of 10 samples", batch, shuffle)
			}
		}
	}
}

func checkShares(t *testing.T, n, size, batch int, shuffle bool, last lastPart) {
	t.Helper()
	name := fmt.Sprintf("n=%d size=%d batch=%d shuffle=%v ending=%v", n, size, batch, shuffle, last)
	n = last.padded(n, size)
	taken := make([]int, n)
	total, fewest, most, smallTail, largeTail := 0, n+1, 0, batch, 0
	for rank := range size {
		s := newShare(n, batch, rank, size, shuffle, last)
		sum := 0
		for i := range s.batches() {
			lo, hi := s.bounds(i)
			if lo < 0 || hi > n || hi-lo < 1 || hi-lo > batch || last == dropLast && hi-lo != batch {
				t.Fatalf("%s: rank %d batch %d is %d to %d", name, rank, i, lo, hi)
			}
			if i < s.batches()-1 && hi-lo != batch {
				t.Fatalf("%s: rank %d batch %d of %d has %d samples", name, rank, i, s.batches(), hi-lo)
			}
			for at := lo; at < hi; at++ {
				taken[at]++
			}
			sum += hi - lo
		}
		if sum != s.count() {
			t.Fatalf("%s: rank %d says %d samples, has %d", name, rank, s.count(), sum)
		}
		total += sum
		fewest, most = min(fewest, s.batches()), max(most, s.batches())
		smallTail, largeTail = min(smallTail, s.tail), max(largeTail, s.tail)
	}
	for at, times := range taken {
		if times > 1 || times == 0 && !shuffle && last != dropLast {
			t.Fatalf("%s: sample %d comes %d times", name, at, times)
		}
	}
	switch {
	case (shuffle || last != keepLast) && fewest != most:
		t.Fatalf("%s: %d to %d batches", name, fewest, most)
	case last == padLast && largeTail != smallTail, shuffle && largeTail-smallTail > 1:
		t.Fatalf("%s: tails of %d to %d samples", name, smallTail, largeTail)
	case shuffle && last == keepLast && n-total >= size, last == padLast && n != total, !shuffle && last == dropLast && total != n/size/batch*batch*size:
		t.Fatalf("%s: %d samples are dropped", name, n-total)
	case most-fewest > 1:
		t.Fatalf("%s: %d to %d batches", name, fewest, most)
	}
}

// count is the number of a rank's samples in an epoch.
func (s *share) count() int { return s.full*s.batch + s.tail }
