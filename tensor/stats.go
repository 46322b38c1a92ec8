package tensor

import (
	"fmt"
	"math"
)

// Var is the variance over dims (all if none are given), divided by n-1 if
// unbiased, else by n.
func Var(t *Tensor, dims []int, unbiased, keepdim bool) (*Tensor, error) {
	if err := needFloat("var", t); err != nil {
		return nil, err
	}
	dims, err := dimList("var", dims, len(t.shape))
	if err != nil {
		return nil, err
	}
	count := 1
	for _, d := range dims {
		count *= t.shape[d]
	}
	if count == 0 {
		return nil, emptyReduction("var", t)
	}
	div := float64(count)
	if unbiased {
		div--
	}
	plain := t.Detach()
	mean, err := Mean(plain, dims, true)
	if err != nil {
		return nil, err
	}
	dev, err := Sub(plain, mean)
	if err != nil {
		return nil, err
	}
	square, err := Unary(OpSquare, dev)
	if err != nil {
		return nil, err
	}
	out, err := reduceDims("var", reduceSum, square, dims, keepdim)
	if err != nil {
		return nil, err
	}
	Discard(square)
	kBinary(OpDiv, out, out, newNumber(t.ctx, Float(div), t.dtype))
	if records(t, nil) {
		record(out, "var", func(n *node, g *Tensor, out []*Tensor) (err error) {
			g = spread(g, n.in[0].shape(), dims)
			out[0], err = chain(n.val(0)).scalar(OpMul, Float(2/div)).mul(g).end()
			return err
		}, t).save(dev)
	}
	return out, nil
}

// Std is the square root of Var.
func Std(t *Tensor, dims []int, unbiased, keepdim bool) (*Tensor, error) {
	v, err := Var(t, dims, unbiased, keepdim)
	if err != nil {
		return nil, fmt.Errorf("std: %w", err)
	}
	return Unary(OpSqrt, v)
}

// Norm is the p-norm over dims (all if none are given); p may be infinite.
func Norm(t *Tensor, p float64, dims []int, keepdim bool) (*Tensor, error) {
	if err := needFloat("norm", t); err != nil {
		return nil, err
	}
	dims, err := dimList("norm", dims, len(t.shape))
	if err != nil {
		return nil, err
	}
	abs := chain(t).unary(OpAbs)
	sum := func(x *Tensor) (*Tensor, error) { return Sum(x, dims, keepdim) }
	switch {
	case p == 2:
		return norm2(t, dims, keepdim)
	case p == 1:
		return abs.then(sum).end()
	case math.IsInf(p, 1):
		return abs.then(func(x *Tensor) (*Tensor, error) { return maxOver(x, dims, keepdim) }).end()
	case p > 0:
		return abs.scalar(OpPow, Float(p)).then(sum).scalar(OpPow, Float(1/p)).end()
	}
	return nil, fmt.Errorf("norm: p must be positive, not %v", p)
}

func maxOver(t *Tensor, dims []int, keepdim bool) (x *Tensor, err error) {
	if len(dims) == len(t.shape) && !keepdim {
		return Max(t)
	}
	x = t
	for _, d := range dims {
		if x, _, err = MaxDim(x, d, true); err != nil {
			return nil, err
		}
	}
	return Reshape(x, reducedShape(t.shape, dims, keepdim))
}

// norm2 has its own gradient because that of the square root has no value
// at 0, where PyTorch gives 0.
func norm2(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	plain := t.Detach()
	square, err := Unary(OpSquare, plain)
	if err != nil {
		return nil, err
	}
	out, err := reduceDims("norm", reduceSum, square, dims, keepdim)
	if err != nil {
		return nil, err
	}
	Discard(square)
	kUnary(OpSqrt, out, out)
	if records(t, nil) {
		record(out, "norm", func(n *node, g *Tensor, out []*Tensor) error {
			x, norm := n.val(0), n.val(1)
			q, err := Div(g, norm)
			if err != nil {
				return err
			}
			if q, err = zeroWhere(OpEq, norm, q); err != nil {
				return err
			}
			out[0], err = Mul(x, spread(q, x.shape, dims))
			return err
		}, t).save(t, out)
	}
	return out, nil
}

// CumSum adds along dim: out[i] is the sum of the elements up to i.
func CumSum(t *Tensor, dim int) (*Tensor, error) {
	a, err := axis("cumsum", dim, len(t.shape))
	if err != nil {
		return nil, err
	}
	dtype, err := t.dtype.computing("cumsum")
	if err != nil {
		return nil, err
	}
	if !dtype.IsFloat() {
		dtype = Int64
	}
	x, err := contiguous(t)
	if err != nil {
		return nil, err
	}
	out, err := newTensor("cumsum", t.ctx, t.shape, dtype)
	if err != nil {
		return nil, err
	}
	outer, n, inner := 1, 1, 1
	if len(t.shape) > 0 {
		outer, n, inner = product(t.shape[:a]), t.shape[a], product(t.shape[a+1:])
	}
	kCumSum(out, x, outer, n, inner)
	if records(t, nil) {
		record(out, "cumsum", func(_ *node, g *Tensor, out []*Tensor) (err error) {
			flip := func(x *Tensor) (*Tensor, error) { return Flip(x, []int{a}) }
			out[0], err = chain(g).then(flip).then(func(x *Tensor) (*Tensor, error) { return CumSum(x, a) }).then(flip).end()
			return err
		}, t)
	}
	return out, nil
}
