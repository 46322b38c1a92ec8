package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

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

// join is Cat of at least one tensor with dimensions, on behalf of op.
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
			return nil, fmt.Errorf("%s: shapes %s and %s (tensor %d) do not match: all sizes but that of dimension %d must agree",
				op, ShapeString(first.shape), ShapeString(t.shape), i, a)
		}
		dt = Promote(dt, t.dtype)
		total += t.shape[a]
		recording = recording || records(t, nil)
	}
	shape := slices.Clone(first.shape)
	shape[a] = total
	out := try.To(newTensor(op, first.ctx, shape, dt))
	at := 0
	for _, t := range ts {
		x := try.To(cast(op, t, dt))
		kCopy(part(out, a, at, t.shape[a]), x)
		at += t.shape[a]
	}
	if recording && dt.IsFloat() {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			at := 0
			for i, t := range ts {
				out[i] = part(g, a, at, t.shape[a])
				at += t.shape[a]
			}
			return nil
		}, ts...)
	}
	return out, nil
}

// Stack joins tensors of equal shape along a new dimension.
func Stack(ts []*Tensor, dim int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if len(ts) == 0 {
		return nil, fmt.Errorf("stack: the list of tensors is empty")
	}
	nd := len(ts[0].shape) + 1
	if nd > MaxDims {
		return nil, fmt.Errorf("stack: a tensor has at most %d dimensions", MaxDims)
	}
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
		rev := try.To(sequence("flip", t.ctx, Int(int64(n-1)), n, Int(-1), dtype.Int64))
		out = try.To(takeNamed("flip", out, d, rev))
	}
	if out == t {
		return Clone(t)
	}
	return out, nil
}

// Pad surrounds t with value. pad has two sizes per dimension, before and after, the last dimension first, as in PyTorch.
func Pad(t *Tensor, pad []int, value Scalar) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if len(pad)%2 != 0 || len(pad)/2 > len(t.shape) {
		return nil, fmt.Errorf("pad: %d sizes for %d dimensions: give two for each, the last dimension first", len(pad), len(t.shape))
	}
	shape, start := slices.Clone(t.shape), make([]int, len(t.shape))
	for i := 0; i < len(pad); i += 2 {
		d := len(shape) - 1 - i/2
		if pad[i] < 0 || pad[i+1] < 0 {
			return nil, fmt.Errorf("pad: sizes must not be negative: %s", ShapeString(pad))
		}
		if pad[i] >= maxElems || pad[i+1] >= maxElems {
			return nil, fmt.Errorf("pad: sizes %s make too many elements", ShapeString(pad))
		}
		shape[d] += pad[i] + pad[i+1]
		start[d] = pad[i]
	}
	out := try.To(full("pad", t.ctx, shape, value, t.dtype))
	center := func(x *Tensor, shape []int) *Tensor {
		for d, s := range start {
			x = part(x, d, s, shape[d])
		}
		return x
	}
	kCopy(center(out, t.shape), t)
	if records(t, nil) {
		record(out, "pad", func(n *node, g *Tensor, out []*Tensor) error {
			out[0] = center(g, n.in[0].shape())
			return nil
		}, t)
	}
	return out, nil
}
