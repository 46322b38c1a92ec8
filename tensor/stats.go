package tensor

import (
	"fmt"
	"math"
	"slices"

	"drun/internal/try"
	"drun/kernel"
)

// Var returns the variance over dims (all if none are given), divided by n - correction, which is 1 for an unbiased estimate.
// That of an empty tensor, or of no more than correction elements, is NaN or infinite.
func Var(t *Tensor, dims []int, correction int, keepdim bool) (*Tensor, error) {
	return variance("var", t, dims, correction, keepdim, false)
}

// Std returns the square root of Var; where it is 0, so is its gradient.
func Std(t *Tensor, dims []int, correction int, keepdim bool) (*Tensor, error) {
	return variance("std", t, dims, correction, keepdim, true)
}

func variance(op string, t *Tensor, dims []int, correction int, keepdim, root bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	try.Ok(NeedFloat(op, t))
	dims = try.To(DimList(op, dims, len(t.shape)))
	l := alongLines(t, dims)
	shape, b := ReducedShape(t.shape, dims, keepdim), build(op, t)
	out := b.like(shape...)
	count := l.lines.N * l.lines.Run
	correction = min(correction, count) // beyond, the divisor is 0
	if t.n == 0 {
		return ofNothing(op, out, t, math.NaN()), nil
	}
	recording := records(t, nil)
	var mean, low *Tensor
	if recording {
		mean, low = b.like(shape...), b.like(shape...)
	}
	if !out.shapeOnly() {
		moments(l.lines, correction, mean, low, out, l.t)
	}
	alive(l.t)
	if root {
		kUnary(OpSqrt, out, out)
	}
	if !recording {
		return out, nil
	}
	n := record(out, op, func(n *node, g *Tensor, grads []*Tensor) {
		l.t = n.val(0)
		var scale *Tensor // dvar = 2 (x - mean) / divisor, dstd = dvar / (2 std)
		if divisor := float64(count - correction); root {
			scale = perRoot(g, n.val(3), divisor)
		} else {
			scale = try.To(BinaryScalar(OpMul, g, Float(2/divisor), false))
		}
		grads[0] = l.scaled(op, n.val(1), n.val(2), contiguous(scale))
	}, t).save(l.t, mean, low)
	if root {
		n.save(out)
	}
	if n.again != nil {
		n.composed(varianceOf(dims, float64(count-correction), keepdim, root))
	}
	l.t = nil // the node may free what it saves
	return out, nil
}

// perRoot returns g / (root·divisor), and 0 where the root is 0.
func perRoot(g, root *Tensor, divisor float64) *Tensor {
	return try.To(chain(g).div(root).scalar(OpDiv, Float(divisor)).zeroWhere(root).end())
}

// ofNothing fills the result of an operation on t, which is empty.
func ofNothing(op string, out, t *Tensor, value float64) *Tensor {
	fill(out, Float(value))
	if records(t, nil) {
		record(out, op, backNothing, t).twice(backNothing)
	}
	return out
}

// backNothing is the gradient of an operation on an empty tensor.
func backNothing(n *node, g *Tensor, out []*Tensor) {
	out[0] = try.To(Zeros(g.ctx, n.in[0].shape(), g.dtype))
}

// Norm returns the p-norm over dims (all if none are given). For p = ±inf it is the largest or smallest magnitude, for p =
// 0 the number of elements that are not 0.
func Norm(t *Tensor, p float64, dims []int, keepdim bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
	const op = "norm"
	try.Ok(NeedFloat(op, t))
	dims = try.To(DimList(op, dims, len(t.shape)))
	abs := chain(t).unary(OpAbs)
	sum := func(x *Tensor) (*Tensor, error) { return Sum(x, dims, keepdim) }
	switch {
	case p == 2:
		return norm2(t, dims, keepdim), nil
	case p == 1:
		return abs.then(sum).end()
	case math.IsInf(p, 0):
		kind := kernel.MaxOver
		if p < 0 {
			kind = kernel.MinOver
		}
		return abs.then(func(x *Tensor) (*Tensor, error) { return extremeOver(op, kind, x, dims, keepdim), nil }).end()
	case p == 0:
		return chain(t.Detach()).scalar(OpNe, Int(0)).then(func(x *Tensor) (*Tensor, error) { return Cast(x, t.dtype) }).then(sum).end()
	case math.IsNaN(p):
		return nil, fmt.Errorf("%s: p must be a number", op)
	}
	return abs.scalar(OpPow, Float(p)).then(sum).scalar(OpPow, Float(1/p)).end()
}

func extremeOver(op string, kind kernel.ReduceOp, t *Tensor, dims []int, keepdim bool) (x *Tensor) {
	if len(dims) == len(t.shape) && !keepdim {
		return try.To(extreme(op, kind, t))
	}
	x = t
	for _, d := range dims {
		x, _ = try.To2(extremeDim(op, kind, x, d, true))
	}
	return try.To(Reshape(x, ReducedShape(t.shape, dims, keepdim)))
}

// norm2 has a gradient of 0 at 0, where that of a square root is undefined.
func norm2(t *Tensor, dims []int, keepdim bool) *Tensor {
	const op = "norm"
	l := alongLines(t, dims)
	out := newTensor(op, t.ctx, ReducedShape(t.shape, dims, keepdim), t.dtype)
	if t.n == 0 {
		return ofNothing(op, out, t, 0)
	}
	if d := out.on(); d != nil {
		in := d.read(l.t)
		d.SquareSums(t.dtype, l.lines, d.write(out), in)
	} else if !out.shapeOnly() {
		kernel.SquareSums(t.dtype, l.lines, out.ptr(), l.t.read())
	}
	alive(l.t)
	kUnary(OpSqrt, out, out)
	if records(t, nil) {
		record(out, op, func(n *node, g *Tensor, grads []*Tensor) {
			l.t = n.val(0)
			grads[0] = l.scaled(op, nil, nil, contiguous(perRoot(g, n.val(1), 1)))
		}, t).save(l.t, out).twice(func(n *node, g *Tensor, grads []*Tensor) {
			x := n.input(0)
			root := norm2(x, dims, keepdim)
			zero := try.To(BinaryScalar(OpEq, root.Detach(), Int(0), false))
			scale := try.To(Div(g, try.To(MaskedFill(root, zero, Int(1))))) // nothing is infinite on the way
			scale = try.To(MaskedFill(scale, zero, Int(0)))
			grads[0] = try.To(Mul(x, spreadOver(scale, x.shape, dims)))
		})
		l.t = nil
	}
	return out
}

// lined is a tensor to be reduced over dims, viewed as the lines that the kernels process.
type lined struct {
	t     *Tensor // contiguous
	lines kernel.Lines
	order []int // the given tensor's dimensions in the order of t; nil: the same
}

// alongLines views t as lines over dims, which are in order. It copies t only if it is not contiguous, or the
// dimensions alternate too often.
func alongLines(t *Tensor, dims []int) lined {
	var l lined
	var ok bool
	if l.lines, ok = lineShape(t.shape, dims); !ok {
		for d := range t.shape {
			if !slices.Contains(dims, d) {
				l.order = append(l.order, d)
			}
		}
		kept := len(l.order)
		l.order = append(l.order, dims...)
		t = try.To(Permute(t.Detach(), l.order))
		l.lines = kernel.Lines{Outer: product(t.shape[:kept]), N: 1, Side: 1, Run: product(t.shape[kept:])}
	}
	l.t = contiguous(t)
	return l
}

// lineShape joins neighbouring dimensions that are both reduced or both kept,
// and fits what is left into kept, reduced, kept, reduced.
func lineShape(shape, dims []int) (kernel.Lines, bool) {
	var sizes []int
	var reduced []bool
	for d, n := range shape {
		r := slices.Contains(dims, d)
		switch last := len(sizes) - 1; {
		case n == 1:
		case last >= 0 && reduced[last] == r:
			sizes[last] *= n
		default:
			sizes, reduced = append(sizes, n), append(reduced, r)
		}
	}
	l := [4]int{1, 1, 1, 1}
	at := 0
	for i := len(sizes) - 1; i >= 0; i-- { // from the right, where elements are adjacent
		if reduced[i] != (at%2 == 0) {
			at++
		}
		if at > 3 {
			return kernel.Lines{}, false
		}
		l[3-at] = sizes[i]
		at++
	}
	return kernel.Lines{Outer: l[0], N: l[1], Side: l[2], Run: l[3]}, true
}

// scaled returns (t - mean - low)·scale, with one value of each per line, in the given order of dimensions; mean and low may be nil.
func (l *lined) scaled(op string, mean, low, scale *Tensor) *Tensor {
	out := newTensor(op, l.t.ctx, l.t.shape, l.t.dtype)
	scaleLines(l.lines, out, l.t, mean, low, scale, nil, nil)
	if l.order == nil {
		return out
	}
	inverse := make([]int, len(l.order))
	for i, d := range l.order {
		inverse[d] = i
	}
	return try.To(Permute(out, inverse))
}

// Starved is the error of an operation whose kernel could not get its memory.
func Starved(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w; use smaller tensors or batches", op, err)
}
