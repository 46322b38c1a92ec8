package nn

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"
)

// activations are the layers that compute elementwise, or along one dimension.
func (k *maker) activations() []*starlib.Def {
	finite := func(c *starlib.Call, name string) float64 {
		v := c.Float(name)
		try.FailIf(math.IsInf(v, 0) || math.IsNaN(v), "%s = %v: want a finite number", name, v)
		return v
	}
	layer := func(sig, doc string, build func(c *starlib.Call) (detail string, fn func(*tensor.Tensor) (*tensor.Tensor, error))) *starlib.Def {
		d := &starlib.Def{Sig: sig + " -> Module", Doc: doc}
		d.Fn = func(c *starlib.Call) (starlark.Value, error) {
			detail, fn := build(c)
			return k.make(d.Name(), detail, nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) { return fn(x) }), nil
		}
		return d
	}
	type fn = func(*tensor.Tensor) (*tensor.Tensor, error)
	unary := func(op tensor.UnaryOp) func(*starlib.Call) (string, fn) {
		return func(*starlib.Call) (string, fn) {
			return "", func(x *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Unary(op, x) }
		}
	}
	along := func(f func(*tensor.Tensor, int) (*tensor.Tensor, error)) func(*starlib.Call) (string, fn) {
		return func(c *starlib.Call) (string, fn) {
			dim := c.Int("dim")
			return fmt.Sprint(dim), func(x *tensor.Tensor) (*tensor.Tensor, error) { return f(x, dim) }
		}
	}
	return []*starlib.Def{
		layer("relu()", "max(x, 0).", unary(tensor.OpRelu)),
		layer(`gelu(approximate: string = "none")`, `x·Φ(x) where Φ is the exact normal distribution function; approximate = "tanh" approximates it as 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) (Hendrycks, Gimpel 2016).`,
			func(c *starlib.Call) (string, fn) {
				switch c.String("approximate") {
				case "none":
					return unary(tensor.OpGelu)(c)
				case "tanh":
					return `approximate = "tanh"`, tensor.GeluTanh
				}
				return try.To("", fmt.Errorf(`approximate = %s: want "none" or "tanh"`, c.Arg("approximate"))), nil
			}),
		layer("silu()", "x·sigmoid(x).", unary(tensor.OpSilu)),
		layer("tanh()", "The hyperbolic tangent.", unary(tensor.OpTanh)),
		layer("sigmoid()", "1 / (1 + exp(-x)).", unary(tensor.OpSigmoid)),
		layer("leaky_relu(negative_slope: number = 0.01)", "x where x is above 0, and negative_slope·x elsewhere.", func(c *starlib.Call) (string, fn) {
			slope := finite(c, "negative_slope")
			return fmt.Sprint(slope), func(x *tensor.Tensor) (*tensor.Tensor, error) { return tensor.LeakyRelu(x, slope) }
		}),
		layer("elu(alpha: number = 1.0)", "x where x is above 0, and alpha·(eˣ - 1) elsewhere (Clevert et al. 2016).", func(c *starlib.Call) (string, fn) {
			alpha := finite(c, "alpha")
			return fmt.Sprint(alpha), func(x *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Elu(x, alpha) }
		}),
		layer("softplus(beta: number = 1.0, threshold: number = 20.0)", "log(1 + exp(beta·x))/beta, and x itself where beta·x is above threshold.", func(c *starlib.Call) (string, fn) {
			beta, threshold := finite(c, "beta"), finite(c, "threshold")
			try.FailIf(beta == 0, "beta = 0: want a number other than 0")
			return fmt.Sprintf("%v, %v", beta, threshold), func(x *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Softplus(x, beta, threshold) }
		}),
		layer("mish()", "x·tanh(log(1 + eˣ)) (Misra 2020).", func(*starlib.Call) (string, fn) { return "", tensor.Mish }),
		layer("softmax(dim: int)", "exp(x) divided by its sum along a dimension.", along(tensor.Softmax)),
		layer("log_softmax(dim: int)", "The logarithm of softmax along a dimension.", along(tensor.LogSoftmax)),
	}
}
