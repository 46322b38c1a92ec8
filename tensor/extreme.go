package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// extreme reduces all of t to its largest or smallest element. A NaN wins.
func extreme(op string, kind reduction, t *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return extreme(op, kind, t[0]) }, t)
	}
	try.To(computing(t.dtype, op))
	if t.n == 0 {
		return nil, emptyReduction(op, t)
	}
	dims := try.To(DimList(op, nil, len(t.shape)))
	out := try.To(reduceDims(op, kind, t, dims, false))
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, backShared, t).save(t, out)
	}
	return out, nil
}

// backShared is the gradient of an element that was chosen: equal elements share it.
func backShared(n *node, g *Tensor, out []*Tensor) error {
	hit := try.To(Binary(OpEq, n.val(0), n.val(1)))
	if v := n.val(1).at(0).f; v != v { // NaN equals nothing
		hit = try.To(IsNaN(n.val(0)))
	}
	count := try.To(Sum(hit, nil, false))
	share := try.To(Div(g, count))
	out[0] = try.To(Where(hit, share, newNumber(g.ctx, Int(0), g.dtype)))
	return nil
}

// Max is the largest element; an empty tensor is an error.
func Max(t *Tensor) (*Tensor, error) { return extreme("max", reduceMax, t) }

// Min is the smallest element.
func Min(t *Tensor) (*Tensor, error) { return extreme("min", reduceMin, t) }

// argExtreme returns int64 indices along dimension a, which stays with size 1.
func argExtreme(op string, kind reduction, t *Tensor, a int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return argExtreme(op, kind, t[0], a) }, t)
	}
	try.To(computing(t.dtype, op))
	outer, n, inner := around(t.shape, a)
	if n == 0 {
		return nil, fmt.Errorf("%s: dimension %d of shape %s is empty", op, a, ShapeString(t.shape))
	}
	b := build(op, t)
	x, out := b.contiguous(t), b.of(dtype.Int64, ReducedShape(t.shape, []int{a}, true)...)
	kernel.ArgReduce(kernel.ReduceOp(kind), t.dtype, outer, n, inner, Elems[int64](out), x.ptr())
	alive(x)
	return out, nil
}

func extremeDim(op string, kind reduction, t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis(op, dim, len(t.shape)))
	indices = try.To(argExtreme(op, kind, t, a))
	values = try.To(Gather(t, a, indices))
	if !keepdim && len(t.shape) > 0 {
		pick := func(i int) bool { return i == a }
		values, indices = squeeze(values, pick), squeeze(indices, pick)
	}
	return values, indices, nil
}

// MaxDim returns the largest elements along dim and their indices; of equal ones the first.
func MaxDim(t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	return extremeDim("max", reduceMax, t, dim, keepdim)
}

// MinDim returns the smallest elements along dim and their indices.
func MinDim(t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	return extremeDim("min", reduceMin, t, dim, keepdim)
}

func argOf(op string, kind reduction, t *Tensor, dim *int, keepdim bool) (_ *Tensor, err error) {
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

// ArgMax returns the index of the largest element along dim, or in the
// flattened tensor if dim is nil.
func ArgMax(t *Tensor, dim *int, keepdim bool) (*Tensor, error) {
	return argOf("argmax", reduceMax, t, dim, keepdim)
}

// ArgMin returns the index of the smallest element.
func ArgMin(t *Tensor, dim *int, keepdim bool) (*Tensor, error) {
	return argOf("argmin", reduceMin, t, dim, keepdim)
}

// logical reduces truth values over dims.
func logical(op string, kind reduction, t *Tensor, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	dims = try.To(DimList(op, dims, len(t.shape)))
	x := try.To(cast(op, t, dtype.Bool))
	return reduceDims(op, kind, x, dims, keepdim)
}

// Any reports whether any element is not zero.
func Any(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	return logical("any", reduceAny, t, dims, keepdim)
}

// All reports whether all elements are not zero.
func All(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	return logical("all", reduceAll, t, dims, keepdim)
}
