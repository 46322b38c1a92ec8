package tensor

// Prod multiplies over dims (all if none are given); the product of nothing
// is 1. Integers and bools are multiplied in int64.
func Prod(t *Tensor, dims []int, keepdim bool) (*Tensor, error) {
	const op = "prod"
	dims, err := dimList(op, dims, len(t.shape))
	if err != nil {
		return nil, err
	}
	if _, err := t.dtype.computing(op); err != nil {
		return nil, err
	}
	out, err := reduceDims(op, reduceProd, t, dims, keepdim)
	if err != nil {
		return nil, err
	}
	if records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) (err error) {
			out[0], err = backProd(n.val(0), g, dims)
			return err
		}, t).save(t)
	}
	return out, nil
}

// backProd gives each factor the product of the others: with one zero among
// them only the zero's place has one, with two none has.
func backProd(x, g *Tensor, dims []int) (*Tensor, error) {
	one, zero := newNumber(x.ctx, Int(1), x.dtype), newNumber(x.ctx, Int(0), x.dtype)
	isZero, err := BinaryScalar(OpEq, x, Int(0), false)
	if err != nil {
		return nil, err
	}
	factors, err := Where(isZero, one, x)
	if err != nil {
		return nil, err
	}
	product, err := reduceDims("prod", reduceProd, factors, dims, true)
	if err != nil {
		return nil, err
	}
	zeros, err := reduceDims("sum", reduceSum, isZero, dims, true)
	if err != nil {
		return nil, err
	}
	only := func(count int64) (*Tensor, error) {
		mask, err := BinaryScalar(OpEq, zeros, Int(count), false)
		if err != nil {
			return nil, err
		}
		return Where(mask, product, zero)
	}
	others, err := only(0)
	if err != nil {
		return nil, err
	}
	atZero, err := only(1)
	if err != nil {
		return nil, err
	}
	if others, err = Div(others, factors); err != nil {
		return nil, err
	}
	if others, err = Where(isZero, atZero, others); err != nil {
		return nil, err
	}
	return Mul(others, spread(g, x.shape, dims))
}
