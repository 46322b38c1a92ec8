package sweep

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"drun/history/records"
)

// replayed gives cells their values in some order, and returns where each was stopped.
func replayed(values [][]float64, h *Halving, seed uint64) []int {
	s := &Sweep{Halving: h}
	j := newJudge(s, make([]Outcome, len(values)))
	random := rand.New(rand.NewPCG(seed, 1))
	given := make([]int, len(values))
	for left := len(values); left > 0; {
		i := random.IntN(len(values))
		c := &j.cells[i]
		if c.over {
			continue
		}
		if given[i] == len(values[i]) || c.stopped > 0 && random.IntN(3) == 0 { // it may run on for a while
			c.over = true
			left--
		} else {
			j.add(c, &records.Point{Step: int64(given[i]), Value: values[i][given[i]]})
			if random.IntN(4) == 0 { // logged again after a restart, and by another rank
				j.add(c, &records.Point{Step: int64(given[i]), Value: 1e9})
				j.add(c, &records.Point{Step: int64(given[i] + 1), Rank: 1, Value: 1e9})
			}
			given[i]++
		}
		if random.IntN(2) == 0 {
			j.decide()
		}
	}
	j.decide()
	var stopped []int
	for i := range j.cells {
		stopped = append(stopped, j.cells[i].stopped)
	}
	return stopped
}

func TestHalving(t *testing.T) {
	flat := func(v float64, n int) []float64 {
		list := make([]float64, n)
		for i := range list {
			list[i] = v
		}
		return list
	}
	for _, c := range []struct {
		values  [][]float64
		largest bool
		want    string
	}{
		// Of two one goes on, of four two: the third is the worst of three, the fifth the second of five.
		{[][]float64{flat(5, 9), flat(4, 9), flat(6, 9), flat(1, 9), flat(2, 9)}, false, "[0 0 1 0 0]"},
		{[][]float64{flat(5, 9), flat(4, 9), flat(6, 9), flat(1, 9), flat(2, 9)}, true, "[0 1 0 1 1]"},
		// Good at first, bad later.
		{[][]float64{{1, 1, 1, 1}, {2, 2, 2, 2}, {1, 1, 9, 9}, {1, 1, 0, 0}}, false, "[0 1 3 0]"},
		// NaN is the worst, also for the smallest.
		{[][]float64{flat(math.NaN(), 9), flat(3, 9), flat(math.NaN(), 9)}, false, "[0 0 1]"},
		// One that ends before a rung is not compared there.
		{[][]float64{{1, 1}, {1, 1, 7, 7}, {1, 1, 8, 8}}, false, "[0 0 3]"},
	} {
		h := &Halving{Metric: "m", Largest: c.largest, First: 1, Factor: 3}
		for seed := range uint64(50) {
			if got := fmt.Sprint(replayed(c.values, h, seed)); got != c.want {
				t.Fatalf("%v, seed %d: %s, want %s", c.values, seed, got, c.want)
			}
		}
	}
	// Which cells are stopped does not depend on who is faster.
	random := rand.New(rand.NewPCG(5, 6))
	var values [][]float64
	for range 30 {
		list := make([]float64, 1+random.IntN(30))
		for i := range list {
			list[i] = random.Float64()
		}
		values = append(values, list)
	}
	h := &Halving{Metric: "m", First: 2, Factor: 2}
	want := fmt.Sprint(replayed(values, h, 0))
	for seed := range uint64(200) {
		if got := fmt.Sprint(replayed(values, h, seed)); got != want {
			t.Fatalf("seed %d: %s, want %s", seed, got, want)
		}
	}
}

// A run that was interrupted says how a cell begins, not where it ends: later cells wait for more of it.
func TestEarlierRunsAreOpen(t *testing.T) {
	for _, open := range []bool{true, false} {
		j := newJudge(&Sweep{Halving: &Halving{Metric: "m", First: 1, Factor: 3}}, make([]Outcome, 4))
		for i, values := range [][]float64{{1, 1}, {0}, {-1}, {-2, 5}} {
			j.cells[i] = contender{over: true, earlier: open && i > 0, values: values}
		}
		j.decide()
		if got := j.cells[3].stopped; open && got != 0 || !open && got != 3 {
			t.Errorf("open %v: stopped at %d", open, got)
		}
		j.cells[1].values, j.cells[2].values = []float64{0, 6}, []float64{-1, 7}
		j.decide()
		if got := j.cells[3].stopped; open && got != 0 || j.cells[3].judged != map[bool]int{true: 2, false: 1}[open] {
			t.Errorf("open %v, with more of the others: stopped at %d, %d times judged", open, got, j.cells[3].judged)
		}
	}
}
