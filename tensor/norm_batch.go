package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
)

// BatchNorm normalises each channel, dimension 1 of x, over all others.
// training takes the batch's statistics and moves the running mean and
// variance towards them by momentum; else the running ones are used. weight
// and bias (C) may be nil, and so may the running statistics in training.
func BatchNorm(x, weight, bias, mean, variance *Tensor, training bool, momentum, eps float64) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x, weight, bias) {
		return precise(func(t []*Tensor) (*Tensor, error) {
			return BatchNorm(t[0], t[1], t[2], mean, variance, training, momentum, eps)
		}, x, weight, bias)
	}
	const op = "batch_norm"
	try.Ok(sameFloat(op, x, weight, bias, mean, variance))
	if len(x.shape) < 2 {
		return nil, fmt.Errorf("%s: needs an input (N, C, …), not shape %s", op, ShapeString(x.shape))
	}
	for _, t := range []*Tensor{weight, bias, mean, variance} {
		if t != nil && (len(t.shape) != 1 || t.shape[0] != x.shape[1]) {
			return nil, fmt.Errorf("%s: shape %s does not fit the %d channels of an input of shape %s", op, ShapeString(t.shape), x.shape[1], ShapeString(x.shape))
		}
	}
	if !training && (mean == nil || variance == nil) {
		return nil, fmt.Errorf("%s: running statistics are needed outside training", op)
	}
	l := kernel.Lines{Outer: 1, N: x.shape[0], Side: x.shape[1], Run: product(x.shape[2:])}
	if training && l.N*l.Run < 2 {
		return nil, fmt.Errorf("%s: training needs more than one value per channel, not an input of shape %s", op, ShapeString(x.shape))
	}
	b := build(op, x)
	in, gamma, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(x.shape...)
	var a batchStats
	if training {
		err = a.measure(op, l, in, mean, variance, momentum, eps)
	} else {
		err = a.assume(mean, variance, eps)
	}
	if err != nil {
		return nil, err
	}
	if out.n > 0 && !out.shapeOnly() {
		affine := a.affine(gamma)
		affine.Beta = ptrOr(beta)
		kernel.ScaleLines(x.dtype, l, affine, out.ptr(), in.ptr())
	}
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			return backBatchNorm(nd, g, out, l, training)
		}, x, weight, bias).save(in, gamma, a.mean, a.low, a.rstd)
	}
	alive(a.mean, a.low, a.rstd)
	return out, nil
}

// batchStats are the statistics that normalise a batch, one value per
// channel: mean + low, where low is the rounding error of the mean, and
// 1/sqrt(variance + eps).
type batchStats struct{ mean, low, rstd *Tensor }

func (a *batchStats) affine(gamma *Tensor) kernel.Affine {
	return kernel.Affine{Mean: a.mean.ptr(), Low: ptrOr(a.low), Scale: a.rstd.ptr(), Gamma: ptrOr(gamma)}
}

// measure takes the statistics of a batch, and moves the running ones.
func (a *batchStats) measure(op string, l kernel.Lines, x, mean, variance *Tensor, momentum, eps float64) (err error) {
	defer try.Caught(&err)
	b := build(op, x)
	a.mean, a.low = b.like(l.Side), b.like(l.Side)
	own := b.like(l.Side)
	kernel.Moments(x.dtype, l, 0, a.mean.ptr(), a.low.ptr(), own.ptr(), x.ptr())
	try.Ok(moveTowards(mean, a.mean, momentum, 1))
	count := float64(l.N * l.Run)
	try.Ok(moveTowards(variance, own, momentum, count/(count-1)))
	return a.root(own, eps)
}

// assume takes the running statistics: copies, since they may move on before
// the backward pass.
func (a *batchStats) assume(mean, variance *Tensor, eps float64) (err error) {
	defer try.Caught(&err)
	a.mean = try.To(Clone(mean.Detach()))
	return a.root(variance.Detach(), eps)
}

func (a *batchStats) root(variance *Tensor, eps float64) (err error) {
	a.rstd, err = chain(variance).scalar(OpAdd, Float(eps)).unary(OpSqrt).unary(OpReciprocal).end()
	return err
}

func backBatchNorm(nd *node, g *Tensor, out []*Tensor, l kernel.Lines, training bool) (err error) {
	x, gamma := nd.val(0), nd.val(1)
	a := batchStats{nd.val(2), nd.val(3), nd.val(4)}
	dy, dgamma, dbeta, err := nd.layerGrads(g, out)
	if err != nil || x.n == 0 {
		return err
	}
	room := try.To(newTensor(nd.op, g.ctx, []int{2, l.Side}, g.dtype))
	kernel.BatchNormGrad(g.dtype, l, a.affine(gamma), training, ptrOr(out[0]), ptrOr(dgamma), ptrOr(dbeta), room.ptr(),
		dy.ptr(), x.ptr())
	alive(dy, room)
	return nil
}

// moveTowards sets running = (1-momentum)·running + momentum·factor·batch.
func moveTowards(running, batch *Tensor, momentum, factor float64) (err error) {
	defer try.Caught(&err)
	if running == nil {
		return nil
	}
	if running.frozen {
		return running.mayModify("batch_norm")
	}
	next := try.To(chain(running.Detach()).scalar(OpMul, Float(1-momentum)).end())
	part := try.To(chain(batch).scalar(OpMul, Float(momentum*factor)).end())
	kBinary(OpAdd, running, next, part)
	running.st.version++
	return nil
}
