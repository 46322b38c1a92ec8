package tensor

import (
	"math/rand/v2"
	"testing"

	"drun/kernel/dtype"
)

// naive is a tensor as a function of its index: the reference for layouts.
type naive struct {
	shape []int
	at    func(ix []int) float64
}

func (n naive) list() []float64 {
	out := []float64{}
	ix := make([]int, len(n.shape))
	for range product(n.shape) {
		out = append(out, n.at(ix))
		for d := len(ix) - 1; d >= 0; d-- {
			if ix[d]++; ix[d] < n.shape[d] {
				break
			}
			ix[d] = 0
		}
	}
	return out
}

// numbered is a naive tensor whose elements are their places in row-major order.
func numbered(shape []int) naive {
	return naive{shape, func(ix []int) float64 {
		o := 0
		for d, i := range ix {
			o = o*shape[d] + i
		}
		return float64(o)
	}}
}

// listed has these elements in row-major order.
func listed(shape []int, values []float64) naive {
	n := numbered(shape)
	return naive{shape, func(ix []int) float64 { return values[int(n.at(ix))] }}
}

// bounds are the ends of a slice as Python takes them, which may count from the end.
func bounds(start, stop *int, size int) (from, to int) {
	at := func(p *int, otherwise int) int {
		switch {
		case p == nil:
			return otherwise
		case *p < 0:
			return max(*p+size, 0)
		}
		return min(*p, size)
	}
	return at(start, 0), at(stop, size)
}

func clone(ix []int) []int { return append([]int{}, ix...) }

// randomView applies random views to a tensor and to its reference.
func randomView(r *rand.Rand, c *Context) (*Tensor, naive) {
	shape := make([]int, r.IntN(4))
	for i := range shape {
		shape[i] = r.IntN(4) + 1
		if r.IntN(20) == 0 {
			shape[i] = 0
		}
	}
	values := make([]float64, product(shape))
	for i := range values {
		values[i] = float64(r.IntN(199) - 99)
	}
	t, n := must(FromFloats(c, values, shape, dtype.Float32)), listed(shape, values)
	for range r.IntN(4) {
		t, n = viewStep(r, t, n)
	}
	return t, n
}

func viewStep(r *rand.Rand, t *Tensor, n naive) (*Tensor, naive) {
	nd := len(n.shape)
	if nd == 0 {
		return must(Unsqueeze(t, 0)), naive{[]int{1}, func([]int) float64 { return n.at(nil) }}
	}
	d := r.IntN(nd)
	switch r.IntN(5) {
	case 0: // transpose
		e := r.IntN(nd)
		shape := clone(n.shape)
		shape[d], shape[e] = shape[e], shape[d]
		return must(Transpose(t, d, e)), naive{shape, func(ix []int) float64 {
			ix = clone(ix)
			ix[d], ix[e] = ix[e], ix[d]
			return n.at(ix)
		}}
	case 1: // slice
		size := n.shape[d]
		start, stop, step := r.IntN(2*size+3)-size-1, r.IntN(2*size+3)-size-1, r.IntN(3)+1
		var picked []int
		from, to := bounds(&start, &stop, size)
		for i := from; i < to; i += step {
			picked = append(picked, i)
		}
		items := make([]IndexItem, d+1)
		for i := range items {
			items[i].Kind = IndexSlice
		}
		items[d].Start, items[d].Stop, items[d].Step = &start, &stop, &step
		shape := clone(n.shape)
		shape[d] = len(picked)
		return must(Index(t, items)), naive{shape, func(ix []int) float64 {
			ix = clone(ix)
			ix[d] = picked[ix[d]]
			return n.at(ix)
		}}
	case 2: // select
		if n.shape[d] == 0 {
			return t, n
		}
		i := r.IntN(n.shape[d])
		shape := append(clone(n.shape[:d]), n.shape[d+1:]...)
		return must(Select(t, d, i-n.shape[d])), naive{shape, func(ix []int) float64 {
			return n.at(append(append(clone(ix[:d]), i), ix[d:]...))
		}}
	case 3: // expand
		if n.shape[d] != 1 {
			return t, n
		}
		shape := append([]int{2}, n.shape...)
		shape[d+1] = 3
		return must(Expand(t, shape)), naive{shape, func(ix []int) float64 {
			ix = clone(ix[1:])
			ix[d] = 0
			return n.at(ix)
		}}
	}
	flat := n.list() // reshape
	shape := []int{len(flat)}
	if len(flat)%2 == 0 {
		shape = []int{2, len(flat) / 2}
	}
	return must(Reshape(t, shape)), listed(shape, flat)
}

// broadcastNaive is the elementwise reference.
func broadcastNaive(a, b naive, f func(x, y float64) float64) (naive, bool) {
	nd := max(len(a.shape), len(b.shape))
	size := func(n naive, d int) int {
		if d -= nd - len(n.shape); d >= 0 {
			return n.shape[d]
		}
		return 1
	}
	shape := make([]int, nd)
	for d := range shape {
		x, y := size(a, d), size(b, d)
		switch {
		case x == y || y == 1:
			shape[d] = x
		case x == 1:
			shape[d] = y
		default:
			return naive{}, false
		}
	}
	pick := func(n naive, ix []int) float64 {
		ix = clone(ix[nd-len(n.shape):])
		for d := range ix {
			if n.shape[d] == 1 {
				ix[d] = 0
			}
		}
		return n.at(ix)
	}
	return naive{shape, func(ix []int) float64 { return f(pick(a, ix), pick(b, ix)) }}, true
}

func compareAll(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	c := NewContext()
	a, na := randomView(r, c)
	b, nb := randomView(r, c)
	equal(t, a, na.shape, na.list()...)

	want, fits := broadcastNaive(na, nb, func(x, y float64) float64 { return x + 2*y })
	sum, err := Add(a, must(BinaryScalar(OpMul, b, Int(2), false)))
	if fits != (err == nil) {
		t.Fatalf("shapes %v and %v: broadcast %v, error %v", na.shape, nb.shape, fits, err)
	}
	if fits {
		equal(t, sum, want.shape, want.list()...)
	}

	if d := len(na.shape); d > 0 { // a sum over one dimension
		d = r.IntN(d)
		shape := append(clone(na.shape[:d]), na.shape[d+1:]...)
		ref := naive{shape, func(ix []int) float64 {
			total := 0.0
			for i := range na.shape[d] {
				total += na.at(append(append(clone(ix[:d]), i), ix[d:]...))
			}
			return total
		}}
		equal(t, must(Sum(a, []int{d}, false)), shape, ref.list()...)
	}

	// Assigning to a view changes these elements and no others.
	base := must(Zeros(c, []int{3, 4}, dtype.Float32))
	v, nv := viewStep(r, base, numbered([]int{3, 4}))
	if SharesStorage(v, base) && len(v.shape) <= 2 {
		check(t, v.Fill(Int(1)))
		ones := make([]float64, 12)
		for _, i := range nv.list() {
			ones[int(i)] = 1
		}
		equal(t, base, []int{3, 4}, ones...)
	}
}

func TestLayouts(t *testing.T) { seeds(t, 3000, compareAll) }
func FuzzLayouts(f *testing.F) { fuzz(f, compareAll) }

// seeds runs a randomised test so many times, and fuzz looks for seeds that fail it.
func seeds(t *testing.T, n uint64, test func(*testing.T, uint64)) {
	var seed uint64
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for seed = range n {
		if test(t, seed); t.Failed() {
			return
		}
	}
}

func fuzz(f *testing.F, test func(*testing.T, uint64)) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(test)
}

func FuzzParseIndex(f *testing.F) {
	for _, s := range []string{":, 0", "..., 2:5, None", "::2", "-1", "1,", ""} {
		f.Add(s)
	}
	x := must(Zeros(NewContext(), []int{3, 4, 5}, dtype.Float32))
	f.Fuzz(func(t *testing.T, s string) {
		items, err := ParseIndex(s)
		if err != nil {
			return
		}
		if v, err := Index(x, items); err == nil {
			list(v) // every element lies inside the storage
		}
	})
}
