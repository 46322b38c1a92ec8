package tensor

import (
	"fmt"
	"runtime"

	"drun/kernel"
)

// BatchNorm normalises each channel, dimension 1 of x, over all others.
// training takes the batch's statistics and moves the running mean and
// variance towards them by momentum; else the running ones are used. weight
// and bias (C) may be nil, and so may the running statistics in training.
func BatchNorm(x, weight, bias, mean, variance *Tensor, training bool, momentum, eps float64) (*Tensor, error) {
	const op = "batch_norm"
	if err := sameFloat(op, x, weight, bias, mean, variance); err != nil {
		return nil, err
	}
	if len(x.shape) < 2 {
		return nil, fmt.Errorf("%s: needs an input (N, C, …), not shape %s", op, shapeString(x.shape))
	}
	for _, t := range []*Tensor{weight, bias, mean, variance} {
		if t != nil && (len(t.shape) != 1 || t.shape[0] != x.shape[1]) {
			return nil, fmt.Errorf("%s: shape %s does not fit the %d channels of an input of shape %s", op, shapeString(t.shape), x.shape[1], shapeString(x.shape))
		}
	}
	if !training && (mean == nil || variance == nil) {
		return nil, fmt.Errorf("%s: running statistics are needed outside training", op)
	}
	l := kernel.Lines{Outer: 1, N: x.shape[0], Side: x.shape[1], Run: product(x.shape[2:])}
	in, err := contiguous(x)
	if err != nil {
		return nil, err
	}
	var a batchStats
	if training {
		if l.N*l.Run < 2 {
			return nil, fmt.Errorf("%s: training needs more than one value per channel, not an input of shape %s", op, shapeString(x.shape))
		}
		if err := a.measure(op, l, in, mean, variance, momentum, eps); err != nil {
			return nil, err
		}
	} else if err := a.assume(mean, variance, eps); err != nil {
		return nil, err
	}
	gamma, beta := weight, bias
	if gamma != nil {
		if gamma, err = contiguous(gamma); err != nil {
			return nil, err
		}
	}
	if beta != nil {
		if beta, err = contiguous(beta); err != nil {
			return nil, err
		}
	}
	out, err := newTensor(op, x.ctx, x.shape, x.dtype)
	if err != nil {
		return nil, err
	}
	if out.n > 0 {
		affine := a.affine(gamma)
		affine.Beta = ptrOr(beta)
		kernel.ScaleLines(x.dtype, l, affine, out.ptr(), in.ptr())
	}
	runtime.KeepAlive(in)
	runtime.KeepAlive(gamma)
	runtime.KeepAlive(beta)
	if records(x, weight) || bias != nil && records(bias, nil) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			return backBatchNorm(nd, g, out, l, training)
		}, x, weight, bias).save(in, gamma, a.mean, a.low, a.rstd)
	}
	runtime.KeepAlive(a)
	return out, nil
}

// batchStats are the statistics that a batch is normalised by, one value a
// channel: mean + low, where low is what the rounded mean lacks, and
// 1/sqrt(variance + eps).
type batchStats struct{ mean, low, rstd *Tensor }

func (a *batchStats) affine(gamma *Tensor) kernel.Affine {
	return kernel.Affine{Mean: a.mean.ptr(), Low: ptrOr(a.low), Scale: a.rstd.ptr(), Gamma: ptrOr(gamma)}
}

// measure takes the statistics of a batch, and moves the running ones.
func (a *batchStats) measure(op string, l kernel.Lines, x, mean, variance *Tensor, momentum, eps float64) error {
	var own [3]*Tensor
	for i := range own {
		var err error
		if own[i], err = newTensor(op, x.ctx, []int{l.Side}, x.dtype); err != nil {
			return err
		}
	}
	va := own[2]
	kernel.Moments(x.dtype, l, 0, own[0].ptr(), own[1].ptr(), va.ptr(), x.ptr())
	runtime.KeepAlive(own)
	if err := moveTowards(mean, own[0], momentum, 1); err != nil {
		return err
	}
	count := float64(l.N * l.Run)
	if err := moveTowards(variance, va, momentum, count/(count-1)); err != nil {
		return err
	}
	a.mean, a.low = own[0], own[1]
	return a.root(va, eps)
}

// assume takes the running statistics: copies, since they may move on before
// the backward pass.
func (a *batchStats) assume(mean, variance *Tensor, eps float64) (err error) {
	if a.mean, err = Clone(mean.Detach()); err != nil {
		return err
	}
	return a.root(variance.Detach(), eps)
}

func (a *batchStats) root(variance *Tensor, eps float64) (err error) {
	a.rstd, err = chain(variance).scalar(OpAdd, Float(eps)).unary(OpSqrt).unary(OpReciprocal).end()
	return err
}

func backBatchNorm(nd *node, g *Tensor, out []*Tensor, l kernel.Lines, training bool) error {
	x, gamma := nd.val(0), nd.val(1)
	a := batchStats{nd.val(2), nd.val(3), nd.val(4)}
	dy, err := contiguous(g)
	if err != nil {
		return err
	}
	if nd.needs(0) {
		if out[0], err = newTensor(nd.op, g.ctx, x.shape, g.dtype); err != nil {
			return err
		}
	}
	var sums [3]*Tensor
	for i := 1; i < 3; i++ {
		if nd.needs(i) {
			if sums[i], err = nd.sumPlace(i, dy, out); err != nil {
				return err
			}
		}
	}
	if x.n == 0 {
		return nil
	}
	room, err := newTensor(nd.op, g.ctx, []int{2, l.Side}, g.dtype)
	if err != nil {
		return err
	}
	kernel.BatchNormGrad(g.dtype, l, a.affine(gamma), training, ptrOr(out[0]), ptrOr(sums[1]), ptrOr(sums[2]), room.ptr(),
		dy.ptr(), x.ptr())
	runtime.KeepAlive(dy)
	runtime.KeepAlive(room)
	runtime.KeepAlive(nd)
	return nil
}

// moveTowards sets running = (1-momentum)·running + momentum·factor·batch.
func moveTowards(running, batch *Tensor, momentum, factor float64) error {
	if running == nil {
		return nil
	}
	if running.frozen {
		return running.mayModify("batch_norm")
	}
	next, err := chain(running.Detach()).scalar(OpMul, Float(1-momentum)).end()
	if err != nil {
		return err
	}
	part, err := chain(batch).scalar(OpMul, Float(momentum*factor)).end()
	if err != nil {
		return err
	}
	kBinary(OpAdd, running, next, part)
	running.st.version++
	return nil
}
