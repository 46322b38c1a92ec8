package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// What a reduction over dimensions computes.
type reduction uint8

const (
	reduceSum reduction = iota
	reduceMin
	reduceMax
	reduceAny
	reduceAll
	reduceProd
)

// widens is true for reductions whose result for integers is int64.
func (kind reduction) widens() bool { return kind == reduceSum || kind == reduceProd }

// DimList checks dims and puts them in order; none means all.
func DimList(op string, dims []int, nd int) (_ []int, err error) {
	defer try.Caught(&err)
	if len(dims) == 0 {
		out := make([]int, nd)
		for i := range out {
			out[i] = i
		}
		return out, nil
	}
	out := make([]int, 0, len(dims))
	for _, d := range dims {
		a := try.To(Axis(op, d, nd))
		if slices.Contains(out, a) {
			return nil, fmt.Errorf("%s: dimension %d is named twice", op, d)
		}
		if nd > 0 {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ReducedShape is shape without dims, or with 1 in their place.
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
func reduceDims(op string, kind reduction, t *Tensor, dims []int, keep bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	final := ReducedShape(t.shape, dims, keep)
	x := try.To(contiguous(t))
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
		if kind.widens() && !dt.IsFloat() {
			dt = dtype.Int64
		}
		out := try.To(newTensor(op, t.ctx, become, dt))
		kReduce(kind, out, x, outer, n, inner)
		if x != t {
			Discard(x)
		}
		x, end = out, start
	}
	if len(dims) == 0 { // a tensor without dimensions
		x = x.Detach()
		if kind.widens() && !t.dtype.IsFloat() && t.dtype != dtype.Int64 {
			return cast(op, x, dtype.Int64)
		}
		return Clone(x)
	}
	return x, nil
}

// contiguous is Contiguous without recording.
func contiguous(t *Tensor) (*Tensor, error) {
	if t.contiguous {
		return t, nil
	}
	out, err := newTensor("contiguous", t.ctx, t.shape, t.dtype)
	if err != nil {
		return nil, err
	}
	kCopy(out, t)
	return out, nil
}

// spread is the gradient of a sum over dims: g, seen in t's shape.
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

// Sum adds over dims (all if none are given). Integers and bools are added
// in int64.
func Sum(t *Tensor, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return Sum(t[0], dims, keepdim) }, t)
	}
	dims = try.To(DimList("sum", dims, len(t.shape)))
	try.To(computing(t.dtype, "sum"))
	out := try.To(reduceDims("sum", reduceSum, t, dims, keepdim))
	if records(t, nil) {
		record(out, "sum", func(n *node, g *Tensor, out []*Tensor) error {
			out[0] = spread(g, n.in[0].shape(), dims)
			return nil
		}, t)
	}
	return out, nil
}

// Mean averages over dims (all if none are given). The mean of nothing is
// NaN.
func Mean(t *Tensor, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return Mean(t[0], dims, keepdim) }, t)
	}
	try.Ok(NeedFloat("mean", t))
	dims = try.To(DimList("mean", dims, len(t.shape)))
	count := 1
	for _, d := range dims {
		count *= t.shape[d]
	}
	out := try.To(reduceDims("mean", reduceSum, t, dims, keepdim))
	scale := newNumber(t.ctx, Float(float64(count)), t.dtype)
	kBinary(OpDiv, out, out, scale)
	if records(t, nil) {
		record(out, "mean", func(n *node, g *Tensor, out []*Tensor) error {
			out[0] = spread(try.To(Div(g, scale)), n.in[0].shape(), dims)
			return nil
		}, t)
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
