package tensor

import (
	"math/rand/v2"
	"slices"
	"testing"

	"drun/kernel/dtype"
)

// anyView is viewStep with the views that it lacks.
func anyView(r *rand.Rand, t *Tensor, n naive) (*Tensor, naive) {
	nd := len(n.shape)
	if nd == 0 || nd > 5 {
		return t, n
	}
	d := r.IntN(nd)
	switch r.IntN(7) {
	case 0:
		start := r.IntN(n.shape[d] + 1)
		length := r.IntN(n.shape[d] - start + 1)
		shape := clone(n.shape)
		shape[d] = length
		from := start
		if r.IntN(2) == 0 && start < n.shape[d] {
			from -= n.shape[d] // counted from the end
		}
		return must(Narrow(t, d-nd, from, length)), naive{shape, func(ix []int) float64 {
			ix = clone(ix)
			ix[d] += start
			return n.at(ix)
		}}
	case 1:
		return must(Unsqueeze(t, d)), naive{slices.Insert(clone(n.shape), d, 1), func(ix []int) float64 {
			return n.at(slices.Delete(clone(ix), d, d+1))
		}}
	case 2:
		if n.shape[d] != 1 {
			return t, n
		}
		return must(Squeeze(t, d)), naive{slices.Delete(clone(n.shape), d, d+1), func(ix []int) float64 {
			return n.at(slices.Insert(clone(ix), d, 0))
		}}
	case 3:
		order := r.Perm(nd)
		shape := make([]int, nd)
		for i, o := range order {
			shape[i] = n.shape[o]
		}
		return must(Permute(t, order)), naive{shape, func(ix []int) float64 {
			back := make([]int, nd)
			for i, o := range order {
				back[o] = ix[i]
			}
			return n.at(back)
		}}
	}
	return viewStep(r, t, n)
}

// viewsOfViews goes through a chain of views: what it shows, what changing it in
// place changes, and where its gradient goes.
func viewsOfViews(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	c := NewContext()
	shape := make([]int, r.IntN(3)+1)
	for i := range shape {
		shape[i] = r.IntN(4) + 1
	}
	places := make([]float64, product(shape))
	for i := range places {
		places[i] = float64(i)
	}
	base := floats(c, dtype.Float32, shape, places...)
	check(t, base.SetRequiresGrad(true))
	v, n := base, numbered(shape)
	for range r.IntN(6) + 1 {
		v, n = anyView(r, v, n)
	}
	shown := n.list()
	equal(t, v, n.shape, shown...)

	// Backward: an element's gradient goes to its place, and adds up there.
	weights := make([]float64, len(shown))
	want := make([]float64, len(places))
	for i, place := range shown {
		weights[i] = float64(r.IntN(9) - 4)
		want[int(place)] += weights[i]
	}
	if v.n > 0 && v != base {
		check(t, v.Backward(floats(c, dtype.Float32, n.shape, weights...), false))
		equal(t, base.Grad(), shape, want...)
	}

	// In place: all the elements shown, no others, unless several share a place.
	if !SharesStorage(v, base) {
		return
	}
	twice := false
	for i, place := range shown {
		twice = twice || slices.Contains(shown[:i], place)
	}
	after := slices.Clone(places)
	for i, place := range shown {
		after[int(place)] = after[int(place)]*2 + weights[i]
	}
	plain := v.Detach()
	err := BinaryInPlace(OpMul, plain, floats(c, dtype.Float32, nil, 2))
	if twice {
		fails(t, err, "expanded", "clone()")
		return
	}
	check(t, err)
	check(t, BinaryInPlace(OpAdd, plain, floats(c, dtype.Float32, n.shape, weights...)))
	equal(t, base.Detach(), shape, after...)
}

func TestViewsOfViews(t *testing.T) { seeds(t, 4000, viewsOfViews) }
func FuzzViewsOfViews(f *testing.F) { fuzz(f, viewsOfViews) }

// randomIndex makes an index for a shape, and what it picks: for each dimension
// of the result its entries of the source's dimension, -1 for a new one.
func randomIndex(r *rand.Rand, shape []int) (items []IndexItem, dims []int, picks [][]int, fixed map[int]int) {
	fixed = map[int]int{}
	skip := -1
	if r.IntN(3) == 0 {
		skip = r.IntN(len(shape) + 1) // where ... stands, for one dimension or none
	}
	all := func(d int) []int {
		p := make([]int, shape[d])
		for i := range p {
			p[i] = i
		}
		return p
	}
	for d := 0; d < len(shape); d++ {
		size := shape[d]
		if r.IntN(4) == 0 {
			items = append(items, IndexItem{Kind: IndexNewAxis})
			dims, picks = append(dims, -1), append(picks, []int{0})
		}
		if d == skip {
			items = append(items, IndexItem{Kind: IndexEllipsis})
			dims, picks = append(dims, d), append(picks, all(d))
			continue
		}
		if size > 0 && r.IntN(2) == 0 {
			i := r.IntN(size)
			fixed[d] = i
			items = append(items, IndexItem{Kind: IndexInt, I: i - size*r.IntN(2)})
			continue
		}
		it, step := IndexItem{Kind: IndexSlice}, 1
		if r.IntN(2) == 0 {
			it.Start = new(r.IntN(2*size+3) - size - 1)
		}
		if r.IntN(2) == 0 {
			it.Stop = new(r.IntN(2*size+3) - size - 1)
		}
		if r.IntN(2) == 0 {
			step = r.IntN(3) + 1
			it.Step = &step
		}
		var p []int
		from, to := bounds(it.Start, it.Stop, size)
		for i := from; i < to; i += step {
			p = append(p, i)
		}
		items, dims, picks = append(items, it), append(dims, d), append(picks, p)
	}
	return items, dims, picks, fixed
}

// indexing compares x[index] and x[index] = v with loops over the entries, and
// the gradients of both.
func indexing(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 8))
	c := NewContext()
	x, nx := randomView(r, c)
	items, dims, picks, fixed := randomIndex(r, nx.shape)
	shape := make([]int, len(dims))
	for i := range shape {
		shape[i] = len(picks[i])
	}
	source := func(ix []int) []int {
		at := make([]int, len(nx.shape))
		for d, i := range fixed {
			at[d] = i
		}
		for i, d := range dims {
			if d >= 0 {
				at[d] = picks[i][ix[i]]
			}
		}
		return at
	}
	want := naive{shape, func(ix []int) float64 { return nx.at(source(ix)) }}
	equal(t, must(Index(x, items)), shape, want.list()...)

	// Assignment, broadcast from a part of the shape, with gradients.
	value := clone(shape)
	for i := range value {
		if r.IntN(3) == 0 && value[i] > 0 {
			value[i] = 1
		}
	}
	value = value[r.IntN(len(value)+1):]
	leaf := must(Full(c, value, Float(1000), dtype.Float32))
	y := must(Clone(x.Detach()))
	check(t, y.SetRequiresGrad(true))
	z := must(BinaryScalar(OpMul, y, Int(1), false))
	check(t, leaf.SetRequiresGrad(true))
	check(t, SetIndex(z, items, leaf))
	hit := make([]float64, product(nx.shape))
	number := numbered(nx.shape)
	places := naive{shape, func(ix []int) float64 { return number.at(source(ix)) }}
	for _, p := range places.list() {
		hit[int(p)] = 1
	}
	got, old := list(z), nx.list()
	for i := range hit {
		if w := old[i] + hit[i]*(1000-old[i]); got[i] != w {
			t.Fatalf("element %d after the assignment is %v, want %v", i, got[i], w)
		}
	}
	if z.n == 0 {
		return
	}
	check(t, must(Sum(z, nil, false)).Backward(nil, false))
	for i, g := range list(y.Grad()) {
		if g != 1-hit[i] {
			t.Fatalf("gradient %d of what was assigned to is %v, want %v", i, g, 1-hit[i])
		}
	}
	total := 0.0
	for _, h := range hit {
		total += h
	}
	if leaf.n > 0 {
		if sum := scalar(must(Sum(leaf.Grad(), nil, false))); sum != total {
			t.Fatalf("the value's gradients sum up to %v, want %v", sum, total)
		}
	}
}

func TestIndexing(t *testing.T) { seeds(t, 4000, indexing) }
func FuzzIndexing(f *testing.F) { fuzz(f, indexing) }
