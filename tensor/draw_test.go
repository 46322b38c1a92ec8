package tensor

import (
	"math"
	"math/rand/v2"
	"slices"

	"drun/kernel/dtype"
)

// A draw makes random operands, the same ones for each context.
type draw struct {
	c      *Context
	rng    *rand.Rand
	g      *Generator
	dt     dtype.Type // of reals
	leaves []*Tensor
	dense  bool // views become copies
}

func (d *draw) upTo(n int) int { return 1 + d.rng.IntN(n) }
func (d *draw) coin() bool     { return d.rng.IntN(2) == 0 }

// size is often small, and sometimes beyond a block or a vector.
func (d *draw) size() int {
	switch d.rng.IntN(8) {
	case 0:
		return 1
	case 1:
		return d.upTo(70)
	}
	return d.upTo(9)
}

func (d *draw) shape(dims int) []int {
	s := make([]int, dims)
	for i := range s {
		s[i] = d.size()
	}
	return s
}

// number is random, and seldom zero of either sign, infinite, NaN, tiny or huge.
func (d *draw) number(tame bool) float64 {
	x := d.rng.NormFloat64()
	if tame || d.rng.IntN(40) > 0 {
		return x
	}
	return []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-44, 1e30, -3e-310, 1, -1}[d.rng.IntN(11)]
}

// leaf requires a gradient; it is float32 or float64.
func (d *draw) leaf(shape ...int) *Tensor {
	tame := d.rng.IntN(3) > 0
	values := make([]float64, product(shape))
	for i := range values {
		values[i] = d.number(tame)
	}
	dt := d.dt
	if dt == dtype.BFloat16 {
		dt = dtype.Float32
	}
	t := must(FromFloats(d.c, values, shape, dt))
	if err := t.SetRequiresGrad(true); err != nil {
		panic(err)
	}
	d.leaves = append(d.leaves, t)
	return t
}

// real is a leaf in type d.dt, or a view of one.
func (d *draw) real(shape ...int) *Tensor {
	nd := len(shape)
	var t *Tensor
	switch {
	case nd > 1 && d.rng.IntN(3) == 0: // transposed
		i, j := d.rng.IntN(nd), d.rng.IntN(nd)
		turned := slices.Clone(shape)
		turned[i], turned[j] = shape[j], shape[i]
		t = must(Transpose(d.leaf(turned...), i, j))
	case nd > 0 && d.rng.IntN(4) == 0: // a part
		i, before := d.rng.IntN(nd), d.rng.IntN(3)
		wide := slices.Clone(shape)
		wide[i] += before + d.rng.IntN(3)
		t = must(Narrow(d.leaf(wide...), i, before, shape[i]))
	case nd > 0 && d.rng.IntN(8) == 0: // broadcast
		narrow := slices.Clone(shape)
		narrow[d.rng.IntN(nd)] = 1
		t = must(Expand(d.leaf(narrow...), shape))
	default:
		t = d.leaf(shape...)
	}
	if d.dense {
		t = must(Clone(t))
	}
	return must(Cast(t, d.dt))
}

// whole has integers of a random type.
func (d *draw) whole(shape ...int) *Tensor {
	values := make([]int64, product(shape))
	for i := range values {
		values[i] = int64(d.rng.IntN(7) - 3)
	}
	return must(Cast(must(FromInts(d.c, values, shape, dtype.Int64)), []dtype.Type{dtype.Int64, dtype.Int32, dtype.Int8, dtype.Uint8, dtype.Bool}[d.rng.IntN(5)]))
}

// index has numbers below n, some counted from the end.
func (d *draw) index(n int, shape ...int) *Tensor {
	values := make([]int64, product(shape))
	for i := range values {
		values[i] = int64(d.rng.IntN(n))
		if d.rng.IntN(9) == 0 {
			values[i] -= int64(n)
		}
	}
	return must(FromInts(d.c, values, shape, dtype.Int64))
}

func (d *draw) truth(shape ...int) *Tensor {
	return must(Cast(d.index(2, shape...), dtype.Bool))
}

func (d *draw) dims(nd int) []int {
	var dims []int
	for i := range nd {
		if d.coin() {
			dims = append(dims, i)
		}
	}
	return dims
}

func (d *draw) maybe(t *Tensor) *Tensor {
	if d.coin() {
		return nil
	}
	return t
}

func (d *draw) pair(low, count int) [2]int {
	return [2]int{low + d.rng.IntN(count), low + d.rng.IntN(count)}
}

type results = []*Tensor

func single(t *Tensor, err error) results { return results{must(t, err)} }
func pairOf(a, b *Tensor, err error) results {
	if err != nil {
		panic(err)
	}
	return results{a, b}
}

func (d *draw) convOptions(groups int) ConvOptions {
	return ConvOptions{Stride: d.pair(1, 3), Padding: d.pair(0, 3), Dilation: d.pair(1, 2), Groups: groups}
}
