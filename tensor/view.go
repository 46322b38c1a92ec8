package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
)

// finishView records a view with its gradient function.
func finishView(op string, t, v *Tensor, back func(n *node, g *Tensor, out []*Tensor) error) *Tensor {
	v.seal()
	if records(t, nil) {
		record(v, op, back, t)
	}
	return v
}

// inferShape replaces one -1 by the size that gives n elements.
func inferShape(op string, n int, from, shape []int) (_ []int, err error) {
	defer try.Caught(&err)
	out := slices.Clone(shape)
	unknown, known := -1, 1
	for i, d := range shape {
		switch {
		case d == -1 && unknown >= 0:
			return nil, fmt.Errorf("%s: only one size can be -1 in %s", op, ShapeString(shape))
		case d == -1:
			unknown = i
		default:
			try.To(countElems(op, []int{known, d}))
			known *= d
		}
	}
	if unknown >= 0 {
		if known == 0 || n%known != 0 {
			return nil, fmt.Errorf("%s: shape %s (%d elements) cannot become %s", op, ShapeString(from), n, ShapeString(shape))
		}
		out[unknown] = n / known
		return out, nil
	}
	try.To(countElems(op, shape))
	if known != n {
		return nil, fmt.Errorf("%s: shape %s (%d elements) cannot become %s (%d elements)", op, ShapeString(from), n, ShapeString(shape), known)
	}
	return out, nil
}

// viewStrides finds strides that show t's elements in another shape without
// a copy, if there are any.
func viewStrides(t *Tensor, shape, strides []int) bool {
	if t.n == 0 || t.contiguous {
		setContiguous(strides, shape)
		return true
	}
	// Goes through both shapes from the right, in groups of equal size; a group of t must be one run of evenly spaced elements.
	i := len(shape) - 1
	for d := len(t.shape) - 1; d >= 0; {
		size, step := t.shape[d], t.strides[d]
		for d--; d >= 0 && (t.shape[d] == 1 || size == 1 || t.strides[d] == size*step); d-- {
			if size == 1 {
				step = t.strides[d]
			}
			size *= t.shape[d]
		}
		for ; i >= 0 && size > 1 || i >= 0 && shape[i] == 1; i-- {
			if size%shape[i] != 0 {
				return false
			}
			strides[i] = step
			step *= shape[i]
			size /= shape[i]
		}
		if size != 1 {
			return false
		}
	}
	return true
}

// View returns t in another shape without copying; one size may be -1.
func View(t *Tensor, shape []int) (*Tensor, error) {
	shape, err := inferShape("view", t.n, t.shape, shape)
	if err != nil {
		return nil, err
	}
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	if !viewStrides(t, shape, v.strides) {
		return nil, fmt.Errorf("view: a tensor of shape %s and strides %s cannot be seen as %s without a copy; use reshape",
			ShapeString(t.shape), ShapeString(t.strides), ShapeString(shape))
	}
	return finishView("view", t, v, backReshape), nil
}

// Reshape returns t in another shape, as a view if possible.
func Reshape(t *Tensor, shape []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	shape = try.To(inferShape("reshape", t.n, t.shape, shape))
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	if viewStrides(t, shape, v.strides) {
		return finishView("reshape", t, v, backReshape), nil
	}
	c := try.To(Clone(t))
	return View(c, shape)
}

func backReshape(n *node, g *Tensor, out []*Tensor) error {
	shape := n.in[0].shape()
	var err error
	out[0], err = Reshape(g, shape)
	return err
}

func (e edge) shape() []int {
	if e.node != nil {
		return e.node.shape
	}
	return e.leaf.shape
}

// Flatten joins the dimensions from start to end, both included, into one.
func Flatten(t *Tensor, start, end int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	s := try.To(Axis("flatten", start, len(t.shape)))
	e := try.To(Axis("flatten", end, len(t.shape)))
	if s > e {
		return nil, fmt.Errorf("flatten: start dimension %d lies after end dimension %d", start, end)
	}
	if len(t.shape) == 0 {
		return Reshape(t, []int{1})
	}
	size := 1
	for _, d := range t.shape[s : e+1] {
		size *= d
	}
	shape := append(append(slices.Clone(t.shape[:s]), size), t.shape[e+1:]...)
	return Reshape(t, shape)
}

// Contiguous is t itself if its elements lie in order, else a copy.
func Contiguous(t *Tensor) (*Tensor, error) {
	if t.contiguous {
		return t, nil
	}
	return Clone(t)
}
