package tensor

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/kernel/opencl"
)

// Sort sorts along dim and returns the values and their indices. Equal elements keep their order; NaN counts as
// larger than any number.
func Sort(t *Tensor, dim int, descending bool) (values, indices *Tensor, err error) {
	return ordered("sort", t, dim, -1, descending)
}

// TopK returns the k largest or smallest elements along dim, in order.
func TopK(t *Tensor, k, dim int, largest bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis("topk", dim, len(t.shape)))
	size := 1
	if len(t.shape) > 0 {
		size = t.shape[a]
	}
	try.FailIf(k < 0 || k > size, "topk: k = %d is out of range for dimension %d of size %d", k, a, size)
	return ordered("topk", t, dim, k, largest)
}

func ordered(op string, t *Tensor, dim, k int, descending bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis(op, dim, len(t.shape)))
	keys := t.Detach()
	if half(t) {
		keys = try.To(Cast(keys, dtype.Float32))
	}
	try.To(computing(keys.dtype, op))
	if len(t.shape) == 0 {
		values = try.To(Clone(t))
		indices, err = Zeros(t.ctx, nil, dtype.Int64)
		return values, indices, err
	}
	last := len(t.shape) - 1
	b := build(op, t)
	rows := b.contiguous(swapped(keys, a, last))
	order := b.of(dtype.Int64, rows.shape...)
	n := t.shape[a]
	if d := order.on(rows); d != nil && n <= opencl.MostOrdered {
		in := d.read(rows)
		d.Order(rows.dtype, rows.n, n, descending, d.write(order), in)
	} else if wide := widest(rows.dtype); wide == dtype.Float64 {
		orderRows[float64](b.cast(rows, wide), order, n, descending)
	} else {
		orderRows[int64](b.cast(rows, wide), order, n, descending)
	}
	if k >= 0 {
		order = part(order, last, 0, k)
	}
	indices = contiguous(swapped(order, a, last))
	return gather(t, a, indices), indices, nil
}

// widest returns the type that has all values of type d, and of all types of its kind.
func widest(d dtype.Type) dtype.Type {
	if d.IsFloat() {
		return dtype.Float64
	}
	return dtype.Int64
}

// orderRows writes, for each row of n values, the order that sorts it.
func orderRows[T cmp.Ordered](t, into *Tensor, n int, descending bool) {
	values, order := Values[T](t), Elems[int64](into)
	for ; len(values) > 0; values, order = values[n:], order[n:] {
		row, o := values[:n], order[:n]
		for i := range o {
			o[i] = int64(i)
		}
		slices.SortStableFunc(o, func(i, j int64) int {
			c := compareNaNLast(row[i], row[j])
			if descending {
				return -c
			}
			return c
		})
	}
	alive(t, into)
}

// compareNaNLast is cmp.Compare, except that NaN comes last rather than first.
func compareNaNLast[T cmp.Ordered](x, y T) int {
	if (x != x) != (y != y) {
		return cmp.Compare(y, x)
	}
	return cmp.Compare(x, y)
}

// The operations below are based on the order of elements; NaN counts as larger than any number.

// ArgSort returns the indices that order t along dim. Equal elements keep their order.
func ArgSort(t *Tensor, dim int, descending bool) (*Tensor, error) {
	_, indices, err := ordered("argsort", t.Detach(), dim, -1, descending)
	return indices, err
}

// noGradient makes a backward pass through out, computed from t, an error.
func noGradient(op string, out, t *Tensor) {
	if out.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(*node, *Tensor, []*Tensor) {
			try.Ok(fmt.Errorf("%s: it has no gradient; detach() its input", op))
		}, t)
	}
}

// Unique returns the distinct elements in ascending order, the index among them of each element of t, and how often
// each occurs. With a dim it compares t's slices along it, element by element. Every NaN is distinct.
func Unique(t *Tensor, dim *int) (values, inverse, counts *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&values)
	const op = "unique"
	try.To(computing(t.dtype, op))
	plain, a := try.To2(flatOr(op, t.Detach(), dim))
	n := plain.shape[a]
	b := build(op, t)
	front := b.contiguous(swapped(plain, a, 0))
	order, inverse := b.of(dtype.Int64, n), b.of(dtype.Int64, n)
	if dim == nil {
		inverse = try.To(View(inverse, t.shape))
	}
	width := 1
	if n > 0 {
		width = front.n / n
	}
	if wide := widest(t.dtype); wide == dtype.Float64 {
		sortSlices[float64](cast(op, front, wide), Elems[int64](order), width)
	} else {
		sortSlices[int64](cast(op, front, wide), Elems[int64](order), width)
	}
	sorted := takeNamed(op, front, 0, order)
	fresh := make([]bool, n) // where a value differs from the one before
	if n > 1 {
		differs := try.To(Binary(OpNe, part(sorted, 0, 1, n-1), part(sorted, 0, 0, n-1)))
		differs = try.To(View(differs, []int{n - 1, width}))
		differs = try.To(Any(differs, []int{1}, false))
		copy(fresh[1:], Values[bool](differs))
	}
	var firsts, times []int64
	for i, at := range Values[int64](order) {
		if i == 0 || fresh[i] {
			firsts, times = append(firsts, int64(i)), append(times, 0)
		}
		times[len(times)-1]++
		Elems[int64](inverse)[at] = int64(len(firsts) - 1)
	}
	picks := try.To(FromInts(t.ctx, firsts, []int{len(firsts)}, dtype.Int64))
	counts = try.To(FromInts(t.ctx, times, []int{len(times)}, dtype.Int64))
	values = takeNamed(op, sorted, 0, picks)
	values = contiguous(swapped(values, a, 0))
	noGradient(op, values, t)
	return values, inverse, counts, nil
}

// sortSlices writes the order that sorts the slices of width elements in t, which is contiguous.
func sortSlices[T cmp.Ordered](t *Tensor, order []int64, width int) {
	v, w := Values[T](t), int64(width)
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortStableFunc(order, func(i, j int64) int {
		return slices.CompareFunc(v[i*w:(i+1)*w], v[j*w:(j+1)*w], compareNaNLast)
	})
	alive(t)
}

// NonZero lists the indices of the elements that are not 0, in row-major order: shape (n, dimensions).
func NonZero(t *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "nonzero"
	mask := cast(op, t.Detach(), dtype.Bool)
	flat := try.To(nonzero(op, mask))
	nd := len(t.shape)
	out := newTensor(op, t.ctx, []int{flat.n, nd}, dtype.Int64)
	v := Elems[int64](out)
	for i, at := range Values[int64](flat) {
		for d := nd - 1; d >= 0; d-- {
			v[i*nd+d] = at % int64(t.shape[d])
			at /= int64(t.shape[d])
		}
	}
	return out, nil
}

// Median returns the middle element, or the lower of the two in the middle; NaN if any element is.
func Median(t *Tensor) (_ *Tensor, err error) {
	const op = "median"
	defer try.CaughtAs(op, &err)
	if t.n == 0 {
		if !t.dtype.IsFloat() {
			return nil, emptyReduction(op, t)
		}
		return Full(t.ctx, nil, Float(math.NaN()), t.dtype)
	}
	out, _ := try.To2(MedianDim(try.To(Reshape(t.Detach(), []int{t.n})), 0, false))
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, backShared, t).save(t, out).twice(backShared)
	}
	return out, nil
}

// MedianDim returns the middle elements along dim and their indices; if there are NaN, the first.
func MedianDim(t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	const op = "median"
	a := try.To(Axis(op, dim, len(t.shape)))
	_, n, _ := around(t.shape, a)
	if n == 0 {
		return nil, nil, emptyReduction(op, t)
	}
	sorted, order := try.To2(ordered(op, t.Detach(), a, -1, false))
	nan := try.To(IsNaN(sorted))
	any, first := try.To(Any(nan, []int{a}, true)), try.To(argExtreme(op, kernel.MaxOver, nan, a))
	at := try.To(Where(any, first, newNumber(t.ctx, Int(int64(n-1)/2), dtype.Int64)))
	indices = gather(order, a, at)
	values = gather(t, a, indices)
	if !keepdim && len(t.shape) > 0 {
		pick := func(i int) bool { return i == a }
		values, indices = squeeze(values, pick), squeeze(indices, pick)
	}
	return values, indices, nil
}

// interpolations maps names to functions that adjust the weight of a quantile between two elements: 0 is the first, 1 the second.
var interpolations = map[string]func(weight float64) float64{
	"linear":   func(w float64) float64 { return w },
	"lower":    func(float64) float64 { return 0 },
	"higher":   math.Ceil,
	"midpoint": func(w float64) float64 { return math.Ceil(w) / 2 },
	"nearest":  nil, // half goes to the even index
}

// Quantile returns the values below which the fractions q of all elements, or of those along dim, lie; NaN if any element is. q is
// a number, or a vector, whose dimension becomes the result's first.
func Quantile(t, q *Tensor, dim *int, keepdim bool, interpolation string) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "quantile"
	try.Ok(NeedFloat(op, t))
	between, ok := interpolations[interpolation]
	try.FailIf(!ok, "%s: no interpolation %q: want linear, lower, higher, midpoint or nearest", op, interpolation)
	if len(q.shape) > 1 || !q.dtype.IsFloat() || records(q, nil) {
		return nil, fmt.Errorf("%s: q must be a number or a vector of %s without gradients, not %s of shape %s", op, t.dtype, q.dtype, ShapeString(q.shape))
	}
	x, a := try.To2(flatOr(op, t, dim))
	n := x.shape[a]
	if n == 0 {
		return nil, emptyReduction(op, t)
	}
	fractions, err := q.Scalars()
	if err != nil {
		return nil, try.As(op, err)
	}
	below, above, weights := make([]int64, q.n), make([]int64, q.n), make([]float64, q.n)
	for i, f := range fractions {
		try.FailIf(!(f.f >= 0 && f.f <= 1), "%s: q must lie between 0 and 1, not %v", op, f)
		rank := f.f * float64(n-1)
		if t.dtype == dtype.Float32 { // in the type of t, as PyTorch does
			rank = float64(float32(f.f) * float32(n-1))
		}
		if between == nil {
			rank = math.RoundToEven(rank)
		} else {
			weights[i] = between(rank - math.Floor(rank))
		}
		below[i], above[i] = int64(rank), int64(math.Ceil(rank))
	}
	sorted, _ := try.To2(ordered(op, x, a, -1, false))
	lowIndex, highIndex := try.To(FromInts(t.ctx, below, q.shape, dtype.Int64)), try.To(FromInts(t.ctx, above, q.shape, dtype.Int64))
	weight := try.To(FromFloats(t.ctx, weights, alongAxis(len(x.shape), a, q.n), t.dtype))
	low, high := try.To(IndexSelect(sorted, a, lowIndex)), try.To(IndexSelect(sorted, a, highIndex))
	out := lerp(low, high, weight)
	nan := try.To(IsNaN(x))
	nan = try.To(Any(nan, []int{a}, true))
	out = try.To(MaskedFill(out, nan, Float(math.NaN())))
	// The dimension of q goes to the front; the reduced dimension stays as 1 or is removed.
	shape := ReducedShape(t.shape, []int{a}, keepdim)
	if dim == nil {
		shape = ReducedShape(t.shape, allDims(len(t.shape)), keepdim)
	}
	if len(q.shape) == 1 {
		order := []int{a}
		for i := range x.shape {
			if i != a {
				order = append(order, i)
			}
		}
		out = try.To(Permute(out, order))
		shape = append([]int{q.n}, shape...)
	}
	out = try.To(Reshape(out, shape))
	return out, nil
}

// lerp interpolates from low to high by weight, and is exact at both ends.
func lerp(low, high, weight *Tensor) *Tensor {
	start, near := try.To(BinaryScalar(OpEq, weight, Int(0), false)), try.To(BinaryScalar(OpLt, weight, Float(0.5), false))
	rest := try.To(BinaryScalar(OpSub, weight, Int(1), true))
	way := try.To(Sub(high, low))
	forth := try.To(chain(way).mul(weight).binary(OpAdd, low).end())
	back := try.To(chain(way).mul(rest).then(func(x *Tensor) (*Tensor, error) { return Sub(high, x) }).end())
	mixed := try.To(Where(near, forth, back))
	return try.To(Where(start, low, mixed)) // also for infinities
}
