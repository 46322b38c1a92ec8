package tensor

import (
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
)

// activate applies a function with parameters a and b to each element. For bfloat16 the slope is float32.
func activate(op string, f kernel.Activation, x *Tensor, a, b float64) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if !half(x) {
		try.Ok(NeedFloat(op, x))
	}
	made := build(op, x)
	in, out := made.contiguous(x), made.like(x.shape...)
	var slope *Tensor
	if records(x, nil) {
		slope = made.of(computable(x.dtype), x.shape...)
	}
	if !out.shapeOnly() {
		var to unsafe.Pointer
		if slope != nil {
			to = slope.ptr()
		}
		kernel.Activate(x.dtype, f, x.n, a, b, out.ptr(), to, in.ptr())
	}
	alive(in, out, slope)
	if slope != nil {
		record(out, op, backSlope, x).save(slope)
		Discard(slope)
	}
	return out, nil
}

// backSlope is the gradient of an operation that has saved its slope.
func backSlope(n *node, g *Tensor, out []*Tensor) {
	out[0] = overwrite(n.op, g)
	kBinary(OpMul, out[0], g, n.val(0))
}

// LeakyRelu is x above 0 and slope·x below.
func LeakyRelu(x *Tensor, slope float64) (*Tensor, error) {
	return activate("leaky_relu", kernel.LeakyRelu, x, slope, 0)
}

// Elu is x above 0 and alpha·(e^x - 1) below (Clevert et al. 2016).
func Elu(x *Tensor, alpha float64) (*Tensor, error) {
	return activate("elu", kernel.Elu, x, alpha, 0)
}

// Softplus is log(1 + e^(beta·x))/beta, and x itself where beta·x is above the threshold.
func Softplus(x *Tensor, beta, threshold float64) (*Tensor, error) {
	return activate("softplus", kernel.Softplus, x, beta, threshold)
}

// Mish is x·tanh(softplus(x)) (Misra 2020).
func Mish(x *Tensor) (*Tensor, error) { return activate("mish", kernel.Mish, x, 0, 0) }

// GeluTanh approximates x·Φ(x) by a tanh (Hendrycks and Gimpel 2016).
func GeluTanh(x *Tensor) (*Tensor, error) { return activate("gelu", kernel.GeluTanh, x, 0, 0) }

// Softmax is exp(x) divided by its sum along dim.
func Softmax(t *Tensor, dim int) (*Tensor, error) { return softmax("softmax", t, dim, false) }

// LogSoftmax is the logarithm of Softmax, computed without overflow.
func LogSoftmax(t *Tensor, dim int) (*Tensor, error) { return softmax("log_softmax", t, dim, true) }

func softmax(op string, t *Tensor, dim int, logarithm bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
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
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) {
			b := build(op, g)
			dy := b.contiguous(g)
			out[0] = b.like(g.shape...)
			kernel.SoftmaxGrad(g.dtype, logarithm, rows, n, out[0].ptr(), dy.ptr(), nd.val(0).ptr())
			alive(dy)
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
