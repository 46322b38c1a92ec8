package tensor

import (
	"math"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// ConvolvePooled is MaxPool2d of Convolve, bit for bit, at less cost: the intermediate results, and their gradients, never
// leave the processor's caches. It returns nil if the two have to be called separately: for arguments that one of them
// refuses, for groups, for bfloat16, and if operations are watched or fusion is off (DRUN_PLAN=off).
func ConvolvePooled(x, weight, bias *Tensor, o ConvOptions, size, stride, padding [2]int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "conv2d"
	c := x.ctx
	if c == nil || c.spares.off || c.Watch != nil || o.Groups != 1 || half(x) || lowProduct(x, weight, bias) {
		return nil, nil
	}
	w, err := convolution(op, x, weight, bias, o)
	if err != nil {
		return nil, nil
	}
	h, v := w.Out()
	pool, err := pooling(op, []int{w.Batch, w.Filters, h, v}, size, stride, padding)
	if err != nil || h*v > math.MaxInt32 {
		return nil, nil
	}
	ph, pv := pool.Out()
	b := build(op, x)
	in, filters, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(w.Batch, w.Filters, ph, pv)
	at := b.of(dtype.Int32, w.Batch, w.Filters, ph, pv) // where the maxima were
	if out.shapeOnly() {
		return out, nil
	}
	err = kernel.Conv2dMaxPool(x.dtype, w, pool, out.ptr(), Elems[int32](at), in.ptr(), filters.ptr(), partOr(beta, 0))
	alive(in, filters, beta)
	if err != nil {
		return nil, Starved(op, err)
	}
	if recordsAny(x, weight, bias) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error { return backConvolvePooled(n, g, out, w) },
			x, weight, bias).save(in, filters, at)
	}
	Discard(at)
	return out, nil
}

func backConvolvePooled(n *node, g *Tensor, out []*Tensor, w kernel.Window) error {
	x, weight, at := n.val(0), n.val(1), Elems[int32](n.val(2))
	dy, dweight, dbias, err := n.layerGrads(g, out)
	if err == nil && n.needs(0) {
		err = kernel.Conv2dPooledGradInput(g.dtype, w, out[0].ptr(), dy.ptr(), at, weight.ptr())
	}
	if err == nil && (n.needs(1) || n.needs(2)) {
		err = kernel.Conv2dPooledGradWeight(g.dtype, w, partOr(dweight, 0), partOr(dbias, 0), dy.ptr(), at, x.ptr())
	}
	alive(dy)
	return Starved(n.op, err)
}
