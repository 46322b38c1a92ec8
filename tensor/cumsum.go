package tensor

import "drun/element"

// CumSum adds along dim: out[i] is the sum of the elements up to i.
func CumSum(t *Tensor, dim int) (*Tensor, error) {
	a, err := axis("cumsum", dim, len(t.shape))
	if err != nil {
		return nil, err
	}
	dtype, err := computing(t.dtype, "cumsum")
	if err != nil {
		return nil, err
	}
	if !dtype.IsFloat() {
		dtype = element.Int64
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
	if t.n == 0 {
		outer = 0
	} else if len(t.shape) > 0 {
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
