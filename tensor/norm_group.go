package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
)

// InstanceNorm is GroupNorm of single channels in training, with running statistics (C), which move by momentum
// towards the samples' means and unbiased variances, averaged over the samples.
func InstanceNorm(x, weight, bias, mean, variance *Tensor, momentum, eps float64) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x, weight, bias) {
		return precise(func(t []*Tensor) (*Tensor, error) {
			return InstanceNorm(t[0], t[1], t[2], mean, variance, momentum, eps)
		}, x, weight, bias)
	}
	const op = "instance_norm"
	try.Ok(sameFloat(op, x, weight, bias, mean, variance))
	if len(x.shape) < 2 || len(mean.shape) != 1 || x.shape[1] != mean.shape[0] {
		return nil, fmt.Errorf("%s: an input of shape %s does not fit %d channels: expected (N, %d, …)", op, ShapeString(x.shape), mean.n, mean.n)
	}
	if x.shape[0] == 0 || product(x.shape[2:]) < 2 {
		return nil, fmt.Errorf("%s: training needs more than one value per channel of a sample, not an input of shape %s", op, ShapeString(x.shape))
	}
	out := try.To(GroupNorm(op, x, weight, bias, x.shape[1], eps))
	values := try.To(Reshape(x.Detach(), []int{x.shape[0], x.shape[1], -1}))
	toward := func(t *Tensor, of func(*Tensor) (*Tensor, error)) {
		step := try.To(chain(values).then(of).then(func(t *Tensor) (*Tensor, error) { return Mean(t, []int{0}, false) }).scalar(OpMul, Float(momentum)).end())
		try.Ok(BinaryScalarInPlace(OpMul, t, Float(1-momentum)))
		try.Ok(BinaryInPlace(OpAdd, t, step))
	}
	toward(mean, func(t *Tensor) (*Tensor, error) { return Mean(t, []int{2}, false) })
	toward(variance, func(t *Tensor) (*Tensor, error) { return Var(t, []int{2}, true, false) })
	return out, nil
}

// GroupNorm normalises every group of channels of each sample of x (N, C, …) to mean 0 and
// variance 1, then scales and shifts each channel by weight and bias (C), which may be nil.
// Instance norm has as many groups as channels.
func GroupNorm(op string, x, weight, bias *Tensor, groups int, eps float64) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x, weight, bias) {
		return precise(func(t []*Tensor) (*Tensor, error) { return GroupNorm(op, t[0], t[1], t[2], groups, eps) }, x, weight, bias)
	}
	try.Ok(sameFloat(op, x, weight, bias))
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
	l.Norm(x.dtype, eps, out.ptr(), mean.ptr(), rstd.ptr(), in.ptr(), ptrOr(gamma), ptrOr(beta))
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			dy, dgamma, dbeta := try.To3(nd.layerGrads(g, out))
			x, gamma, mean, rstd := nd.val(0), nd.val(1), nd.val(2), nd.val(3)
			sums := try.To(newTensor(op, g.ctx, []int{2 * l.Rows * l.Each}, g.dtype))
			l.Grad(g.dtype, ptrOr(out[0]), ptrOr(dgamma), ptrOr(dbeta), sums.ptr(), dy.ptr(), x.ptr(), ptrOr(gamma), mean.ptr(), rstd.ptr())
			alive(dy, sums)
			return nil
		}, x, weight, bias).save(in, gamma, mean, rstd)
	}
	return out, nil
}
