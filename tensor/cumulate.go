package tensor

import (
	"math"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// CumSum adds up along dim: out[i] is the sum of the elements up to and including i.
func CumSum(t *Tensor, dim int) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
	const op = "cumsum"
	out, _, a := cumulate(op, t, dim, false)
	if t.dtype.IsFloat() && records(t, nil) {
		back := func(_ *node, g *Tensor, out []*Tensor) {
			flip := func(x *Tensor) (*Tensor, error) { return Flip(x, []int{a}) }
			out[0] = try.To(chain(g).then(flip).then(func(x *Tensor) (*Tensor, error) { return CumSum(x, a) }).then(flip).end())
		}
		record(out, op, back, t).twice(back)
	}
	return out, err
}

// cumulate adds or multiplies up along dim without recording; x is t in row-major order. Integers become int64.
func cumulate(op string, t *Tensor, dim int, product bool) (out, x *Tensor, a int) {
	a = try.To(Axis(op, dim, len(t.shape)))
	result := try.To(computing(t.dtype, op))
	if !result.IsFloat() {
		result = dtype.Int64
	}
	b := build(op, t)
	x, out = b.contiguous(t), b.of(result, t.shape...)
	if t.n > 0 {
		outer, n, inner := around(t.shape, a)
		run := kernel.CumSum
		if product {
			run = kernel.CumProd
		}
		if d := out.on(); d != nil {
			in := d.read(x)
			d.Cumulate(product, t.dtype, outer, n, inner, d.write(out), in)
		} else {
			run(t.dtype, outer, n, inner, out.ptr(), x.read())
		}
		alive(x)
	}
	return out, x, a
}

// Prod multiplies the elements, along dim or all if it is nil. Integers and bools are multiplied in int64.
func Prod(t *Tensor, dim *int, keepdim bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
	const op = "prod"
	try.To(computing(t.dtype, op))
	dims := allDims(len(t.shape))
	if dim != nil {
		a := try.To(Axis(op, *dim, len(t.shape)))
		if len(t.shape) > 0 {
			dims = []int{a}
		}
	}
	out := reduceDims(op, kernel.Prod, t, dims, keepdim)
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			backProd(n, g, out, dims)
		}, t).save(t).twice(prodTwice(dims))
	}
	return out, nil
}

// backProd is the gradient of the last of the running products.
func backProd(n *node, g *Tensor, out []*Tensor, dims []int) {
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
		cumProdGrad(outer, count, inner, dx, dy, x)
	}
	out[0] = dx
}

func cumProdGrad(outer, n, inner int, dx, dy, x *Tensor) {
	if d := dx.on(); d != nil {
		dy, x := d.read(dy), d.read(x)
		d.CumProdGrad(dx.dtype, outer, n, inner, d.write(dx), dy, x)
		return
	}
	kernel.CumProdGrad(dx.dtype, outer, n, inner, dx.ptr(), dy.read(), x.read())
	alive(dx, dy, x)
}

// selectLast returns the last entry of the middle of three dimensions; it is never recorded.
func selectLast(t *Tensor) *Tensor {
	v := viewOf(t, 2)
	v.shape[0], v.shape[1] = t.shape[0], t.shape[2]
	v.strides[0], v.strides[1] = t.strides[0], t.strides[2]
	v.off += (t.shape[1] - 1) * t.strides[1]
	return v.seal()
}

// CumProd multiplies along dim: out[i] is the product of the elements up to and including i.
func CumProd(t *Tensor, dim int) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
	const op = "cumprod"
	out, x, a := cumulate(op, t, dim, true)
	if t.dtype.IsFloat() && records(t, nil) {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			b := build(op, g)
			dy, dx := b.contiguous(g), b.like(g.shape...)
			x := n.val(0)
			outer, count, inner := around(x.shape, a)
			cumProdGrad(outer, count, inner, dx, dy, x)
			out[0] = dx
		}, t).save(x)
		if n.again != nil && len(t.shape) > 0 {
			n.composed(cumprodOf(a))
		}
	}
	return out, err
}

// LogSumExp returns the logarithm of the sum of exp over dims (all if none are given), computed without overflow.
func LogSumExp(t *Tensor, dims []int, keepdim bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
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
		return ofNothing(op, b.of(dt, ReducedShape(t.shape, dims, keepdim)...), t, math.Inf(-1)), nil
	}
	most := reduceDims(op, kernel.MaxOver, x, dims, true)
	// An infinite maximum would give inf - inf.
	inf := try.To(IsInf(most))
	most = try.To(MaskedFill(most, inf, Int(0)))
	out := try.To(chain(x).binary(OpSub, most).unary(OpExp).then(func(e *Tensor) (*Tensor, error) {
		return reduceDims(op, kernel.Sum, e, dims, true), nil
	}).unary(OpLog).binary(OpAdd, most).then(func(s *Tensor) (*Tensor, error) {
		return View(s, ReducedShape(t.shape, dims, keepdim))
	}).end())
	if records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			whole, sum := try.To(Reshape(g, kept)), try.To(Reshape(n.val(1), kept))
			out[0] = try.To(chain(n.val(0)).binary(OpSub, sum).unary(OpExp).mul(whole).end())
		}, t).save(x, out).twice(func(n *node, g *Tensor, out []*Tensor) {
			x := n.input(0)
			share := apply(OpExp, try.To(Sub(x, try.To(LogSumExp(x, dims, true)))))
			out[0] = try.To(Mul(share, try.To(Reshape(g, kept))))
		})
	}
	return out, nil
}
