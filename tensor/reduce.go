package tensor

import (
	"fmt"
	"slices"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// widens reports whether a reduction's result for integers is int64.
func widens(kind kernel.ReduceOp) bool { return kind == kernel.Sum || kind == kernel.Prod }

// DimList checks dims and puts them in order; none means all.
func DimList(op string, dims []int, nd int) (_ []int, err error) {
	defer try.Caught(&err)
	if len(dims) == 0 {
		return allDims(nd), nil
	}
	out := make([]int, 0, len(dims))
	for _, d := range dims {
		a := try.To(Axis(op, d, nd))
		if slices.Contains(out, a) {
			try.Fail("%s: dimension %d is named twice", op, d)
		}
		if nd > 0 {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return out, nil
}

func allDims(nd int) []int {
	return each.UpTo(nd, func(i int) int { return i })
}

// alongAxis returns a shape of nd dimensions: n in dimension a, 1 in the others.
func alongAxis(nd, a, n int) []int {
	shape := slices.Repeat([]int{1}, nd)
	shape[a] = n
	return shape
}

// ReducedShape returns shape without dims, or with 1 in their place.
func ReducedShape(shape, dims []int, keep bool) []int {
	out := make([]int, 0, len(shape))
	for i, d := range shape {
		switch {
		case !slices.Contains(dims, i):
			out = append(out, d)
		case keep:
			out = append(out, 1)
		}
	}
	return out
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// around returns the products of the sizes before, in and after dimension a; a tensor without dimensions has 1 in each.
func around(shape []int, a int) (outer, n, inner int) {
	if len(shape) == 0 {
		return 1, 1, 1
	}
	return product(shape[:a]), shape[a], product(shape[a+1:])
}

// reduceDims reduces over dims, which are in order, without recording. Runs
// of neighbouring dimensions are reduced at once, the last first.
func reduceDims(op string, kind kernel.ReduceOp, t *Tensor, dims []int, keep bool) *Tensor {
	final := ReducedShape(t.shape, dims, keep)
	x := contiguous(t)
	var arr [8]int
	shape := append(arr[:0], t.shape...)
	for end := len(dims); end > 0; {
		start := end - 1
		for start > 0 && dims[start-1] == dims[start]-1 {
			start--
		}
		lo, hi := dims[start], dims[end-1]+1
		outer, n, inner := product(shape[:lo]), product(shape[lo:hi]), product(shape[hi:])
		for i := lo; i < hi; i++ {
			shape[i] = 1
		}
		become := shape
		if start == 0 {
			become = final
		}
		dt := x.dtype
		if widens(kind) && !dt.IsFloat() {
			dt = dtype.Int64
		}
		out := newTensor(op, t.ctx, become, dt)
		kReduce(kind, out, x, outer, n, inner)
		if x != t {
			Discard(x)
		}
		x, end = out, start
	}
	if len(dims) == 0 { // a tensor without dimensions
		x = x.Detach()
		if widens(kind) && !t.dtype.IsFloat() && t.dtype != dtype.Int64 {
			return cast(op, x, dtype.Int64)
		}
		return try.To(Clone(x))
	}
	return x
}

// contiguous is Contiguous without recording.
func contiguous(t *Tensor) *Tensor {
	if t.contiguous {
		return t
	}
	out := newTensor("contiguous", t.ctx, t.shape, t.dtype)
	kCopy(out, t)
	return out
}

// spread returns the gradient of a sum over dims: g, broadcast to t's shape.
func spread(g *Tensor, shape, dims []int) *Tensor {
	if len(g.shape) != len(shape) {
		v := viewOf(g, len(shape))
		j := 0
		for i, d := range shape {
			if slices.Contains(dims, i) {
				v.shape[i], v.strides[i] = 1, 0
			} else {
				v.shape[i], v.strides[i] = d, g.strides[j]
				j++
			}
		}
		g = v.seal()
	}
	return expanded(g, shape)
}

// Sum adds over dims (all if none are given). Integers and bools are added in int64.
func Sum(t *Tensor, dims []int, keepdim bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
	dims = try.To(DimList("sum", dims, len(t.shape)))
	try.To(computing(t.dtype, "sum"))
	out := reduceDims("sum", kernel.Sum, t, dims, keepdim)
	if records(t, nil) {
		n := record(out, "sum", func(n *node, g *Tensor, out []*Tensor) {
			out[0] = spread(g, n.in[0].shape(), dims)
		}, t)
		if n.again != nil {
			n.summed(dims, nil)
		}
	}
	return out, nil
}

// Mean averages over dims (all if none are given). The mean of nothing is NaN.
func Mean(t *Tensor, dims []int, keepdim bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	try.Ok(NeedFloat("mean", t))
	dims = try.To(DimList("mean", dims, len(t.shape)))
	count := 1
	for _, d := range dims {
		count *= t.shape[d]
	}
	out := reduceDims("mean", kernel.Sum, t, dims, keepdim)
	scale := newNumber(t.ctx, Float(float64(count)), t.dtype)
	kBinary(OpDiv, out, out, scale)
	if records(t, nil) {
		n := record(out, "mean", func(n *node, g *Tensor, out []*Tensor) {
			out[0] = spread(try.To(Div(g, scale)), n.in[0].shape(), dims)
		}, t)
		if n.again != nil {
			n.summed(dims, scale)
		}
	}
	return out, nil
}

func emptyReduction(op string, t *Tensor) error {
	return fmt.Errorf("%s: nothing to reduce in a tensor of shape %s", op, ShapeString(t.shape))
}

// NeedFloat checks that t has a floating-point type that computes.
func NeedFloat(op string, t *Tensor) error {
	switch {
	case t.dtype == dtype.Float32 || t.dtype == dtype.Float64:
		return nil
	case t.dtype.IsFloat() || t.dtype == dtype.Complex64:
		return StorageOnly(op, t.dtype)
	}
	return fmt.Errorf("%s: needs a floating-point tensor, not %s; cast with .to(\"float32\")", op, t.dtype)
}

// extreme reduces all of t to its largest or smallest element. A NaN wins.
func extreme(op string, kind kernel.ReduceOp, t *Tensor) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	try.To(computing(t.dtype, op))
	if t.n == 0 {
		return nil, emptyReduction(op, t)
	}
	dims := try.To(DimList(op, nil, len(t.shape)))
	out := reduceDims(op, kind, t, dims, false)
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, backShared, t).save(t, out).twice(backShared)
	}
	return out, nil
}

// backShared is the gradient of the largest or smallest element: equal elements share it.
func backShared(n *node, g *Tensor, out []*Tensor) {
	hit := try.To(Binary(OpEq, n.val(0), n.val(1)))
	if v := n.val(1).Element(0).f; v != v { // NaN equals nothing
		hit = try.To(IsNaN(n.val(0)))
	}
	count := try.To(Sum(hit, nil, false))
	share := try.To(Div(g, count))
	out[0] = try.To(Where(hit, share, newNumber(g.ctx, Int(0), g.dtype)))
}

// Max returns the largest element; an empty tensor is an error.
func Max(t *Tensor) (*Tensor, error) { return extreme("max", kernel.MaxOver, t) }

// Min returns the smallest element.
func Min(t *Tensor) (*Tensor, error) { return extreme("min", kernel.MinOver, t) }

// AMax returns the largest elements over dims (all if none are given); equal ones share the gradient.
func AMax(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	return extremes("amax", kernel.MaxOver, t, dims, keepdim)
}

// AMin returns the smallest elements over dims.
func AMin(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	return extremes("amin", kernel.MinOver, t, dims, keepdim)
}

func extremes(op string, kind kernel.ReduceOp, t *Tensor, dims []int, keepdim bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	try.To(computing(t.dtype, op))
	dims = try.To(DimList(op, dims, len(t.shape)))
	for _, d := range dims {
		if t.shape[d] == 0 {
			return nil, emptyReduction(op, t)
		}
	}
	return extremeOver(op, kind, t, dims, keepdim), nil
}

// argExtreme returns int64 indices along dimension a, which stays with size 1.
func argExtreme(op string, kind kernel.ReduceOp, t *Tensor, a int) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	try.To(computing(t.dtype, op))
	outer, n, inner := around(t.shape, a)
	try.FailIf(n == 0, "%s: dimension %d of shape %s is empty", op, a, shaped(t.shape))
	b := build(op, t)
	x, out := b.contiguous(t), b.of(dtype.Int64, ReducedShape(t.shape, []int{a}, true)...)
	if d := out.on(); d != nil {
		in := d.read(x)
		d.ArgReduce(kind, t.dtype, outer, n, inner, d.write(out), in)
	} else {
		kernel.ArgReduce(kind, t.dtype, outer, n, inner, Elems[int64](out), x.read())
	}
	alive(x)
	return out, nil
}

func extremeDim(op string, kind kernel.ReduceOp, t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis(op, dim, len(t.shape)))
	indices = try.To(argExtreme(op, kind, t, a))
	values = gather(t, a, indices)
	if !keepdim && len(t.shape) > 0 {
		pick := func(i int) bool { return i == a }
		values, indices = squeeze(values, pick), squeeze(indices, pick)
	}
	return values, indices, nil
}

// MaxDim returns the largest elements along dim and their indices; among equal ones, the first.
func MaxDim(t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	return extremeDim("max", kernel.MaxOver, t, dim, keepdim)
}

// MinDim returns the smallest elements along dim and their indices.
func MinDim(t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	return extremeDim("min", kernel.MinOver, t, dim, keepdim)
}

func argOf(op string, kind kernel.ReduceOp, t *Tensor, dim *int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if dim == nil {
		if t.n == 0 {
			return nil, emptyReduction(op, t)
		}
		flat := try.To(Reshape(t.Detach(), []int{t.n}))
		i := try.To(argExtreme(op, kind, flat, 0))
		shape := []int{}
		if keepdim {
			for range t.shape {
				shape = append(shape, 1)
			}
		}
		return View(i, shape)
	}
	a := try.To(Axis(op, *dim, len(t.shape)))
	i, err := argExtreme(op, kind, t.Detach(), a)
	if err != nil || keepdim || len(t.shape) == 0 {
		return i, err
	}
	return squeeze(i, func(d int) bool { return d == a }), nil
}

// ArgMax returns the index of the largest element along dim, or in the flattened tensor if dim is nil.
func ArgMax(t *Tensor, dim *int, keepdim bool) (*Tensor, error) {
	return argOf("argmax", kernel.MaxOver, t, dim, keepdim)
}

// ArgMin returns the index of the smallest element.
func ArgMin(t *Tensor, dim *int, keepdim bool) (*Tensor, error) {
	return argOf("argmin", kernel.MinOver, t, dim, keepdim)
}

// logical reduces truth values over dims.
func logical(op string, kind kernel.ReduceOp, t *Tensor, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	dims = try.To(DimList(op, dims, len(t.shape)))
	x := cast(op, t, dtype.Bool)
	return reduceDims(op, kind, x, dims, keepdim), nil
}

// Any reports whether any element is not zero.
func Any(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	return logical("any", kernel.Any, t, dims, keepdim)
}

// All reports whether all elements are not zero.
func All(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	return logical("all", kernel.All, t, dims, keepdim)
}
