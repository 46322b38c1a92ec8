package tensor

import (
	"drun/element"
	"drun/kernel"
)

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
	b := build("cumsum", t)
	x, out := b.contiguous(t), b.of(dtype, t.shape...)
	if b.err != nil {
		return nil, b.err
	}
	if t.n > 0 {
		outer, n, inner := around(t.shape, a)
		kernel.CumSum(t.dtype, outer, n, inner, out.ptr(), x.ptr())
		alive(x)
	}
	if records(t, nil) {
		record(out, "cumsum", func(_ *node, g *Tensor, out []*Tensor) (err error) {
			flip := func(x *Tensor) (*Tensor, error) { return Flip(x, []int{a}) }
			out[0], err = chain(g).then(flip).then(func(x *Tensor) (*Tensor, error) { return CumSum(x, a) }).then(flip).end()
			return err
		}, t)
	}
	return out, nil
}
