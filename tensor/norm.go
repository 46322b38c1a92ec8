package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/opencl"
)

// LayerNorm normalises over the last dims dimensions: (x - mean) / sqrt(var + eps), times weight, plus bias; these
// have the shape of those dimensions and may be nil.
func LayerNorm(x, weight, bias *Tensor, dims int, eps float64) (*Tensor, error) {
	return normRows("layer_norm", x, weight, bias, dims, eps, true)
}

// RMSNorm divides by the root of the mean square over the last dimension and multiplies by weight, which may be nil.
func RMSNorm(x, weight *Tensor, eps float64) (*Tensor, error) {
	return normRows("rms_norm", x, weight, nil, 1, eps, false)
}

func normRows(op string, x, weight, bias *Tensor, dims int, eps float64, center bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &weight, &bias).round(&result)
	sameFloat(op, x, weight, bias)
	if dims < 1 || dims > len(x.shape) {
		try.Fail("%s: an input of shape %s has no %d dimensions to normalise", op, ShapeString(x.shape), dims)
	}
	shape := x.shape[len(x.shape)-dims:]
	for _, w := range []*Tensor{weight, bias} {
		if w != nil && !sameShape(w.shape, shape) {
			return nil, fmt.Errorf("%s: a weight of shape %s does not fit an input of shape %s", op, ShapeString(w.shape), ShapeString(x.shape))
		}
	}
	n := product(shape)
	if n == 0 {
		return nil, emptyReduction(op, x)
	}
	rows := x.n / n
	b := build(op, x)
	in, gamma, beta := b.contiguous(x), b.contiguous(weight), b.contiguous(bias)
	out, rstd := b.like(x.shape...), b.like(rows)
	var mean *Tensor
	if center {
		mean = b.like(rows)
	}
	if d := out.on(); d != nil {
		x, gamma, beta := d.read(in), maybe(d.read, gamma), maybe(d.read, beta)
		d.LayerNorm(out.dtype, rows, n, eps, d.write(out), maybe(d.write, mean), d.write(rstd), x, gamma, beta)
	} else if !out.shapeOnly() {
		kernel.LayerNorm(x.dtype, rows, n, eps, out.ptr(), ptrOr(mean), rstd.ptr(), in.read(), readOr(gamma), readOr(beta))
	}
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		nd := record(out, op, func(nd *node, g *Tensor, out []*Tensor) {
			backNormRows(nd, g, out, rows, n)
		}, x, weight, bias).save(in, gamma, mean, rstd)
		if nd.again != nil {
			nd.composed(normOf(lastDims(len(x.shape), dims), shape, eps, center))
		}
	}
	for _, t := range []*Tensor{mean, rstd} {
		if t != nil {
			Discard(t)
		}
	}
	return out, nil
}

func backNormRows(nd *node, g *Tensor, out []*Tensor, rows, n int) {
	x, gamma, mean, rstd := nd.val(0), nd.val(1), nd.val(2), nd.val(3)
	dx := nd.pending(0, g)
	add := dx != nil
	out[0] = dx
	dy, dgamma, dbeta := nd.layerGrads(g, out)
	if dx = out[0]; add {
		out[0] = nil // it is in place already
	}
	if d := rstd.on(); d != nil && d.mine(dx, dgamma, dbeta) {
		dy, x, gamma, mean, rstd := d.read(dy), d.read(x), maybe(d.read, gamma), maybe(d.read, mean), d.read(rstd)
		use := d.write
		if add {
			use = d.change
		}
		d.LayerNormGrad(g.dtype, rows, n, add, maybe(use, dx), maybe(d.change, dgamma), maybe(d.change, dbeta), dy, x, gamma, mean, rstd)
		return
	}
	kernel.LayerNormGrad(g.dtype, rows, n, add, ptrOr(dx), ptrOr(dgamma), ptrOr(dbeta), dy.read(), x.read(),
		readOr(gamma), readOr(mean), rstd.read())
	alive(dx, dy)
}

// BatchNorm normalises each channel, dimension 1 of x, over all others. training uses the batch's statistics, and
// moves the running mean and variance towards them by momentum; otherwise the running ones are used. weight and bias
// (C) may be nil, and so may the running statistics in training.
func BatchNorm(x, weight, bias, mean, variance *Tensor, training bool, momentum, eps float64) (result *Tensor, err error) {
	return batchNorm(x, weight, bias, mean, variance, training, momentum, eps, nil)
}

// Across joins what ranks know of a batch that is divided over them, for [BatchNormAcross].
type Across interface {
	// Moments replaces the mean (mean + low) and the variance of each channel of this rank's part, with count values a
	// channel, by those of the whole batch, whose count it returns.
	Moments(mean, low, variance *Tensor, count int) (total int, err error)
	// Sum adds the ranks' tensors.
	Sum(t *Tensor) (*Tensor, error)
}

// BatchNormAcross is BatchNorm in training of a batch of which this rank has a part, which may be empty. The gradients of
// weight and bias are those of this part.
func BatchNormAcross(x, weight, bias, mean, variance *Tensor, momentum, eps float64, across Across) (*Tensor, error) {
	return batchNorm(x, weight, bias, mean, variance, true, momentum, eps, across)
}

func batchNorm(x, weight, bias, mean, variance *Tensor, training bool, momentum, eps float64, across Across) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &weight, &bias).round(&result)
	const op = "batch_norm"
	sameFloat(op, x, weight, bias, mean, variance)
	try.FailIf(len(x.shape) < 2, "%s: needs an input (N, C, …), not shape %s", op, shaped(x.shape))
	perChannel(op, x, weight, bias, mean, variance)
	if !training && (mean == nil || variance == nil) {
		return nil, fmt.Errorf("%s: running statistics are needed outside training", op)
	}
	l := kernel.Lines{Outer: 1, N: x.shape[0], Side: x.shape[1], Run: product(x.shape[2:])}
	try.FailIf(training && across == nil && l.N*l.Run < 2, "%s: training needs more than one value per channel, not an input of shape %s", op, shaped(x.shape))
	b := build(op, x)
	in, gamma, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(x.shape...)
	var a batchStats
	total := l.N * l.Run
	if training {
		total = a.measure(op, l, in, mean, variance, momentum, eps, across)
	} else {
		a.assume(mean, variance, eps)
	}
	if out.n > 0 && !out.shapeOnly() {
		a.scale(l, out, in, gamma, beta)
	}
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		nd := record(out, op, func(nd *node, g *Tensor, out []*Tensor) {
			if across != nil {
				backBatchNormAcross(nd, g, out, l, total, across)
			} else {
				backBatchNorm(nd, g, out, l, training)
			}
		}, x, weight, bias).save(in, gamma, a.mean, a.low, a.rstd)
		shape := alongAxis(len(x.shape)-1, 0, l.Side)
		switch {
		case nd.again == nil || across != nil:
		case training:
			nd.composed(normOf(slices.Delete(allDims(len(x.shape)), 1, 2), shape, eps, true))
		default:
			nd.composed(func(in []*Tensor) *Tensor {
				centered := try.To(Sub(in[0], try.To(View(a.mean, shape))))
				return affineOf(try.To(Mul(centered, try.To(View(a.rstd, shape)))), in[1:], shape)
			})
		}
	}
	alive(a.mean, a.low, a.rstd)
	return out, nil
}

// perChannel checks that tensors, unless they are nil, have an element for each channel, dimension 1 of x.
func perChannel(op string, x *Tensor, ts ...*Tensor) {
	for _, t := range ts {
		if t != nil && (len(t.shape) != 1 || t.shape[0] != x.shape[1]) {
			try.Fail("%s: shape %s does not fit the %d channels of an input of shape %s", op, ShapeString(t.shape), x.shape[1], ShapeString(x.shape))
		}
	}
}

// batchStats are the statistics that normalise a batch, one value per channel: mean + low, where low is the rounding
// error of the mean, and 1/sqrt(variance + eps).
type batchStats struct{ mean, low, rstd *Tensor }

// scale computes y = (x - mean) rstd gamma + beta.
func (a *batchStats) scale(l kernel.Lines, y, x, gamma, beta *Tensor) {
	scaleLines(l, y, x, a.mean, a.low, a.rstd, gamma, beta)
}

// scaleLines is [kernel.ScaleLines]; mean, low, gamma and beta may be nil.
func scaleLines(l kernel.Lines, y, x, mean, low, scale, gamma, beta *Tensor) {
	if d := y.on(); d != nil {
		a := opencl.Affine{Mean: maybe(d.read, mean), Low: maybe(d.read, low), Scale: d.read(scale), Gamma: maybe(d.read, gamma), Beta: maybe(d.read, beta)}
		in := d.read(x)
		d.ScaleLines(x.dtype, l, a, d.write(y), in)
		return
	}
	a := kernel.Affine{Mean: readOr(mean), Low: readOr(low), Scale: scale.read(), Gamma: readOr(gamma), Beta: readOr(beta)}
	kernel.ScaleLines(x.dtype, l, a, y.ptr(), x.read())
	alive(y, x, mean, low, scale, gamma, beta)
}

// moments is [kernel.Moments]; mean and low may be nil.
func moments(l kernel.Lines, correction int, mean, low, variance, x *Tensor) {
	if d := variance.on(); d != nil {
		in := d.read(x)
		d.Moments(x.dtype, l, correction, maybe(d.write, mean), maybe(d.write, low), d.write(variance), in)
		return
	}
	kernel.Moments(x.dtype, l, correction, ptrOr(mean), ptrOr(low), variance.ptr(), x.read())
	alive(mean, low, variance, x)
}

// grad is [kernel.BatchNormGrad].
func (a *batchStats) grad(op string, l kernel.Lines, training bool, dx, dgamma, dbeta, dy, x, gamma *Tensor) {
	if d := a.rstd.on(); d != nil && d.mine(dx, dgamma, dbeta) {
		of := opencl.Affine{Mean: d.read(a.mean), Low: maybe(d.read, a.low), Scale: d.read(a.rstd), Gamma: maybe(d.read, gamma)}
		dy, x := d.read(dy), d.read(x)
		d.BatchNormGrad(a.rstd.dtype, l, of, training, maybe(d.write, dx), maybe(d.change, dgamma), maybe(d.change, dbeta), dy, x)
		return
	}
	room := newTensor(op, dy.ctx, []int{2, l.Side}, dy.dtype)
	of := kernel.Affine{Mean: a.mean.read(), Low: readOr(a.low), Scale: a.rstd.read(), Gamma: readOr(gamma)}
	kernel.BatchNormGrad(dy.dtype, l, of, training, ptrOr(dx), ptrOr(dgamma), ptrOr(dbeta), room.ptr(), dy.read(), x.read())
	alive(dy, room)
}

// measure computes the statistics of a batch, and moves the running ones. It returns the number of values per channel.
func (a *batchStats) measure(op string, l kernel.Lines, x, mean, variance *Tensor, momentum, eps float64, across Across) (total int) {
	b := build(op, x)
	a.mean, a.low = b.like(l.Side), b.like(l.Side)
	own := b.like(l.Side)
	if total = l.N * l.Run; total > 0 {
		moments(l, 0, a.mean, a.low, own, x)
	}
	if across != nil {
		total = try.To(across.Moments(a.mean, a.low, own, total))
		try.FailIf(total < 2, "%s: training needs more than one value per channel on all ranks together", op)
	}
	moveTowards(mean, a.mean, momentum, 1)
	count := float64(total)
	moveTowards(variance, own, momentum, count/(count-1))
	a.root(own, eps)
	return total
}

// assume copies the running statistics, since they may change before the backward pass.
func (a *batchStats) assume(mean, variance *Tensor, eps float64) {
	a.mean = try.To(Clone(mean.Detach()))
	a.root(variance.Detach(), eps)
}

func (a *batchStats) root(variance *Tensor, eps float64) {
	a.rstd = try.To(chain(variance).scalar(OpAdd, Float(eps)).unary(OpSqrt).unary(OpReciprocal).end())
}

func backBatchNorm(nd *node, g *Tensor, out []*Tensor, l kernel.Lines, training bool) {
	x, gamma := nd.val(0), nd.val(1)
	a := batchStats{nd.val(2), nd.val(3), nd.val(4)}
	dy, dgamma, dbeta := nd.layerGrads(g, out)
	if x.n == 0 {
		return
	}
	a.grad(nd.op, l, training, out[0], dgamma, dbeta, dy, x, gamma)
}

// backBatchNormAcross is the gradient where the statistics are those of all ranks' parts: what they add to the input's
// gradient, scale/total·(sum(dy) + x̂·sum(dy·x̂)), has sums over all parts.
func backBatchNormAcross(nd *node, g *Tensor, out []*Tensor, l kernel.Lines, total int, across Across) {
	x, gamma := nd.val(0), nd.val(1)
	a := batchStats{nd.val(2), nd.val(3), nd.val(4)}
	dy, dgamma, dbeta := nd.layerGrads(g, out)
	sums := try.To(Zeros(g.ctx, []int{2, l.Side}, g.dtype))
	ofGamma, ofBeta := try.To(Select(sums, 0, 0)), try.To(Select(sums, 0, 1))
	if x.n > 0 {
		a.grad(nd.op, l, false, out[0], ofGamma, ofBeta, dy, x, gamma)
	}
	for _, d := range [][2]*Tensor{{dgamma, ofGamma}, {dbeta, ofBeta}} {
		if d[0] != nil {
			kBinary(OpAdd, d[0], d[0], d[1])
		}
	}
	if dx := out[0]; dx != nil { // so it is on all ranks, since they have the same model
		scale := try.To(BinaryScalar(OpMul, a.rstd, Float(1/float64(total)), false))
		if gamma != nil {
			scale = try.To(Binary(OpMul, scale, gamma))
		}
		all := try.To(Binary(OpMul, try.To(across.Sum(sums)), scale))
		toGamma, toBeta := try.To(Select(all, 0, 0)), try.To(Select(all, 0, 1))
		if x.n > 0 {
			less := newTensor(nd.op, g.ctx, x.shape, g.dtype)
			a.scale(l, less, x, toGamma, toBeta)
			kBinary(OpSub, dx, dx, less)
		}
	}
	alive(dy, ofGamma, ofBeta)
}

// moveTowards sets running = (1-momentum)·running + momentum·factor·batch.
func moveTowards(running, batch *Tensor, momentum, factor float64) {
	if running == nil {
		return
	}
	if running.frozen {
		running.mayModify("batch_norm", nil)
	}
	next := try.To(chain(running.Detach()).scalar(OpMul, Float(1-momentum)).end())
	part := try.To(chain(batch).scalar(OpMul, Float(momentum*factor)).end())
	kBinary(OpAdd, running, next, part)
	running.st.version++
}

// InstanceNorm is GroupNorm of single channels in training, with running statistics (C), which move by momentum
// towards the samples' means and unbiased variances, averaged over the samples.
func InstanceNorm(x, weight, bias, mean, variance *Tensor, momentum, eps float64) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &weight, &bias).round(&result)
	const op = "instance_norm"
	sameFloat(op, x, weight, bias, mean, variance)
	try.FailIf(len(x.shape) < 2 || len(mean.shape) != 1 || x.shape[1] != mean.shape[0],
		"%s: an input of shape %s does not fit %d channels: expected (N, %d, …)", op, shaped(x.shape), mean.n, mean.n)
	try.FailIf(x.shape[0] == 0 || product(x.shape[2:]) < 2, "%s: training needs more than one value per channel of a sample, not an input of shape %s", op, shaped(x.shape))
	out := try.To(GroupNorm(op, x, weight, bias, x.shape[1], eps))
	values := try.To(Reshape(x.Detach(), []int{x.shape[0], x.shape[1], -1}))
	toward := func(t *Tensor, of func(*Tensor) (*Tensor, error)) {
		step := try.To(chain(values).then(of).then(func(t *Tensor) (*Tensor, error) { return Mean(t, []int{0}, false) }).scalar(OpMul, Float(momentum)).end())
		try.Ok(BinaryScalarInPlace(OpMul, t, Float(1-momentum)))
		try.Ok(BinaryInPlace(OpAdd, t, step))
	}
	toward(mean, func(t *Tensor) (*Tensor, error) { return Mean(t, []int{2}, false) })
	toward(variance, func(t *Tensor) (*Tensor, error) { return Var(t, []int{2}, 1, false) })
	return out, nil
}

// GroupNorm normalises every group of channels of each sample of x (N, C, …) to mean 0 and variance 1, then scales
// and shifts each channel by weight and bias (C), which may be nil. Instance norm has as many groups as channels.
func GroupNorm(op string, x, weight, bias *Tensor, groups int, eps float64) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &weight, &bias).round(&result)
	sameFloat(op, x, weight, bias)
	try.FailIf(len(x.shape) < 2 || groups < 1 || x.shape[1]%groups != 0 || x.shape[1] == 0,
		"%s: the channels of an input of shape %s are not divided by %d groups: expected (N, C, …)", op, shaped(x.shape), groups)
	c := x.shape[1]
	perChannel(op, x, weight, bias)
	l := kernel.Groups{Rows: x.shape[0] * groups, Groups: groups, Each: c / groups, Run: product(x.shape[2:])}
	if l.Run == 0 {
		return nil, emptyReduction(op, x)
	}
	b := build(op, x)
	in, gamma, beta := b.contiguous(x), b.contiguous(weight), b.contiguous(bias)
	out, mean, rstd := b.like(x.shape...), b.like(l.Rows), b.like(l.Rows)
	if d := out.on(); d != nil {
		x, gamma, beta := d.read(in), maybe(d.read, gamma), maybe(d.read, beta)
		d.GroupNorm(l, out.dtype, eps, d.write(out), d.write(mean), d.write(rstd), x, gamma, beta)
	} else {
		l.Norm(x.dtype, eps, out.ptr(), mean.ptr(), rstd.ptr(), in.read(), readOr(gamma), readOr(beta))
	}
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		nd := record(out, op, func(nd *node, g *Tensor, out []*Tensor) {
			dy, dgamma, dbeta := nd.layerGrads(g, out)
			x, gamma, mean, rstd := nd.val(0), nd.val(1), nd.val(2), nd.val(3)
			if d := rstd.on(); d != nil && d.mine(out[0], dgamma, dbeta) {
				dy, x, gamma, mean, rstd := d.read(dy), d.read(x), maybe(d.read, gamma), d.read(mean), d.read(rstd)
				d.GroupNormGrad(l, g.dtype, maybe(d.write, out[0]), maybe(d.change, dgamma), maybe(d.change, dbeta), dy, x, gamma, mean, rstd)
				return
			}
			sums := newTensor(op, g.ctx, []int{2 * l.Rows * l.Each}, g.dtype)
			l.Grad(g.dtype, ptrOr(out[0]), ptrOr(dgamma), ptrOr(dbeta), sums.ptr(), dy.read(), x.read(), readOr(gamma), mean.read(), rstd.read())
			alive(dy, sums)
		}, x, weight, bias).save(in, gamma, mean, rstd)
		if nd.again != nil {
			whole, shape := normOf([]int{2}, nil, eps, true), alongAxis(len(x.shape)-1, 0, c)
			nd.composed(func(in []*Tensor) *Tensor {
				rows := try.To(Reshape(in[0], []int{in[0].shape[0], groups, l.Each * l.Run}))
				return affineOf(try.To(Reshape(whole([]*Tensor{rows, nil}), in[0].shape)), in[1:], shape)
			})
		}
	}
	return out, nil
}
