package tensor

import (
	"math"
	"slices"
	"testing"

	"drun/kernel/dtype"
)

func TestGeneratorState(t *testing.T) {
	c := NewContext()
	g := NewGenerator(7, 3)
	must(g.Rand(c, []int{5}, dtype.Float32))
	saved := *g
	draw := func(g *Generator) []float64 {
		out := list(must(g.Randn(c, []int{3}, dtype.Float32)))
		out = append(out, list(must(g.Rand(c, []int{3}, dtype.Float64)))...)
		return append(out, list(must(g.RandInt(c, 0, 1000, []int{3}, dtype.Int64)))...)
	}
	first := draw(g)
	if !slices.Equal(first, draw(&saved)) {
		t.Error("a restored generator draws other numbers")
	}
	if slices.Equal(first, draw(g)) || slices.Equal(first, draw(NewGenerator(7, 4))) || slices.Equal(first, draw(NewGenerator(8, 3))) {
		t.Error("another position, stream or seed draws the same numbers")
	}
}

func TestDistributions(t *testing.T) {
	c := NewContext()
	g := NewGenerator(1, 1)
	const n = 100000
	moments := func(x *Tensor) (mean, variance float64) {
		return scalar(must(Mean(x, nil, false))), scalar(must(Var(x, nil, 1, false)))
	}
	for _, d := range []dtype.Type{dtype.Float32, dtype.Float64} {
		if m, v := moments(must(g.Rand(c, []int{n}, d))); math.Abs(m-0.5) > 0.005 || math.Abs(v-1./12) > 0.002 {
			t.Errorf("rand %s: mean %v, variance %v", d, m, v)
		}
		if m, v := moments(must(g.Randn(c, []int{n}, d))); math.Abs(m) > 0.015 || math.Abs(v-1) > 0.02 {
			t.Errorf("randn %s: mean %v, variance %v", d, m, v)
		}
	}
	k := must(g.RandInt(c, -2, 3, []int{n}, dtype.Int64))
	if lo, hi := scalar(must(Min(k))), scalar(must(Max(k))); lo != -2 || hi != 2 {
		t.Errorf("randint(-2, 3) gave %v to %v", lo, hi)
	}
	w, b := must(Zeros(c, []int{100, 16}, dtype.Float32)), must(Zeros(c, []int{100}, dtype.Float32))
	check(t, g.InitLinear(w, b))
	if m, v := moments(w); math.Abs(m) > 0.02 || math.Abs(v-1./16/3) > 0.002 || scalar(must(Max(w))) > 0.25 {
		t.Errorf("initial weights: mean %v, variance %v", m, v)
	}
	d := must(Dropout(must(Ones(c, []int{n}, dtype.Float32)), 0.25, g))
	zeros := scalar(must(Sum(must(BinaryScalar(OpEq, d, Int(0), false)), nil, false)))
	if math.Abs(zeros/n-0.25) > 0.01 || math.Abs(scalar(must(Max(d)))-4./3) > 1e-6 {
		t.Errorf("dropout(0.25): %v zeros, largest %v", zeros/n, scalar(must(Max(d))))
	}
	fail[*Tensor](t, "randint", "low 3", "high 3")(g.RandInt(c, 3, 3, nil, dtype.Int64))
	fail[*Tensor](t, "dropout", "between 0 and 1")(Dropout(w, 1.5, g))
}

func TestPermutation(t *testing.T) {
	g := NewGenerator(1, 1)
	counts := [24]int{}
	for range 24000 {
		p := must(g.Permutation(4))
		seen := [4]bool{}
		rank := 0
		for i, v := range p {
			seen[v] = true
			rank = rank*(4-i) + func() (smaller int) {
				for _, w := range p[i+1:] {
					if w < v {
						smaller++
					}
				}
				return
			}()
		}
		if seen != [4]bool{true, true, true, true} {
			t.Fatalf("%v is not a permutation", p)
		}
		counts[rank]++
	}
	for rank, n := range counts { // standard deviation 31
		if n < 850 || n > 1150 {
			t.Errorf("permutation %d came %d times in 24000", rank, n)
		}
	}
}

func TestMultinomial(t *testing.T) {
	c := NewContext()
	g := NewGenerator(5, 0)
	p := floats(c, dtype.Float32, []int{2, 3}, 0, 1, 3, 1, 0, 0)
	k := must(g.Multinomial(c, p, 10000, true))
	counts := list(must(BinCount(must(Select(k, 0, 0)), nil, 3)))
	if counts[0] != 0 || math.Abs(counts[2]/10000-0.75) > 0.02 {
		t.Errorf("weights 0, 1, 3 were drawn %v times", counts)
	}
	both := must(g.Multinomial(c, must(Select(p, 0, 0)), 2, false))
	if s := scalar(must(Sum(both, nil, false))); s != 3 {
		t.Errorf("two draws without replacement from {1, 2} gave %v", list(both))
	}
	fail[*Tensor](t, "no index")(g.Multinomial(c, p, 2, false))
	fail[*Tensor](t, "must be finite")(g.Multinomial(c, floats(c, dtype.Float32, []int{2}, 1, math.Inf(1)), 1, true))
	fail[*Tensor](t, "not negative")(g.Multinomial(c, floats(c, dtype.Float32, []int{1}, -1), 1, true))
}
