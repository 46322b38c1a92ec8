package tensor

import "drun/kernel"

// activate applies a function with parameters a and b to each element.
func activate(op string, f kernel.Activation, x *Tensor, a, b float64) (*Tensor, error) {
	if half(x) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return activate(op, f, t[0], a, b) }, x)
	}
	if err := needFloat(op, x); err != nil {
		return nil, err
	}
	made := build(op, x)
	in, out := made.contiguous(x), made.like(x.shape...)
	if made.err != nil {
		return nil, made.err
	}
	if !out.shapeOnly() {
		kernel.Activate(x.dtype, f, x.n, a, b, out.ptr(), in.ptr(), nil)
	}
	alive(in)
	if records(x, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			made := build(op, g)
			dy, x := made.contiguous(g), n.val(0)
			if out[0] = made.like(x.shape...); made.err == nil {
				kernel.Activate(g.dtype, f, x.n, a, b, out[0].ptr(), x.ptr(), dy.ptr())
			}
			alive(dy)
			return made.err
		}, x).save(in)
	}
	return out, nil
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
