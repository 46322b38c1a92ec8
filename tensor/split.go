package tensor

import (
	"fmt"
	"slices"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
)

// Split cuts dim into parts of the given sizes, which add up to its size. The parts are views.
func Split(t *Tensor, sizes []int, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	const op = "split"
	a := splitAxis(op, t, dim)
	total := 0
	for _, n := range sizes {
		if n < 0 || n > t.shape[a]-total {
			total = -1
			break
		}
		total += n
	}
	try.FailIf(total != t.shape[a], "%s: sizes %s do not add up to dimension %d of shape %s", op, shaped(sizes), a, shaped(t.shape))
	return parts(t, a, sizes), nil
}

// SplitEvery cuts dim into parts of the given size; the last is what is left.
func SplitEvery(t *Tensor, size, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	const op = "split"
	a := splitAxis(op, t, dim)
	try.FailIf(size < 0 || size == 0 && t.shape[a] > 0, "%s: parts of size %d do not fill dimension %d of shape %s", op, size, a, shaped(t.shape))
	fewParts(op, t, a, (t.shape[a]-1)/max(size, 1)+1)
	return every(t, a, size), nil
}

// fewParts returns an error if there are more parts than a list may have.
func fewParts(op string, t *Tensor, a, n int) {
	try.FailIf(n > MaxValues(), "%s: dimension %d of shape %s in %d parts makes too many tensors", op, a, shaped(t.shape), n)
}

// Chunk cuts dim into at most n parts of equal size; the last is what is left.
func Chunk(t *Tensor, n, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	const op = "chunk"
	a := splitAxis(op, t, dim)
	try.FailIf(n < 1, "%s: dimension %d of shape %s cannot be cut into %d parts", op, a, shaped(t.shape), n)
	fewParts(op, t, a, n)
	if t.shape[a] == 0 {
		return parts(t, a, make([]int, n)), nil
	}
	return every(t, a, (t.shape[a]-1)/n+1), nil
}

// every returns at least one part, of the given size or what is left.
func every(t *Tensor, a, size int) []*Tensor {
	var sizes []int
	for left := t.shape[a]; left > 0 || sizes == nil; left -= size {
		sizes = append(sizes, min(size, left))
	}
	return parts(t, a, sizes)
}

func parts(t *Tensor, a int, sizes []int) []*Tensor {
	list, at := make([]*Tensor, len(sizes)), 0
	for i, n := range sizes {
		list[i] = sliceDim(t, a, at, n, 1)
		at += n
	}
	return list
}

// Unbind returns a view for each index of dim, without that dimension.
func Unbind(t *Tensor, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	a := splitAxis("unbind", t, dim)
	fewParts("unbind", t, a, t.shape[a])
	list := each.UpTo(t.shape[a], func(i int) *Tensor { return selectDim(t, a, i) })
	return list, nil
}

// splitAxis is Axis for operations that need a dimension to cut.
func splitAxis(op string, t *Tensor, dim int) int {
	try.FailIf(len(t.shape) == 0, "%s: a tensor without dimensions cannot be cut", op)
	return try.To(Axis(op, dim, len(t.shape)))
}

// Repeat tiles copies of t: counts[i] of them along dimension i; additional dimensions come first.
func Repeat(t *Tensor, counts []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "repeat"
	pad := len(counts) - len(t.shape)
	try.FailIf(pad < 0, "%s: %d counts for a tensor of %d dimensions (shape %s)", op, len(counts), len(t.shape), shaped(t.shape))
	var split, wide, shape []int
	for i, n := range counts {
		size := 1
		if i >= pad {
			size = t.shape[i-pad]
		}
		try.FailIf(n < 0 || size > 0 && n > maxElems/size, "%s: counts %s do not fit shape %s", op, shaped(counts), shaped(t.shape))
		split, wide, shape = append(split, 1, size), append(wide, n, size), append(shape, n*size)
	}
	if len(counts) == 0 {
		return Clone(t)
	}
	// View each dimension as (1, size), and stretch it to (n, size).
	x, err := chain(t).then(func(x *Tensor) (*Tensor, error) { return Reshape(x, split) }).
		then(func(x *Tensor) (*Tensor, error) { return Expand(x, wide) }).
		then(Clone).then(func(x *Tensor) (*Tensor, error) { return View(x, shape) }).end()
	return x, try.As(op, err)
}

// RepeatInterleave repeats each element n times along dim, or of the flattened tensor if dim is nil; counts holds n for
// each element, or one for all.
func RepeatInterleave(t *Tensor, counts *Tensor, dim *int) (_ *Tensor, err error) {
	const op = "repeat_interleave"
	defer try.CaughtAs(op, &err)
	t, a := try.To2(flatOr(op, t, dim))
	size := t.shape[a]
	try.FailIf(!counts.dtype.IsInt() || len(counts.shape) > 1 || counts.n != 1 && counts.n != size,
		"%s: counts of type %s and shape %s do not fit dimension %d of shape %s: want one integer, or one for each element", op, counts.dtype, shaped(counts.shape), a, shaped(t.shape))
	try.FailIf(size > MaxValues(), "%s: dimension %d of shape %s is too large", op, a, shaped(t.shape))
	list := try.To(counts.Detach().Scalars())
	total := 0
	for i := range size {
		n := list[i%len(list)].i
		if n < 0 || n > int64(maxElems-total) {
			try.Fail("%s: an element cannot be repeated %d times", op, n)
		}
		total += int(n)
	}
	index := newTensor(op, t.ctx, []int{total}, dtype.Int64)
	at := Elems[int64](index)
	for i := range size {
		for range list[i%len(list)].i {
			at[0] = int64(i)
			at = at[1:]
		}
	}
	return takeNamed(op, t, a, index), nil
}

// flatOr returns t and the dimension dim; t is flattened if dim is nil, and gets a dimension if it has none.
func flatOr(op string, t *Tensor, dim *int) (_ *Tensor, a int, err error) {
	defer try.CaughtAs(op, &err)
	if dim != nil {
		a = try.To(Axis(op, *dim, len(t.shape)))
	}
	if dim == nil || len(t.shape) == 0 {
		t = try.To(Reshape(t, []int{t.n}))
	}
	return t, a, nil
}

// Roll moves elements by shifts[i] along dims[i]; those beyond the end come back at the front. Without dims the flattened
// tensor is rolled.
func Roll(t *Tensor, shifts, dims []int) (_ *Tensor, err error) {
	const op = "roll"
	defer try.CaughtAs(op, &err)
	if len(dims) == 0 && len(shifts) == 1 {
		return View(try.To(Roll(try.To(Reshape(t, []int{t.n})), shifts, []int{0})), t.shape)
	}
	try.FailIf(len(shifts) != len(dims), "%s: %d shifts for %d dimensions", op, len(shifts), len(dims))
	out := t
	for i, d := range dims {
		a := try.To(Axis(op, d, len(t.shape)))
		_, n, _ := around(t.shape, a)
		if t.n == 0 || n == 1 {
			continue
		}
		k := (shifts[i]%n + n) % n
		out = try.To(join(op, []*Tensor{sliceDim(out, a, n-k, k, 1), sliceDim(out, a, 0, n-k, 1)}, a))
	}
	if out == t {
		return Clone(t)
	}
	return out, nil
}

// Cat joins tensors along dim; their other sizes must agree.
func Cat(ts []*Tensor, dim int) (*Tensor, error) {
	if len(ts) == 0 {
		return nil, fmt.Errorf("cat: the list of tensors is empty")
	}
	if len(ts[0].shape) == 0 {
		return nil, fmt.Errorf("cat: tensors without dimensions cannot be joined; use stack")
	}
	return join("cat", ts, dim)
}

// join is Cat of at least one tensor with dimensions, for the operation op.
func join(op string, ts []*Tensor, dim int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	first := ts[0]
	a := try.To(Axis(op, dim, len(first.shape)))
	dt, total, recording := first.dtype, 0, false
	for i, t := range ts {
		same := len(t.shape) == len(first.shape)
		for d := range t.shape {
			same = same && (d == a || t.shape[d] == first.shape[d])
		}
		if !same {
			try.Fail("%s: shapes %s and %s (tensor %d) do not match: all sizes but that of dimension %d must agree", op, ShapeString(first.shape), ShapeString(t.shape), i, a)
		}
		dt = Promote(dt, t.dtype)
		total += t.shape[a]
		recording = recording || records(t, nil)
	}
	shape := slices.Clone(first.shape)
	shape[a] = total
	out := newTensor(op, first.ctx, shape, dt)
	at := 0
	for _, t := range ts {
		x := cast(op, t, dt)
		kCopy(part(out, a, at, t.shape[a]), x)
		at += t.shape[a]
	}
	if recording && dt.IsFloat() {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			at := 0
			for i, t := range ts {
				out[i] = part(g, a, at, t.shape[a])
				at += t.shape[a]
			}
		}, ts...)
		if n.again != nil {
			n.twice(func(n *node, g *Tensor, out []*Tensor) {
				at := 0
				for i, t := range ts {
					out[i] = sliceDim(g, a, at, t.shape[a], 1)
					at += t.shape[a]
				}
			})
		}
	}
	return out, nil
}

// Stack joins tensors of equal shape along a new dimension.
func Stack(ts []*Tensor, dim int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(len(ts) == 0, "stack: the list of tensors is empty")
	nd := len(ts[0].shape) + 1
	try.FailIf(nd > MaxDims, "stack: a tensor has at most %d dimensions", MaxDims)
	dim = try.To(Axis("stack", dim, nd))
	wide := make([]*Tensor, len(ts))
	for i, t := range ts {
		if !sameShape(t.shape, ts[0].shape) {
			return nil, fmt.Errorf("stack: shapes %s and %s (tensor %d) differ", ShapeString(ts[0].shape), ShapeString(t.shape), i)
		}
		wide[i] = try.To(Unsqueeze(t, dim))
	}
	return join("stack", wide, dim)
}

// Flip reverses the order along dims.
func Flip(t *Tensor, dims []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	dims = try.To(DimList("flip", dims, len(t.shape)))
	out := t
	for _, d := range dims {
		n := t.shape[d]
		rev := sequence("flip", t.ctx, Int(int64(n-1)), n, Int(-1), dtype.Int64)
		out = takeNamed("flip", out, d, rev)
	}
	if out == t {
		return Clone(t)
	}
	return out, nil
}

// Pad surrounds t with value. pad has two sizes per dimension, before and after, the last dimension first, as in PyTorch;
// negative ones cut off.
func Pad(t *Tensor, pad []int, value Scalar) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(len(pad)%2 != 0 || len(pad)/2 > len(t.shape), "pad: %d sizes for %d dimensions: give two for each, the last dimension first", len(pad), len(t.shape))
	shape, start := slices.Clone(t.shape), make([]int, len(t.shape))
	for i := 0; i < len(pad); i += 2 {
		d := len(shape) - 1 - i/2
		try.FailIf(max(pad[i], pad[i+1]) >= maxElems, "pad: sizes %s make too many elements", shaped(pad))
		if before, behind := min(pad[i], 0), min(pad[i+1], 0); before != 0 || behind != 0 {
			left := shape[d] + before + behind
			try.FailIf(pad[i] < -shape[d] || left < 0, "pad: %d and %d cut more than the %d elements of dimension %d", pad[i], pad[i+1], shape[d], d)
			t = try.To(Narrow(t, d, -before, left))
			shape[d] = left
		}
		shape[d] += max(pad[i], 0) + max(pad[i+1], 0)
		start[d] = max(pad[i], 0)
	}
	out := full("pad", t.ctx, shape, value, t.dtype)
	center := func(x *Tensor, shape []int) *Tensor {
		for d, s := range start {
			x = part(x, d, s, shape[d])
		}
		return x
	}
	kCopy(center(out, t.shape), t)
	if records(t, nil) {
		record(out, "pad", func(n *node, g *Tensor, out []*Tensor) {
			out[0] = center(g, n.in[0].shape())
		}, t).twice(func(n *node, g *Tensor, out []*Tensor) {
			for d, s := range start {
				g = sliceDim(g, d, s, n.in[0].shape()[d], 1)
			}
			out[0] = g
		})
	}
	return out, nil
}
