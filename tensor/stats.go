package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel"
)

// Var is the variance over dims (all if none are given), divided by n-1 if
// unbiased, else by n. That of an empty tensor, or of one element if unbiased, is NaN.
func Var(t *Tensor, dims []int, unbiased, keepdim bool) (*Tensor, error) {
	return variance("var", t, dims, unbiased, keepdim, false)
}

// Std is the square root of Var; where it is 0 its gradient is 0.
func Std(t *Tensor, dims []int, unbiased, keepdim bool) (*Tensor, error) {
	return variance("std", t, dims, unbiased, keepdim, true)
}

func variance(op string, t *Tensor, dims []int, unbiased, keepdim, root bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return variance(op, t[0], dims, unbiased, keepdim, root) }, t)
	}
	try.Ok(NeedFloat(op, t))
	dims = try.To(DimList(op, dims, len(t.shape)))
	l := try.To(alongLines(t, dims))
	shape, b := ReducedShape(t.shape, dims, keepdim), build(op, t)
	out := b.like(shape...)
	count, correction := l.lines.N*l.lines.Run, 0
	if unbiased {
		correction = 1
	}
	if t.n == 0 {
		fill(out, Float(math.NaN()))
		if records(t, nil) {
			record(out, op, backNothing, t)
		}
		return out, nil
	}
	recording := records(t, nil)
	var mean, low *Tensor
	if recording {
		mean, low = b.like(shape...), b.like(shape...)
	}
	if !out.shapeOnly() {
		kernel.Moments(t.dtype, l.lines, correction, ptrOr(mean), ptrOr(low), out.ptr(), l.t.ptr())
	}
	alive(l.t)
	if root {
		kUnary(OpSqrt, out, out)
	}
	if !recording {
		return out, nil
	}
	n := record(out, op, func(n *node, g *Tensor, grads []*Tensor) error {
		l.t = n.val(0)
		var scale *Tensor // dvar = 2 (x - mean) / divisor, dstd = dvar / (2 std)
		if divisor := float64(count - correction); root {
			scale = try.To(perRoot(g, n.val(3), divisor))
		} else {
			scale = try.To(BinaryScalar(OpMul, g, Float(2/divisor), false))
		}
		grads[0] = try.To(l.scaled(op, n.val(1), n.val(2), try.To(contiguous(scale))))
		return nil
	}, t).save(l.t, mean, low)
	if root {
		n.save(out)
	}
	l.t = nil // what the node saves it may also free
	return out, nil
}

// perRoot is g / (root·divisor), and 0 where the root is 0.
func perRoot(g, root *Tensor, divisor float64) (*Tensor, error) {
	return chain(g).div(root).scalar(OpDiv, Float(divisor)).zeroWhere(root).end()
}

// backNothing is the gradient of an operation on an empty tensor.
func backNothing(n *node, g *Tensor, out []*Tensor) (err error) {
	out[0], err = Zeros(g.ctx, n.in[0].shape(), g.dtype)
	return err
}

// Norm is the p-norm over dims (all if none are given). For p = ±inf it is the largest or smallest magnitude, for p =
// 0 the number of elements that are not 0.
func Norm(t *Tensor, p float64, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return Norm(t[0], p, dims, keepdim) }, t)
	}
	const op = "norm"
	try.Ok(NeedFloat(op, t))
	dims = try.To(DimList(op, dims, len(t.shape)))
	abs := chain(t).unary(OpAbs)
	sum := func(x *Tensor) (*Tensor, error) { return Sum(x, dims, keepdim) }
	switch {
	case p == 2:
		return norm2(t, dims, keepdim)
	case p == 1:
		return abs.then(sum).end()
	case math.IsInf(p, 0):
		kind := reduceMax
		if p < 0 {
			kind = reduceMin
		}
		return abs.then(func(x *Tensor) (*Tensor, error) { return extremeOver(op, kind, x, dims, keepdim) }).end()
	case p == 0:
		return chain(t.Detach()).scalar(OpNe, Int(0)).then(func(x *Tensor) (*Tensor, error) { return Cast(x, t.dtype) }).then(sum).end()
	case math.IsNaN(p):
		return nil, fmt.Errorf("%s: p must be a number", op)
	}
	return abs.scalar(OpPow, Float(p)).then(sum).scalar(OpPow, Float(1/p)).end()
}

func extremeOver(op string, kind reduction, t *Tensor, dims []int, keepdim bool) (x *Tensor, err error) {
	defer try.Caught(&err)
	if len(dims) == len(t.shape) && !keepdim {
		return extreme(op, kind, t)
	}
	x = t
	for _, d := range dims {
		x, _ = try.To2(extremeDim(op, kind, x, d, true))
	}
	return Reshape(x, ReducedShape(t.shape, dims, keepdim))
}

// norm2 has a gradient of 0 at 0, where that of a square root is undefined.
func norm2(t *Tensor, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "norm"
	l := try.To(alongLines(t, dims))
	out := try.To(newTensor(op, t.ctx, ReducedShape(t.shape, dims, keepdim), t.dtype))
	if t.n == 0 {
		fill(out, Int(0))
		if records(t, nil) {
			record(out, op, backNothing, t)
		}
		return out, nil
	}
	if !out.shapeOnly() {
		kernel.SquareSums(t.dtype, l.lines, out.ptr(), l.t.ptr())
	}
	alive(l.t)
	kUnary(OpSqrt, out, out)
	if records(t, nil) {
		record(out, op, func(n *node, g *Tensor, grads []*Tensor) error {
			l.t = n.val(0)
			grads[0] = try.To(l.scaled(op, nil, nil, try.To(contiguous(try.To(perRoot(g, n.val(1), 1))))))
			return nil
		}, t).save(l.t, out)
		l.t = nil
	}
	return out, nil
}
