package tensor

import (
	"fmt"

	"drun/internal/try"
)

// Transpose swaps two dimensions.
func Transpose(t *Tensor, dim0, dim1 int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis("transpose", dim0, len(t.shape)))
	b := try.To(Axis("transpose", dim1, len(t.shape)))
	return finishView("transpose", t, swapped(t, a, b), func(_ *node, g *Tensor, out []*Tensor) (err error) {
		out[0], err = Transpose(g, a, b)
		return err
	}), nil
}

// swapped is Transpose without recording.
func swapped(t *Tensor, a, b int) *Tensor {
	v := alias(t)
	if len(t.shape) > 0 {
		v.shape[a], v.shape[b] = v.shape[b], v.shape[a]
		v.strides[a], v.strides[b] = v.strides[b], v.strides[a]
	}
	return v.seal()
}

// Permute reorders the dimensions: dimension i of the result is t's dims[i].
func Permute(t *Tensor, dims []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if len(dims) != len(t.shape) {
		return nil, fmt.Errorf("permute: %d dimensions are named for a tensor of %d", len(dims), len(t.shape))
	}
	v := viewOf(t, len(dims))
	inverse := make([]int, len(dims))
	seen := make([]bool, len(dims))
	for i, d := range dims {
		a := try.To(Axis("permute", d, len(dims)))
		if seen[a] {
			return nil, fmt.Errorf("permute: dimension %d is named twice", d)
		}
		seen[a] = true
		inverse[a] = i
		v.shape[i], v.strides[i] = t.shape[a], t.strides[a]
	}
	return finishView("permute", t, v, func(_ *node, g *Tensor, out []*Tensor) (err error) {
		out[0], err = Permute(g, inverse)
		return err
	}), nil
}

// Squeeze removes dimension dim if its size is 1.
func Squeeze(t *Tensor, dim int) (*Tensor, error) {
	a, err := Axis("squeeze", dim, len(t.shape))
	if err != nil {
		return nil, err
	}
	return squeeze(t, func(i int) bool { return i == a }), nil
}

// SqueezeAll removes all dimensions of size 1.
func SqueezeAll(t *Tensor) *Tensor { return squeeze(t, func(int) bool { return true }) }

func squeeze(t *Tensor, pick func(int) bool) *Tensor {
	gone := 0
	for i, d := range t.shape {
		if d == 1 && pick(i) {
			gone++
		}
	}
	v := viewOf(t, len(t.shape)-gone)
	j := 0
	for i, d := range t.shape {
		if d != 1 || !pick(i) {
			v.shape[j], v.strides[j] = d, t.strides[i]
			j++
		}
	}
	return finishView("squeeze", t, v, backReshape)
}

// Unsqueeze inserts a dimension of size 1 before dim.
func Unsqueeze(t *Tensor, dim int) (*Tensor, error) {
	if len(t.shape) == MaxDims {
		return nil, fmt.Errorf("unsqueeze: a tensor has at most %d dimensions", MaxDims)
	}
	a, err := Axis("unsqueeze", dim, len(t.shape)+1)
	if err != nil {
		return nil, err
	}
	v := viewOf(t, len(t.shape)+1)
	copy(v.shape, t.shape[:a])
	copy(v.strides, t.strides[:a])
	v.shape[a], v.strides[a] = 1, 1
	copy(v.shape[a+1:], t.shape[a:])
	copy(v.strides[a+1:], t.strides[a:])
	return finishView("unsqueeze", t, v, backReshape), nil
}
