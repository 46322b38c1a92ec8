package tensor

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"drun/kernel/element"
)

// Operations based on the order of elements: unique, median, quantiles. NaN counts as larger than any number.

// ArgSort returns the indices that order t along dim. Equal elements keep their order.
func ArgSort(t *Tensor, dim int, descending bool) (*Tensor, error) {
	_, indices, err := ordered("argsort", t.Detach(), dim, -1, descending)
	return indices, err
}

// noGradient makes a backward pass through out, computed from t, an error.
func noGradient(op string, out, t *Tensor) {
	if out.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(*node, *Tensor, []*Tensor) error {
			return fmt.Errorf("%s: it has no gradient; detach() its input", op)
		}, t)
	}
}

// Unique returns the distinct elements in ascending order, for each element of t the index of its equal, and how often each
// occurs. With a dim it compares t's slices along it, element by element. Every NaN is distinct.
func Unique(t *Tensor, dim *int) (values, inverse, counts *Tensor, err error) {
	const op = "unique"
	if _, err := computing(t.dtype, op); err != nil {
		return nil, nil, nil, err
	}
	plain, a, err := flatOr(op, t.Detach(), dim)
	if err != nil {
		return nil, nil, nil, err
	}
	n := plain.shape[a]
	b := build(op, t)
	front := b.contiguous(swapped(plain, a, 0))
	order, inverse := b.of(element.Int64, n), b.of(element.Int64, n)
	if b.err != nil {
		return nil, nil, nil, b.err
	}
	if dim == nil {
		if inverse, err = View(inverse, t.shape); err != nil {
			return nil, nil, nil, err
		}
	}
	width := 1
	if n > 0 {
		width = front.n / n
	}
	if err := orderSlices(op, front, elems[int64](order), width); err != nil {
		return nil, nil, nil, err
	}
	sorted := b.keep(takeNamed(op, front, 0, order))
	if b.err != nil {
		return nil, nil, nil, b.err
	}
	fresh := make([]bool, n) // where a value differs from the one before
	if n > 1 {
		differs := b.keep(Binary(OpNe, part(sorted, 0, 1, n-1), part(sorted, 0, 0, n-1)))
		if b.err == nil {
			differs = b.keep(View(differs, []int{n - 1, width}))
		}
		if b.err == nil {
			differs = b.keep(Any(differs, []int{1}, false))
		}
		if b.err != nil {
			return nil, nil, nil, b.err
		}
		copy(fresh[1:], elems[bool](differs))
	}
	var firsts, times []int64
	for i, at := range elems[int64](order) {
		if i == 0 || fresh[i] {
			firsts, times = append(firsts, int64(i)), append(times, 0)
		}
		times[len(times)-1]++
		elems[int64](inverse)[at] = int64(len(firsts) - 1)
	}
	picks := b.keep(FromInts(t.ctx, firsts, []int{len(firsts)}, element.Int64))
	counts = b.keep(FromInts(t.ctx, times, []int{len(times)}, element.Int64))
	if b.err == nil {
		values = b.keep(takeNamed(op, sorted, 0, picks))
	}
	if b.err == nil {
		values = b.keep(contiguous(swapped(values, a, 0)))
	}
	if b.err != nil {
		return nil, nil, nil, b.err
	}
	noGradient(op, values, t)
	return values, inverse, counts, nil
}

// orderSlices writes the order that sorts the slices of width elements in t, which is contiguous.
func orderSlices(op string, t *Tensor, order []int64, width int) error {
	for i := range order {
		order[i] = int64(i)
	}
	if t.dtype.IsFloat() {
		x, err := cast(op, t, element.Float64)
		if err == nil {
			sortSlices(elems[float64](x), order, width)
		}
		return err
	}
	x, err := cast(op, t, element.Int64)
	if err == nil {
		sortSlices(elems[int64](x), order, width)
	}
	return err
}

func sortSlices[T cmp.Ordered](v []T, order []int64, width int) {
	w := int64(width)
	slices.SortStableFunc(order, func(i, j int64) int {
		return slices.CompareFunc(v[i*w:(i+1)*w], v[j*w:(j+1)*w], compareNaNLast)
	})
}

// NonZero lists the indices of the elements that are not 0, in row-major order: shape (n, dimensions).
func NonZero(t *Tensor) (*Tensor, error) {
	const op = "nonzero"
	mask, err := cast(op, t.Detach(), element.Bool)
	if err != nil {
		return nil, err
	}
	flat, err := nonzero(op, mask)
	if err != nil {
		return nil, err
	}
	nd := len(t.shape)
	out, err := newTensor(op, t.ctx, []int{flat.n, nd}, element.Int64)
	if err != nil {
		return nil, err
	}
	v := elems[int64](out)
	for i, at := range elems[int64](flat) {
		for d := nd - 1; d >= 0; d-- {
			v[i*nd+d] = at % int64(t.shape[d])
			at /= int64(t.shape[d])
		}
	}
	return out, nil
}

// Median is the middle element, or the lower of the two in the middle; NaN if any element is.
func Median(t *Tensor) (*Tensor, error) {
	const op = "median"
	if t.n == 0 {
		if !t.dtype.IsFloat() {
			return nil, emptyReduction(op, t)
		}
		return Full(t.ctx, nil, Float(math.NaN()), t.dtype)
	}
	flat, err := Reshape(t.Detach(), []int{t.n})
	if err != nil {
		return nil, As(op, err)
	}
	out, _, err := MedianDim(flat, 0, false)
	if err == nil && t.dtype.IsFloat() && records(t, nil) {
		record(out, op, backShared, t).save(t, out)
	}
	return out, err
}

// MedianDim returns the middle elements along dim and their indices; of several NaN the first.
func MedianDim(t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	const op = "median"
	a, err := axis(op, dim, len(t.shape))
	if err != nil {
		return nil, nil, err
	}
	_, n, _ := around(t.shape, a)
	if n == 0 {
		return nil, nil, emptyReduction(op, t)
	}
	sorted, order, err := ordered(op, t.Detach(), a, -1, false)
	if err != nil {
		return nil, nil, err
	}
	b := build(op, t)
	nan := b.keep(IsNaN(sorted))
	if b.err != nil {
		return nil, nil, b.err
	}
	any, first := b.keep(Any(nan, []int{a}, true)), b.keep(argExtreme(op, reduceMax, nan, a))
	if b.err != nil {
		return nil, nil, b.err
	}
	at := b.keep(Where(any, first, newNumber(t.ctx, Int(int64(n-1)/2), element.Int64)))
	if b.err == nil {
		indices = b.keep(Gather(order, a, at))
	}
	if b.err == nil {
		values = b.keep(Gather(t, a, indices))
	}
	if b.err == nil && !keepdim && len(t.shape) > 0 {
		pick := func(i int) bool { return i == a }
		values, indices = squeeze(values, pick), squeeze(indices, pick)
	}
	return values, indices, b.err
}

// interpolations say how a quantile between two elements, weight of the way from the first to the second, is found.
var interpolations = map[string]func(weight float64) float64{
	"linear":   func(w float64) float64 { return w },
	"lower":    func(float64) float64 { return 0 },
	"higher":   math.Ceil,
	"midpoint": func(w float64) float64 { return math.Ceil(w) / 2 },
	"nearest":  nil, // half goes to the even index
}

// Quantile returns the elements below which fractions q of all, or of those along dim, lie; NaN if any element is. q has
// no or one dimension, which becomes the result's first.
func Quantile(t, q *Tensor, dim *int, keepdim bool, interpolation string) (*Tensor, error) {
	const op = "quantile"
	if err := needFloat(op, t); err != nil {
		return nil, err
	}
	between, ok := interpolations[interpolation]
	if !ok {
		return nil, fmt.Errorf("%s: no interpolation %q: it is linear, lower, higher, midpoint or nearest", op, interpolation)
	}
	if len(q.shape) > 1 || !q.dtype.IsFloat() || records(q, nil) {
		return nil, fmt.Errorf("%s: q must be a number or a vector of %s without gradients, not %s of shape %s", op, t.dtype, q.dtype, ShapeString(q.shape))
	}
	x, a, err := flatOr(op, t, dim)
	if err != nil {
		return nil, err
	}
	n := x.shape[a]
	if n == 0 {
		return nil, emptyReduction(op, t)
	}
	fractions, err := q.Scalars()
	if err != nil {
		return nil, As(op, err)
	}
	below, above, weights := make([]int64, q.n), make([]int64, q.n), make([]float64, q.n)
	for i, f := range fractions {
		if !(f.f >= 0 && f.f <= 1) {
			return nil, fmt.Errorf("%s: q must lie between 0 and 1, not %v", op, f)
		}
		rank := f.f * float64(n-1)
		if t.dtype == element.Float32 { // in the type of t, as PyTorch does
			rank = float64(float32(f.f) * float32(n-1))
		}
		if between == nil {
			rank = math.RoundToEven(rank)
		} else {
			weights[i] = between(rank - math.Floor(rank))
		}
		below[i], above[i] = int64(rank), int64(math.Ceil(rank))
	}
	b := build(op, t)
	sorted, _, err := ordered(op, x, a, -1, false)
	b.keep(nil, err)
	lowIndex, highIndex := b.keep(FromInts(t.ctx, below, q.shape, element.Int64)), b.keep(FromInts(t.ctx, above, q.shape, element.Int64))
	wide := make([]int, len(x.shape)) // the shape of one number for each q along a
	for i := range wide {
		wide[i] = 1
	}
	wide[a] = q.n
	weight := b.keep(FromFloats(t.ctx, weights, wide, t.dtype))
	if b.err != nil {
		return nil, b.err
	}
	low, high := b.keep(IndexSelect(sorted, a, lowIndex)), b.keep(IndexSelect(sorted, a, highIndex))
	if b.err != nil {
		return nil, b.err
	}
	out := b.keep(lerp(low, high, weight))
	nan := b.keep(IsNaN(x))
	if b.err != nil {
		return nil, b.err
	}
	nan = b.keep(Any(nan, []int{a}, true))
	if b.err != nil {
		return nil, b.err
	}
	if out = b.keep(MaskedFill(out, nan, Float(math.NaN()))); b.err != nil {
		return nil, b.err
	}
	// The dimension of q goes to the front; the reduced dimension stays as 1 or is removed.
	shape := reducedShape(t.shape, []int{a}, keepdim)
	if dim == nil {
		shape = reducedShape(t.shape, allDims(t), keepdim)
	}
	if len(q.shape) == 1 {
		order := []int{a}
		for i := range x.shape {
			if i != a {
				order = append(order, i)
			}
		}
		out = b.keep(Permute(out, order))
		shape = append([]int{q.n}, shape...)
	}
	if b.err == nil {
		out = b.keep(Reshape(out, shape))
	}
	return out, b.err
}

// lerp goes weight of the way from low to high, and is exact at both ends.
func lerp(low, high, weight *Tensor) (*Tensor, error) {
	b := build("quantile", low)
	start, near := b.keep(BinaryScalar(OpEq, weight, Int(0), false)), b.keep(BinaryScalar(OpLt, weight, Float(0.5), false))
	rest := b.keep(BinaryScalar(OpSub, weight, Int(1), true))
	way := b.keep(Sub(high, low))
	if b.err != nil {
		return nil, b.err
	}
	forth := b.keep(chain(way).mul(weight).binary(OpAdd, low).end())
	back := b.keep(chain(way).mul(rest).then(func(x *Tensor) (*Tensor, error) { return Sub(high, x) }).end())
	if b.err != nil {
		return nil, b.err
	}
	mixed := b.keep(Where(near, forth, back))
	if b.err != nil {
		return nil, b.err
	}
	return Where(start, low, mixed) // also for infinities
}

func allDims(t *Tensor) []int {
	dims := make([]int, len(t.shape))
	for i := range dims {
		dims[i] = i
	}
	return dims
}
