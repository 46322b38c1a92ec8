package tensor

import (
	"fmt"

	"drun/kernel"
)

// GroupNorm normalises every group of channels of each sample of x (N, C, …) to mean 0 and
// variance 1, then scales and shifts each channel by weight and bias (C), which may be nil.
// Instance norm has as many groups as channels.
func GroupNorm(op string, x, weight, bias *Tensor, groups int, eps float64) (*Tensor, error) {
	if err := sameFloat(op, x, weight, bias); err != nil {
		return nil, err
	}
	if len(x.shape) < 2 || groups < 1 || x.shape[1]%groups != 0 || x.shape[1] == 0 {
		return nil, fmt.Errorf("%s: the channels of an input of shape %s are not divided by %d groups: expected (N, C, …)", op, ShapeString(x.shape), groups)
	}
	c := x.shape[1]
	for _, t := range []*Tensor{weight, bias} {
		if t != nil && (len(t.shape) != 1 || t.shape[0] != c) {
			return nil, fmt.Errorf("%s: shape %s does not fit the %d channels of an input of shape %s", op, ShapeString(t.shape), c, ShapeString(x.shape))
		}
	}
	l := kernel.Groups{Rows: x.shape[0] * groups, Groups: groups, Each: c / groups, Run: product(x.shape[2:])}
	if l.Run == 0 {
		return nil, emptyReduction(op, x)
	}
	b := build(op, x)
	in, gamma, beta := b.contiguous(x), b.contiguous(weight), b.contiguous(bias)
	out, mean, rstd := b.like(x.shape...), b.like(l.Rows), b.like(l.Rows)
	if b.err != nil {
		return nil, b.err
	}
	l.Norm(x.dtype, eps, out.ptr(), mean.ptr(), rstd.ptr(), in.ptr(), ptrOr(gamma), ptrOr(beta))
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			dy, dgamma, dbeta, err := nd.layerGrads(g, out)
			if err != nil {
				return err
			}
			x, gamma, mean, rstd := nd.val(0), nd.val(1), nd.val(2), nd.val(3)
			sums, err := newTensor(op, g.ctx, []int{2 * l.Rows * l.Each}, g.dtype)
			if err != nil {
				return err
			}
			l.Grad(g.dtype, ptrOr(out[0]), ptrOr(dgamma), ptrOr(dbeta), sums.ptr(), dy.ptr(), x.ptr(), ptrOr(gamma), mean.ptr(), rstd.ptr())
			alive(dy, sums)
			return nil
		}, x, weight, bias).save(in, gamma, mean, rstd)
	}
	return out, nil
}
