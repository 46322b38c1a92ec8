package tensor

import (
	"fmt"
	"slices"
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
	channel := slices.Repeat([]int{1}, len(x.shape))
	channel[1] = x.shape[1]
	dims := []int{0}
	for d := 2; d < len(x.shape); d++ {
		dims = append(dims, d)
	}
	count := x.n / max(x.shape[1], 1)
	plain := x.Detach()
	mu, va := mean, variance
	var err error
	if training {
		if count < 2 {
			return nil, fmt.Errorf("%s: training needs more than one value per channel, not an input of shape %s", op, shapeString(x.shape))
		}
		if mu, err = Mean(plain, dims, false); err != nil {
			return nil, err
		}
		if va, err = Var(plain, dims, false, false); err != nil {
			return nil, err
		}
		unbias := float64(count) / float64(count-1)
		if err := moveTowards(mean, mu, momentum, 1); err != nil {
			return nil, err
		}
		if err := moveTowards(variance, va, momentum, unbias); err != nil {
			return nil, err
		}
	}
	wide := func(t *Tensor) (*Tensor, error) { return View(t, channel) }
	rstd, err := chain(va).scalar(OpAdd, Float(eps)).unary(OpSqrt).unary(OpReciprocal).then(wide).end()
	if err != nil {
		return nil, err
	}
	if mu, err = wide(mu.Detach()); err != nil {
		return nil, err
	}
	xhat, err := chain(plain).binary(OpSub, mu).mul(rstd).end()
	if err != nil {
		return nil, err
	}
	y := chain(xhat)
	scale := rstd
	if weight != nil {
		w, err := Reshape(weight.Detach(), channel)
		if err != nil {
			return nil, err
		}
		if scale, err = Mul(rstd, w); err != nil {
			return nil, err
		}
		y = y.mul(w)
	}
	if bias != nil {
		b, err := Reshape(bias.Detach(), channel)
		if err != nil {
			return nil, err
		}
		y = y.binary(OpAdd, b)
	}
	out, err := y.end()
	if err != nil {
		return nil, err
	}
	if records(x, weight) || bias != nil && records(bias, nil) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			return backBatchNorm(nd, g, out, dims, training, float64(count))
		}, x, weight, bias).save(xhat, scale)
	}
	return out, nil
}

// backBatchNorm: dbias = Σg, dweight = Σg·x̂, and in training
// dx = weight·rstd·(g - Σg/n - x̂·Σ(g·x̂)/n).
func backBatchNorm(nd *node, g *Tensor, out []*Tensor, dims []int, training bool, count float64) error {
	xhat, scale := nd.val(0), nd.val(1)
	sumG, err := Sum(g, dims, true)
	if err != nil {
		return err
	}
	sumGX, err := chain(g).mul(xhat).then(func(t *Tensor) (*Tensor, error) { return Sum(t, dims, true) }).end()
	if err != nil {
		return err
	}
	if nd.needs(1) {
		if out[1], err = Reshape(sumGX, nd.in[1].shape()); err != nil {
			return err
		}
	}
	if nd.needs(2) {
		if out[2], err = Reshape(sumG, nd.in[2].shape()); err != nil {
			return err
		}
	}
	if !nd.needs(0) {
		return nil
	}
	if !training {
		out[0], err = Mul(g, scale)
		return err
	}
	n := Float(count)
	pull, err := chain(sumGX).scalar(OpDiv, n).mul(xhat).end()
	if err != nil {
		return err
	}
	shift, err := chain(sumG).scalar(OpDiv, n).end()
	if err != nil {
		return err
	}
	out[0], err = chain(g).binary(OpSub, shift).binary(OpSub, pull).mul(scale).end()
	return err
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
