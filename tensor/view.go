package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
)

// finishView records a view with its gradient function.
func finishView(op string, t, v *Tensor, back backward) *Tensor {
	v.seal()
	if records(t, nil) {
		record(v, op, back, t).twice(back)
	}
	return v
}

// finishPart is finishView for what part takes of t.
func finishPart(op string, t, v *Tensor, part func(*Tensor) *Tensor) *Tensor {
	v = finishView(op, t, v, func(n *node, g *Tensor, out []*Tensor) { backPart(n, g, out, part) })
	if v.node != nil && v.node.again != nil {
		v.node.linear(func(in []*Tensor) *Tensor { return part(in[0]) })
	}
	return v
}

// inferShape replaces one -1 by the size that gives n elements.
func inferShape(op string, n int, from, shape []int) []int {
	out := slices.Clone(shape)
	unknown, known := -1, 1
	for i, d := range shape {
		switch {
		case d == -1 && unknown >= 0:
			try.Fail("%s: only one size can be -1 in %s", op, ShapeString(shape))
		case d == -1:
			unknown = i
		default:
			try.To(countElems(op, []int{known, d}))
			known *= d
		}
	}
	if unknown >= 0 {
		if known == 0 || n%known != 0 {
			try.Fail("%s: shape %s (%d elements) cannot become %s", op, ShapeString(from), n, ShapeString(shape))
		}
		out[unknown] = n / known
		return out
	}
	try.To(countElems(op, shape))
	if known != n {
		try.Fail("%s: shape %s (%d elements) cannot become %s (%d elements)", op, ShapeString(from), n, ShapeString(shape), known)
	}
	return out
}

// viewStrides finds strides that show t's elements in another shape without a copy, if there are any.
func viewStrides(t *Tensor, shape, strides []int) bool {
	if t.n == 0 || t.contiguous {
		setContiguous(strides, shape)
		return true
	}
	// Go through both shapes from the right, in groups of equal size; each group of t must be one run of evenly spaced elements.
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
func View(t *Tensor, shape []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	shape = inferShape("view", t.n, t.shape, shape)
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	if !viewStrides(t, shape, v.strides) {
		return nil, fmt.Errorf("view: a tensor of shape %s and strides %s cannot be viewed as %s without a copy; use reshape",
			ShapeString(t.shape), ShapeString(t.strides), ShapeString(shape))
	}
	return finishView("view", t, v, backReshape), nil
}

// Reshape returns t in another shape, as a view if possible.
func Reshape(t *Tensor, shape []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	shape = inferShape("reshape", t.n, t.shape, shape)
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	if viewStrides(t, shape, v.strides) {
		return finishView("reshape", t, v, backReshape), nil
	}
	c := try.To(Clone(t))
	return View(c, shape)
}

func backReshape(n *node, g *Tensor, out []*Tensor) {
	out[0] = try.To(Reshape(g, n.in[0].shape()))
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
		return nil, fmt.Errorf("flatten: start dimension %d is after end dimension %d", start, end)
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

// Contiguous returns t itself if its elements are in order, else a copy.
func Contiguous(t *Tensor) (*Tensor, error) {
	if t.contiguous {
		return t, nil
	}
	return Clone(t)
}

// Transpose swaps two dimensions.
func Transpose(t *Tensor, dim0, dim1 int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis("transpose", dim0, len(t.shape)))
	b := try.To(Axis("transpose", dim1, len(t.shape)))
	return finishView("transpose", t, swapped(t, a, b), func(_ *node, g *Tensor, out []*Tensor) {
		out[0] = try.To(Transpose(g, a, b))
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
	return finishView("permute", t, v, func(_ *node, g *Tensor, out []*Tensor) {
		out[0] = try.To(Permute(g, inverse))
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

// Expand stretches dimensions of size 1 to the given shape without copying;
// -1 keeps a size, and new dimensions may come first.
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
	return finishView("expand", t, expanded(t, want), func(_ *node, g *Tensor, out []*Tensor) {
		out[0] = g // the engine sums it to t's shape
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
	return finishPart("slice", t, v, func(z *Tensor) *Tensor { return sliceDim(z, a, start, count, step) })
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
	v = finishPart("select", t, v, part)
	if v.node != nil {
		v.node.part = part
	}
	return v
}

// backPart is the gradient of taking a part: zeros, with g in the part. The gradients of several parts of a tensor
// are summed in place.
func backPart(n *node, g *Tensor, out []*Tensor, part func(*Tensor) *Tensor) {
	if p := n.in[0].node; p != nil && p.dtype == g.dtype {
		p.addPart(g, part)
		return
	}
	z := try.To(Zeros(g.ctx, n.in[0].shape(), g.dtype))
	out[0] = z
	assign(n.op, part(z), g)
}

// part returns count entries from start on along dimension a; it is never recorded.
func part(t *Tensor, a, start, count int) *Tensor {
	v := alias(t)
	v.shape[a] = count
	if count > 0 {
		v.off += start * t.strides[a]
	}
	return v.seal()
}
