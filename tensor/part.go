package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
)

// Expand stretches dimensions of size 1 to the given shape without copying;
// -1 keeps a size, and new dimensions may be put in front.
func Expand(t *Tensor, shape []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	pad := len(shape) - len(t.shape)
	if pad < 0 {
		return nil, fmt.Errorf("expand: shape %s has fewer dimensions than the tensor's %s", ShapeString(shape), ShapeString(t.shape))
	}
	want := slices.Clone(shape)
	for i, d := range shape {
		if d == -1 && i >= pad {
			want[i] = t.shape[i-pad]
		}
		if i >= pad && want[i] != t.shape[i-pad] && t.shape[i-pad] != 1 {
			return nil, fmt.Errorf("expand: shape %s does not stretch to %s: dimension %d has size %d, not 1",
				ShapeString(t.shape), ShapeString(shape), i, t.shape[i-pad])
		}
	}
	try.To(countElems("expand", want))
	return finishView("expand", t, expanded(t, want), func(_ *node, g *Tensor, out []*Tensor) error {
		out[0] = g // the engine sums it to t's shape
		return nil
	}), nil
}

// expanded is Expand to a shape known to fit, without recording.
func expanded(t *Tensor, shape []int) *Tensor {
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	broadcastStrides(v.strides, shape, t)
	return v.seal()
}

// Narrow returns length elements from start on along dim.
func Narrow(t *Tensor, dim, start, length int) (*Tensor, error) {
	a, err := Axis("narrow", dim, len(t.shape))
	if err != nil {
		return nil, err
	}
	if len(t.shape) == 0 {
		return nil, fmt.Errorf("narrow: the tensor has no dimensions")
	}
	size := t.shape[a]
	if start < -size || start > size {
		return nil, fmt.Errorf("narrow: start %d is out of range for dimension %d of size %d: expected %d to %d", start, a, size, -size, size)
	}
	if start < 0 {
		start += size
	}
	if length < 0 || length > size-start {
		return nil, fmt.Errorf("narrow: length %d from %d exceeds dimension %d of size %d", length, start, a, size)
	}
	return sliceDim(t, a, start, length, 1), nil
}

// sliceDim takes count elements along dimension a, from start in steps.
func sliceDim(t *Tensor, a, start, count, step int) *Tensor {
	v := alias(t)
	v.shape[a] = count
	v.strides[a] *= step
	if count > 0 {
		v.off += start * t.strides[a]
	}
	return finishView("slice", t, v, func(n *node, g *Tensor, out []*Tensor) error {
		return backPart(n, g, out, func(z *Tensor) *Tensor { return sliceDim(z, a, start, count, step) })
	})
}

// Select takes entry i along dim and removes that dimension.
func Select(t *Tensor, dim, i int) (*Tensor, error) { return entry("select", t, dim, i) }

// At is t[i]: entry i of the first dimension.
func At(t *Tensor, i int) (*Tensor, error) { return entry("index", t, 0, i) }

func entry(op string, t *Tensor, dim, i int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if len(t.shape) == 0 {
		return nil, fmt.Errorf("%s: a tensor without dimensions cannot be indexed; use .item()", op)
	}
	a := try.To(Axis(op, dim, len(t.shape)))
	i = try.To(index(op, i, t.shape[a], a))
	return selectDim(t, a, i), nil
}

func selectDim(t *Tensor, a, i int) *Tensor {
	v := viewOf(t, len(t.shape)-1)
	copy(v.shape, t.shape[:a])
	copy(v.strides, t.strides[:a])
	copy(v.shape[a:], t.shape[a+1:])
	copy(v.strides[a:], t.strides[a+1:])
	v.off += i * t.strides[a]
	part := func(z *Tensor) *Tensor { return selectDim(z, a, i) }
	v = finishView("select", t, v, func(n *node, g *Tensor, out []*Tensor) error { return backPart(n, g, out, part) })
	if v.node != nil {
		v.node.part = part
	}
	return v
}

// backPart is the gradient of taking a part: zeros, with g in the part. The gradients of several parts of a tensor
// are summed in place.
func backPart(n *node, g *Tensor, out []*Tensor, part func(*Tensor) *Tensor) error {
	if p := n.in[0].node; p != nil && p.dtype == g.dtype {
		return p.addPart(g, part)
	}
	z := try.To(Zeros(g.ctx, n.in[0].shape(), g.dtype))
	out[0] = z
	return assign(n.op, part(z), g)
}

// part is count entries from start on along dimension a, never recorded.
func part(t *Tensor, a, start, count int) *Tensor {
	v := alias(t)
	v.shape[a] = count
	if count > 0 {
		v.off += start * t.strides[a]
	}
	return v.seal()
}
