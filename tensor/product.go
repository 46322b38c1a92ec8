package tensor

import (
	"math"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// Prod multiplies the elements, along dim or all if it is nil. Integers and bools are multiplied in int64.
func Prod(t *Tensor, dim *int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return Prod(t[0], dim, keepdim) }, t)
	}
	const op = "prod"
	try.To(computing(t.dtype, op))
	dims := allDims(t)
	if dim != nil {
		a := try.To(Axis(op, *dim, len(t.shape)))
		if len(t.shape) > 0 {
			dims = []int{a}
		}
	}
	out := try.To(reduceDims(op, reduceProd, t, dims, keepdim))
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			return backProd(n, g, out, dims)
		}, t).save(t)
	}
	return out, nil
}

// backProd is the gradient of the last of the running products.
func backProd(n *node, g *Tensor, out []*Tensor, dims []int) error {
	x, b := n.val(0), build(n.op, g)
	x = b.contiguous(x)
	outer, count, inner := 1, x.n, 1
	if len(dims) == 1 {
		outer, count, inner = around(x.shape, dims[0])
	}
	dy := b.zeros(g.dtype, outer, count, inner)
	dx := b.like(x.shape...)
	if count > 0 {
		last := selectLast(dy)
		whole := try.To(Reshape(g, last.shape))
		kCopy(last, whole)
		kernel.CumProdGrad(g.dtype, outer, count, inner, dx.ptr(), dy.ptr(), x.ptr())
		alive(dx, dy, x)
	}
	out[0] = dx
	return nil
}

// selectLast is the last entry of the middle of three dimensions, never recorded.
func selectLast(t *Tensor) *Tensor {
	v := viewOf(t, 2)
	v.shape[0], v.shape[1] = t.shape[0], t.shape[2]
	v.strides[0], v.strides[1] = t.strides[0], t.strides[2]
	v.off += (t.shape[1] - 1) * t.strides[1]
	return v.seal()
}

// CumProd multiplies along dim: out[i] is the product of the elements up to i.
func CumProd(t *Tensor, dim int) (*Tensor, error) {
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return CumProd(t[0], dim) }, t)
	}
	const op = "cumprod"
	out, x, a, err := cumulate(op, t, dim, kernel.CumProd)
	if err == nil && t.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			b := build(op, g)
			dy, dx := b.contiguous(g), b.like(g.shape...)
			x := n.val(0)
			outer, count, inner := around(x.shape, a)
			kernel.CumProdGrad(g.dtype, outer, count, inner, dx.ptr(), dy.ptr(), x.ptr())
			alive(dx, dy, x)
			out[0] = dx
			return nil
		}, t).save(x)
	}
	return out, err
}

// LogSumExp is the logarithm of the sum of exp over dims (all if none are given), computed without overflow.
func LogSumExp(t *Tensor, dims []int, keepdim bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return LogSumExp(t[0], dims, keepdim) }, t)
	}
	const op = "logsumexp"
	dt := try.To(computing(t.dtype, op))
	dims = try.To(DimList(op, dims, len(t.shape)))
	if !dt.IsFloat() {
		dt = dtype.Float32
	}
	b := build(op, t)
	x := b.cast(t.Detach(), dt)
	kept := ReducedShape(t.shape, dims, true)
	if t.n == 0 {
		return emptyLogSum(op, t, dt, ReducedShape(t.shape, dims, keepdim))
	}
	most := try.To(reduceDims(op, reduceMax, x, dims, true))
	// An infinite maximum would give inf - inf.
	inf := try.To(IsInf(most))
	most = try.To(MaskedFill(most, inf, Int(0)))
	out := try.To(chain(x).binary(OpSub, most).unary(OpExp).then(func(e *Tensor) (*Tensor, error) {
		return reduceDims(op, reduceSum, e, dims, true)
	}).unary(OpLog).binary(OpAdd, most).then(func(s *Tensor) (*Tensor, error) {
		return View(s, ReducedShape(t.shape, dims, keepdim))
	}).end())
	if records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			whole, sum := try.To(Reshape(g, kept)), try.To(Reshape(n.val(1), kept))
			out[0] = try.To(chain(n.val(0)).binary(OpSub, sum).unary(OpExp).mul(whole).end())
			return nil
		}, t).save(x, out)
	}
	return out, nil
}

// emptyLogSum: the sum of nothing is 0, its logarithm -inf.
func emptyLogSum(op string, t *Tensor, dt dtype.Type, shape []int) (*Tensor, error) {
	out, err := full(op, t.ctx, shape, Float(math.Inf(-1)), dt)
	if err == nil && records(t, nil) {
		record(out, op, backNothing, t)
	}
	return out, err
}
