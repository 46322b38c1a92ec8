package tensor

import (
	"fmt"
	"slices"
)

// finishView records a view whose gradient goes back through undo.
func finishView(op string, t, v *Tensor, back func(n *node, g *Tensor, out []*Tensor) error) *Tensor {
	v.seal()
	if records(t, nil) {
		record(v, op, back, t)
	}
	return v
}

// inferShape replaces one -1 by what is left of n elements.
func inferShape(op string, n int, from, shape []int) ([]int, error) {
	out := slices.Clone(shape)
	unknown, known := -1, 1
	for i, d := range shape {
		switch {
		case d == -1 && unknown >= 0:
			return nil, fmt.Errorf("%s: only one size can be -1 in %s", op, shapeString(shape))
		case d == -1:
			unknown = i
		default:
			if _, err := countElems(op, []int{known, d}); err != nil {
				return nil, err
			}
			known *= d
		}
	}
	if unknown >= 0 {
		if known == 0 || n%known != 0 {
			return nil, fmt.Errorf("%s: shape %s (%d elements) cannot become %s", op, shapeString(from), n, shapeString(shape))
		}
		out[unknown] = n / known
		return out, nil
	}
	if _, err := countElems(op, shape); err != nil {
		return nil, err
	}
	if known != n {
		return nil, fmt.Errorf("%s: shape %s (%d elements) cannot become %s (%d elements)", op, shapeString(from), n, shapeString(shape), known)
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
	// Go through both shapes from the right, in groups of equal size; a
	// group of t must be one run of evenly spaced elements.
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

// View gives t in another shape without copying; one size may be -1.
func View(t *Tensor, shape []int) (*Tensor, error) {
	shape, err := inferShape("view", t.n, t.shape, shape)
	if err != nil {
		return nil, err
	}
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	if !viewStrides(t, shape, v.strides) {
		return nil, fmt.Errorf("view: a tensor of shape %s and strides %s cannot be seen as %s without a copy; use reshape",
			shapeString(t.shape), shapeString(t.strides), shapeString(shape))
	}
	return finishView("view", t, v, backReshape), nil
}

// Reshape gives t in another shape, as a view where that is possible.
func Reshape(t *Tensor, shape []int) (*Tensor, error) {
	shape, err := inferShape("reshape", t.n, t.shape, shape)
	if err != nil {
		return nil, err
	}
	v := viewOf(t, len(shape))
	copy(v.shape, shape)
	if viewStrides(t, shape, v.strides) {
		return finishView("reshape", t, v, backReshape), nil
	}
	c, err := Clone(t)
	if err != nil {
		return nil, err
	}
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
func Flatten(t *Tensor, start, end int) (*Tensor, error) {
	s, err := axis("flatten", start, len(t.shape))
	if err != nil {
		return nil, err
	}
	e, err := axis("flatten", end, len(t.shape))
	if err != nil {
		return nil, err
	}
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

// Transpose swaps two dimensions.
func Transpose(t *Tensor, dim0, dim1 int) (*Tensor, error) {
	a, err := axis("transpose", dim0, len(t.shape))
	if err != nil {
		return nil, err
	}
	b, err := axis("transpose", dim1, len(t.shape))
	if err != nil {
		return nil, err
	}
	v := viewOf(t, len(t.shape))
	copy(v.shape, t.shape)
	copy(v.strides, t.strides)
	if len(t.shape) > 0 {
		v.shape[a], v.shape[b] = v.shape[b], v.shape[a]
		v.strides[a], v.strides[b] = v.strides[b], v.strides[a]
	}
	return finishView("transpose", t, v, func(_ *node, g *Tensor, out []*Tensor) (err error) {
		out[0], err = Transpose(g, a, b)
		return err
	}), nil
}

// Permute orders the dimensions anew: result dimension i is t's dims[i].
func Permute(t *Tensor, dims []int) (*Tensor, error) {
	if len(dims) != len(t.shape) {
		return nil, fmt.Errorf("permute: %d dimensions are named for a tensor of %d", len(dims), len(t.shape))
	}
	v := viewOf(t, len(dims))
	inverse := make([]int, len(dims))
	seen := make([]bool, len(dims))
	for i, d := range dims {
		a, err := axis("permute", d, len(dims))
		if err != nil {
			return nil, err
		}
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
	a, err := axis("squeeze", dim, len(t.shape))
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
	a, err := axis("unsqueeze", dim, len(t.shape)+1)
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
// -1 keeps a size, and new dimensions may be put in front.
func Expand(t *Tensor, shape []int) (*Tensor, error) {
	pad := len(shape) - len(t.shape)
	if pad < 0 {
		return nil, fmt.Errorf("expand: shape %s has fewer dimensions than the tensor's %s", shapeString(shape), shapeString(t.shape))
	}
	want := slices.Clone(shape)
	for i, d := range shape {
		if d == -1 && i >= pad {
			want[i] = t.shape[i-pad]
		}
		if i >= pad && want[i] != t.shape[i-pad] && t.shape[i-pad] != 1 {
			return nil, fmt.Errorf("expand: shape %s does not stretch to %s: dimension %d has size %d, not 1",
				shapeString(t.shape), shapeString(shape), i, t.shape[i-pad])
		}
	}
	if _, err := countElems("expand", want); err != nil {
		return nil, err
	}
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

// Narrow gives length elements from start on along dim.
func Narrow(t *Tensor, dim, start, length int) (*Tensor, error) {
	a, err := axis("narrow", dim, len(t.shape))
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
	v := viewOf(t, len(t.shape))
	copy(v.shape, t.shape)
	copy(v.strides, t.strides)
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
func Select(t *Tensor, dim, i int) (*Tensor, error) {
	if len(t.shape) == 0 {
		return nil, fmt.Errorf("index: a tensor without dimensions cannot be indexed; use .item()")
	}
	a, err := axis("select", dim, len(t.shape))
	if err != nil {
		return nil, err
	}
	if i, err = index("index", i, t.shape[a], a); err != nil {
		return nil, err
	}
	return selectDim(t, a, i), nil
}

func selectDim(t *Tensor, a, i int) *Tensor {
	v := viewOf(t, len(t.shape)-1)
	copy(v.shape, t.shape[:a])
	copy(v.strides, t.strides[:a])
	copy(v.shape[a:], t.shape[a+1:])
	copy(v.strides[a:], t.strides[a+1:])
	v.off += i * t.strides[a]
	return finishView("select", t, v, func(n *node, g *Tensor, out []*Tensor) error {
		return backPart(n, g, out, func(z *Tensor) *Tensor { return selectDim(z, a, i) })
	})
}

// backPart is the gradient of taking a part: zeros, with g in the part.
func backPart(n *node, g *Tensor, out []*Tensor, part func(*Tensor) *Tensor) error {
	z, err := Zeros(g.ctx, n.in[0].shape(), g.dtype)
	if err != nil {
		return err
	}
	out[0] = z
	return assign(n.op, part(z), g)
}

// Contiguous is t itself if its elements lie in order, else a copy.
func Contiguous(t *Tensor) (*Tensor, error) {
	if t.contiguous {
		return t, nil
	}
	return Clone(t)
}
