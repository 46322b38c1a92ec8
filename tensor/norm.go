package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
)

// LayerNorm normalises over the last dims dimensions: (x - mean) / sqrt(var
// + eps), times weight, plus bias; these have the shape of those dimensions
// and may be nil.
func LayerNorm(x, weight, bias *Tensor, dims int, eps float64) (*Tensor, error) {
	return normRows("layer_norm", x, weight, bias, dims, eps, true)
}

// RMSNorm divides by the root of the mean square over the last dimension and multiplies by weight, which may be nil.
func RMSNorm(x, weight *Tensor, eps float64) (*Tensor, error) {
	return normRows("rms_norm", x, weight, nil, 1, eps, false)
}

func normRows(op string, x, weight, bias *Tensor, dims int, eps float64, center bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x, weight, bias) {
		return precise(func(t []*Tensor) (*Tensor, error) { return normRows(op, t[0], t[1], t[2], dims, eps, center) }, x, weight, bias)
	}
	try.Ok(sameFloat(op, x, weight, bias))
	if dims < 1 || dims > len(x.shape) {
		return nil, fmt.Errorf("%s: an input of shape %s has no %d dimensions to normalise", op, ShapeString(x.shape), dims)
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
	if !out.shapeOnly() {
		kernel.LayerNorm(x.dtype, rows, n, eps, out.ptr(), ptrOr(mean), rstd.ptr(), in.ptr(), ptrOr(gamma), ptrOr(beta))
	}
	alive(in, gamma, beta)
	if recordsAny(x, weight, bias) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			return backNormRows(nd, g, out, rows, n)
		}, x, weight, bias).save(in, gamma, mean, rstd)
	}
	for _, t := range []*Tensor{mean, rstd} {
		if t != nil {
			Discard(t)
		}
	}
	return out, nil
}

func backNormRows(nd *node, g *Tensor, out []*Tensor, rows, n int) error {
	x, gamma, mean, rstd := nd.val(0), nd.val(1), nd.val(2), nd.val(3)
	dx := nd.pending(0, g)
	add := dx != nil
	out[0] = dx
	dy, dgamma, dbeta := try.To3(nd.layerGrads(g, out))
	if dx = out[0]; add {
		out[0] = nil // it is where it belongs
	}
	kernel.LayerNormGrad(g.dtype, rows, n, add, ptrOr(dx), ptrOr(dgamma), ptrOr(dbeta), dy.ptr(), x.ptr(),
		ptrOr(gamma), ptrOr(mean), rstd.ptr())
	alive(dx, dy)
	return nil
}
