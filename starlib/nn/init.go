package nn

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

var initMethods = &starlib.Methods{
	Type: "init",
	Doc:  "Initial values: each function fills a tensor in place, without recording gradients, and returns it. Random values come from the stream that all ranks share. Names, defaults and formulas are PyTorch's.",
	Defs: []*starlib.Def{
		filled("uniform_(t: Tensor, a: number = 0, b: number = 1) -> Tensor", "Uniformly distributed values, from a up to, but not including, b.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			return g.Uniform(t, c.Float("a"), c.Float("b"))
		}),
		filled("normal_(t: Tensor, mean: number = 0, std: number = 1) -> Tensor", "Normally distributed values.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			return g.Normal(t, c.Float("mean"), c.Float("std"))
		}),
		filled("trunc_normal_(t: Tensor, mean: number = 0, std: number = 1, a: number = -2, b: number = 2) -> Tensor", "Normally distributed values, redrawn until they are from a to b.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			return g.TruncatedNormal(t, c.Float("mean"), c.Float("std"), c.Float("a"), c.Float("b"))
		}),
		filled("constant_(t: Tensor, val: number) -> Tensor", "All elements val.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			return tensor.FillInPlace(t, tensor.Float(c.Float("val")))
		}),
		filled("ones_(t: Tensor) -> Tensor", "All elements 1.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			return tensor.FillInPlace(t, tensor.Float(1))
		}),
		filled("zeros_(t: Tensor) -> Tensor", "All elements 0.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			return tensor.FillInPlace(t, tensor.Float(0))
		}),
		filled("eye_(t: Tensor) -> Tensor", "1 on the diagonal of a matrix, 0 elsewhere.", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			try.FailIf(t.Dim() != 2, "want a tensor of 2 dimensions, not of shape %s", startensor.Shape(t))
			e := try.To(tensor.Eye(t.Context(), t.Shape()[0], t.Shape()[1], t.DType()))
			return tensor.CopyInto(t.Detach(), e)
		}),
		filled("xavier_uniform_(t: Tensor, gain: number = 1) -> Tensor", "Uniform on ±gain·√(6/(fan_in + fan_out)) (Glorot, Bengio 2010).", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			in, out := try.To2(fans(t))
			bound := c.Float("gain") * math.Sqrt(6/float64(in+out))
			return g.Uniform(t, -bound, bound)
		}),
		filled("xavier_normal_(t: Tensor, gain: number = 1) -> Tensor", "Normal with the standard deviation gain·√(2/(fan_in + fan_out)) (Glorot, Bengio 2010).", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			in, out := try.To2(fans(t))
			return g.Normal(t, 0, c.Float("gain")*math.Sqrt(2/float64(in+out)))
		}),
		filled(`kaiming_uniform_(t: Tensor, a: number = 0, mode: string = "fan_in", nonlinearity: string = "leaky_relu") -> Tensor`, `Uniform on ±gain·√(3/fan) (He et al. 2015); mode is "fan_in" or "fan_out", nonlinearity as for calculate_gain, and a the slope of leaky_relu.`,
			func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
				std := try.To(kaiming(c, t))
				return g.Uniform(t, -math.Sqrt(3)*std, math.Sqrt(3)*std)
			}),
		filled(`kaiming_normal_(t: Tensor, a: number = 0, mode: string = "fan_in", nonlinearity: string = "leaky_relu") -> Tensor`, `Normal with the standard deviation gain/√fan (He et al. 2015); see kaiming_uniform_.`,
			func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
				std := try.To(kaiming(c, t))
				return g.Normal(t, 0, std)
			}),
		filled("orthogonal_(t: Tensor, gain: number = 1) -> Tensor", "A matrix, the first dimension by all others, with orthogonal rows or columns of length gain (Saxe et al. 2013).", func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error {
			try.FailIf(t.Dim() < 2, "want a tensor of at least 2 dimensions, not of shape %s", startensor.Shape(t))
			return g.Orthogonal(t, c.Float("gain"))
		}),
		{Sig: "calculate_gain(nonlinearity: string, param: number = None) -> float",
			Doc: `The factor by which a nonlinearity's weights should be larger: 1 for "linear", "sigmoid" and the convolutions, 5/3 for "tanh", √2 for "relu", √(2/(1 + param²)) for "leaky_relu" (param is 0.01 by default), 3/4 for "selu".`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				slope := 0.01
				if !c.IsNone("param") {
					slope = c.Float("param")
				}
				g, err := gain(c.String("nonlinearity"), slope)
				return starlark.Float(g), err
			}},
	},
}

func filled(sig, doc string, fill func(c *starlib.Call, g *tensor.Generator, t *tensor.Tensor) error) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		k, t := c.Recv.(inner).k, startensor.Arg(c, "t")
		k.ctx.BeginNoGrad()
		defer k.ctx.EndNoGrad()
		try.FailIf(t.Frozen(), "the tensor is frozen, as all values made at top level are; make it in main()")
		return c.Arg("t"), fill(c, k.streams.Shared.Stream, t)
	}}
}

// fans returns how many inputs each output of a weight (out, in, …) has, and how many outputs each input has.
func fans(t *tensor.Tensor) (in, out int, err error) {
	s := t.Shape()
	if len(s) < 2 || t.Len() == 0 {
		return 0, 0, fmt.Errorf("want a weight (out, in, …), not a tensor of shape %s", startensor.Shape(t))
	}
	field := t.Len() / s[0] / s[1]
	return s[1] * field, s[0] * field, nil
}

func kaiming(c *starlib.Call, t *tensor.Tensor) (std float64, err error) {
	in, out := try.To2(fans(t))
	fan := in
	switch c.String("mode") {
	case "fan_in":
	case "fan_out":
		fan = out
	default:
		return 0, fmt.Errorf(`mode = %s: want "fan_in" or "fan_out"`, c.Arg("mode"))
	}
	g, err := gain(c.String("nonlinearity"), c.Float("a"))
	return g / math.Sqrt(float64(fan)), err
}

func gain(nonlinearity string, slope float64) (float64, error) {
	switch nonlinearity {
	case "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "sigmoid":
		return 1, nil
	case "tanh":
		return 5.0 / 3, nil
	case "relu":
		return math.Sqrt2, nil
	case "leaky_relu":
		return math.Sqrt(2 / (1 + float64(slope*slope))), nil
	case "selu":
		return 0.75, nil
	}
	return 0, fmt.Errorf(`nonlinearity = %q: want "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "sigmoid", "tanh", "relu", "leaky_relu" or "selu"`, nonlinearity)
}
