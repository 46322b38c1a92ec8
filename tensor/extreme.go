package tensor

import (
	"fmt"

	"drun/kernel"
	"drun/kernel/element"
)

// extreme reduces all of t to its largest or smallest element. A NaN wins.
func extreme(op string, kind reduction, t *Tensor) (*Tensor, error) {
	if half(t) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return extreme(op, kind, t[0]) }, t)
	}
	if _, err := computing(t.dtype, op); err != nil {
		return nil, err
	}
	if t.n == 0 {
		return nil, emptyReduction(op, t)
	}
	dims, err := dimList(op, nil, len(t.shape))
	if err != nil {
		return nil, err
	}
	out, err := reduceDims(op, kind, t, dims, false)
	if err != nil {
		return nil, err
	}
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, backShared, t).save(t, out)
	}
	return out, nil
}

// backShared is the gradient of an element that was chosen: equal elements share it.
func backShared(n *node, g *Tensor, out []*Tensor) error {
	b := build(n.op, g)
	hit := b.keep(Binary(OpEq, n.val(0), n.val(1)))
	if v := n.val(1).at(0).f; v != v { // NaN equals nothing
		hit = b.keep(IsNaN(n.val(0)))
	}
	if b.err != nil {
		return b.err
	}
	count := b.keep(Sum(hit, nil, false))
	if b.err != nil {
		return b.err
	}
	share := b.keep(Div(g, count))
	if b.err == nil {
		out[0] = b.keep(Where(hit, share, newNumber(g.ctx, Int(0), g.dtype)))
	}
	return b.err
}

// Max is the largest element; an empty tensor is an error.
func Max(t *Tensor) (*Tensor, error) { return extreme("max", reduceMax, t) }

// Min is the smallest element.
func Min(t *Tensor) (*Tensor, error) { return extreme("min", reduceMin, t) }

// argExtreme returns int64 indices along dimension a, which stays with size 1.
func argExtreme(op string, kind reduction, t *Tensor, a int) (*Tensor, error) {
	if half(t) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return argExtreme(op, kind, t[0], a) }, t)
	}
	if _, err := computing(t.dtype, op); err != nil {
		return nil, err
	}
	outer, n, inner := around(t.shape, a)
	if n == 0 {
		return nil, fmt.Errorf("%s: dimension %d of shape %s is empty", op, a, ShapeString(t.shape))
	}
	b := build(op, t)
	x, out := b.contiguous(t), b.of(element.Int64, reducedShape(t.shape, []int{a}, true)...)
	if b.err == nil {
		kernel.ArgReduce(kernel.ReduceOp(kind), t.dtype, outer, n, inner, elems[int64](out), x.ptr())
	}
	alive(x)
	return out, b.err
}

func extremeDim(op string, kind reduction, t *Tensor, dim int, keepdim bool) (values, indices *Tensor, err error) {
	a, err := axis(op, dim, len(t.shape))
	if err != nil {
		return nil, nil, err
	}
	if indices, err = argExtreme(op, kind, t, a); err != nil {
		return nil, nil, err
	}
	if values, err = Gather(t, a, indices); err != nil {
		return nil, nil, err
	}
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

func argOf(op string, kind reduction, t *Tensor, dim *int, keepdim bool) (*Tensor, error) {
	if dim == nil {
		if t.n == 0 {
			return nil, emptyReduction(op, t)
		}
		flat, err := Reshape(t.Detach(), []int{t.n})
		if err != nil {
			return nil, err
		}
		i, err := argExtreme(op, kind, flat, 0)
		if err != nil {
			return nil, err
		}
		shape := []int{}
		if keepdim {
			for range t.shape {
				shape = append(shape, 1)
			}
		}
		return View(i, shape)
	}
	a, err := axis(op, *dim, len(t.shape))
	if err != nil {
		return nil, err
	}
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
func logical(op string, kind reduction, t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	dims, err := dimList(op, dims, len(t.shape))
	if err != nil {
		return nil, err
	}
	x, err := cast(op, t, element.Bool)
	if err != nil {
		return nil, err
	}
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
