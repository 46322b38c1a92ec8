package tensor

import (
	"math"

	"drun/kernel"
	"drun/kernel/element"
)

// Prod multiplies the elements, along dim or all if it is nil. Integers and bools are multiplied in int64.
func Prod(t *Tensor, dim *int, keepdim bool) (*Tensor, error) {
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return Prod(t[0], dim, keepdim) }, t)
	}
	const op = "prod"
	if _, err := computing(t.dtype, op); err != nil {
		return nil, err
	}
	dims := allDims(t)
	if dim != nil {
		a, err := axis(op, *dim, len(t.shape))
		if err != nil {
			return nil, err
		}
		if len(t.shape) > 0 {
			dims = []int{a}
		}
	}
	out, err := reduceDims(op, reduceProd, t, dims, keepdim)
	if err != nil {
		return nil, err
	}
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
	if b.err != nil {
		return b.err
	}
	outer, count, inner := 1, x.n, 1
	if len(dims) == 1 {
		outer, count, inner = around(x.shape, dims[0])
	}
	dy := b.zeros(g.dtype, outer, count, inner)
	dx := b.like(x.shape...)
	if b.err != nil {
		return b.err
	}
	if count > 0 {
		last := selectLast(dy)
		whole := b.keep(Reshape(g, last.shape))
		if b.err != nil {
			return b.err
		}
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
			if b.err != nil {
				return b.err
			}
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
func LogSumExp(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return LogSumExp(t[0], dims, keepdim) }, t)
	}
	const op = "logsumexp"
	dtype, err := computing(t.dtype, op)
	if err != nil {
		return nil, err
	}
	if dims, err = dimList(op, dims, len(t.shape)); err != nil {
		return nil, err
	}
	if !dtype.IsFloat() {
		dtype = element.Float32
	}
	b := build(op, t)
	x := b.cast(t.Detach(), dtype)
	kept := reducedShape(t.shape, dims, true)
	if b.err == nil && t.n == 0 {
		return emptyLogSum(op, t, dtype, reducedShape(t.shape, dims, keepdim))
	}
	if b.err != nil {
		return nil, b.err
	}
	most := b.keep(reduceDims(op, reduceMax, x, dims, true))
	if b.err != nil {
		return nil, b.err
	}
	// An infinite maximum would give inf - inf.
	inf := b.keep(IsInf(most))
	if b.err == nil {
		most = b.keep(MaskedFill(most, inf, Int(0)))
	}
	if b.err != nil {
		return nil, b.err
	}
	out := b.keep(chain(x).binary(OpSub, most).unary(OpExp).then(func(e *Tensor) (*Tensor, error) {
		return reduceDims(op, reduceSum, e, dims, true)
	}).unary(OpLog).binary(OpAdd, most).then(func(s *Tensor) (*Tensor, error) {
		return View(s, reducedShape(t.shape, dims, keepdim))
	}).end())
	if b.err == nil && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			b := build(op, g)
			whole, sum := b.keep(Reshape(g, kept)), b.keep(Reshape(n.val(1), kept))
			if b.err == nil {
				out[0] = b.keep(chain(n.val(0)).binary(OpSub, sum).unary(OpExp).mul(whole).end())
			}
			return b.err
		}, t).save(x, out)
	}
	return out, b.err
}

// emptyLogSum: the sum of nothing is 0, its logarithm -inf.
func emptyLogSum(op string, t *Tensor, dtype element.Type, shape []int) (*Tensor, error) {
	out, err := full(op, t.ctx, shape, Float(math.Inf(-1)), dtype)
	if err == nil && records(t, nil) {
		record(out, op, backNothing, t)
	}
	return out, err
}
