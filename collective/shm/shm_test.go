package shm_test

import (
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/element"
)

func TestAllReduceSmallAndLarge(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		disttest.Run(t, n, func(t *testing.T, rank int, comm collective.Comm) {
			for _, count := range []int{0, 1, 5, 1000, 5000, 300_001} {
				x := make([]float32, count)
				for i := range x {
					x[i] = float32(rank + 1 + i%7)
				}
				if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), element.Sum)); err != nil {
					t.Fatal(err)
				}
				for i := range x {
					if want := float32(n*(n+1)/2 + n*(i%7)); x[i] != want {
						t.Fatalf("%d ranks, %d elements: [%d] is %v, not %v", n, count, i, x[i], want)
					}
				}
			}
		})
	}
}
