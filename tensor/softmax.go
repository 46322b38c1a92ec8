package tensor

import (
	"drun/internal/try"
	"drun/kernel"
)

// Softmax is exp(x) divided by its sum along dim.
func Softmax(t *Tensor, dim int) (*Tensor, error) { return softmax("softmax", t, dim, false) }

// LogSoftmax is the logarithm of Softmax, computed without overflow.
func LogSoftmax(t *Tensor, dim int) (*Tensor, error) { return softmax("log_softmax", t, dim, true) }

func softmax(op string, t *Tensor, dim int, logarithm bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return softmax(op, t[0], dim, logarithm) }, t)
	}
	try.Ok(NeedFloat(op, t))
	a := try.To(Axis(op, dim, len(t.shape)))
	if last := len(t.shape) - 1; len(t.shape) > 0 && a != last {
		moved := try.To(Transpose(t, a, last))
		out := try.To(softmax(op, moved, last, logarithm))
		return Transpose(out, a, last)
	}
	b := build(op, t)
	x, out := b.contiguous(t), b.like(t.shape...)
	rows, n := matrixSize(t)
	if !out.shapeOnly() {
		kernel.Softmax(t.dtype, logarithm, rows, n, out.ptr(), x.ptr())
	}
	alive(x)
	if records(t, nil) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			b := build(op, g)
			dy := b.contiguous(g)
			out[0] = b.like(g.shape...)
			kernel.SoftmaxGrad(g.dtype, logarithm, rows, n, out[0].ptr(), dy.ptr(), nd.val(0).ptr())
			alive(dy)
			return nil
		}, t).save(out)
	}
	return out, nil
}

// matrixSize views t as rows of its last dimension.
func matrixSize(t *Tensor) (rows, n int) {
	if len(t.shape) == 0 {
		return 1, 1
	}
	n = t.shape[len(t.shape)-1]
	if n == 0 {
		return 0, 0
	}
	return t.n / n, n
}
