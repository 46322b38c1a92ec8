package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/std"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// functionalMethods are nn.functional: layers, activations and losses as functions.
var functionalMethods = &starlib.Methods{
	Type: "functional",
	Doc:  "Layers, activations and losses as functions of tensors, as torch.nn.functional has them: names, arguments, their order and defaults are PyTorch's. Each gives the bits of its module.",
	Defs: []*starlib.Def{
		computed("linear(input: Tensor, weight: Tensor, bias: Tensor = None)", "input·weightᵀ + bias over the last dimension, as nn.linear.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.Linear(x, startensor.Arg(c, "weight"), startensor.Optional(c, "bias"))
		}),
		convolved(1), convolved(2), convolved(3),
		computed("conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor = None, stride: int | tuple | list = 1, padding: int | tuple | list = 0, output_padding: int | tuple | list = 0, groups: int = 1, dilation: int | tuple | list = 1)",
			"A transposed convolution of images, as nn.conv_transpose2d; weight has shape (i, o/groups, kh, kw).", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
				o := tensor.ConvOptions{Stride: [2]int(spread(c, "stride", 2, 1)), Padding: [2]int(spread(c, "padding", 2, 0)), OutputPadding: [2]int(spread(c, "output_padding", 2, 0)),
					Dilation: [2]int(spread(c, "dilation", 2, 1)), Groups: c.Int("groups")}
				return batched(x, 3, func(x *tensor.Tensor) (*tensor.Tensor, error) {
					return tensor.ConvTranspose2d(x, startensor.Arg(c, "weight"), startensor.Optional(c, "bias"), o)
				})
			}),
		adapted("adaptive_avg_pool", 1), adapted("adaptive_avg_pool", 2), adapted("adaptive_avg_pool", 3),
		computed("embedding(input: Tensor, weight: Tensor, padding_idx: int = None)", "The rows of weight (n, dim) at input: (…) to (…, dim). Row padding_idx gets no gradient.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			weight, padding := startensor.Arg(c, "weight"), -1
			if !c.IsNone("padding_idx") {
				padding = paddingIndex(c, try.To(tensor.Size(weight, 0)))
			}
			return embedded(weight, x, padding)
		}),
		computed("layer_norm(input: Tensor, normalized_shape: int | tuple | list, weight: Tensor = None, bias: Tensor = None, eps: number = 1e-5)", "Normalizes the last dimensions, of normalized_shape, as nn.layer_norm.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.LayerNorm(x, startensor.Optional(c, "weight"), startensor.Optional(c, "bias"), len(trailing(c, x)), c.Float("eps"))
		}),
		computed("rms_norm(input: Tensor, normalized_shape: int | tuple | list, weight: Tensor = None, eps: number = None)", "Divides the last dimensions, of normalized_shape, by their root mean square, as nn.rms_norm. eps is the type's rounding by default.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			weight, eps := startensor.Optional(c, "weight"), 0x1p-23
			if x.DType() == dtype.Float64 {
				eps = 0x1p-52
			}
			if !c.IsNone("eps") {
				eps = c.Float("eps")
			}
			shape := trailing(c, x)
			if len(shape) == 1 && weight != nil {
				return tensor.RMSNorm(x, weight, eps)
			}
			first := x.Dim() - len(shape)
			flat := try.To(tensor.Flatten(x, first, -1))
			if weight == nil {
				weight = try.To(tensor.Ones(x.Context(), flat.Shape()[first:], x.DType()))
			} else {
				weight = try.To(tensor.Flatten(weight, 0, -1))
			}
			out := try.To(tensor.RMSNorm(flat, weight, eps))
			return tensor.Reshape(out, x.Shape())
		}),
		computed("group_norm(input: Tensor, num_groups: int, weight: Tensor = None, bias: Tensor = None, eps: number = 1e-5)", "Normalizes each of the groups of channels of (n, channels, …), as nn.group_norm.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.GroupNorm("group_norm", x, startensor.Optional(c, "weight"), startensor.Optional(c, "bias"), c.Int("num_groups"), c.Float("eps"))
		}),
		computed("batch_norm(input: Tensor, running_mean: Tensor = None, running_var: Tensor = None, weight: Tensor = None, bias: Tensor = None, training: bool = False, momentum: number = 0.1, eps: number = 1e-5)",
			"Normalizes each channel of (n, channels, …), with the batch's statistics in training, which move the running ones, or else with these.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
				mean, variance, training := startensor.Optional(c, "running_mean"), startensor.Optional(c, "running_var"), c.Bool("training")
				try.FailIf((mean == nil) != (variance == nil), "running_mean and running_var come together")
				try.FailIf(mean == nil && !training, "running_mean and running_var are needed unless it is training")
				if mean == nil {
					n := try.To(tensor.Size(x, 1))
					mean, variance = try.To(tensor.Zeros(x.Context(), []int{n}, x.DType())), try.To(tensor.Ones(x.Context(), []int{n}, x.DType()))
				}
				return tensor.BatchNorm(x, startensor.Optional(c, "weight"), startensor.Optional(c, "bias"), mean, variance, training, c.Float("momentum"), c.Float("eps"))
			}),
		computed(`gelu(input: Tensor, approximate: string = "none")`, "As nn.gelu.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			switch c.String("approximate") {
			case "none":
				return tensor.Unary(tensor.OpGelu, x)
			case "tanh":
				return tensor.GeluTanh(x)
			}
			return nil, fmt.Errorf(`approximate = %s: want "none" or "tanh"`, c.Arg("approximate"))
		}),
		computed("leaky_relu(input: Tensor, negative_slope: number = 0.01)", "As nn.leaky_relu.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.LeakyRelu(x, c.Float("negative_slope"))
		}),
		computed("elu(input: Tensor, alpha: number = 1.0)", "As nn.elu.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.Elu(x, c.Float("alpha"))
		}),
		computed("softplus(input: Tensor, beta: number = 1, threshold: number = 20)", "As nn.softplus.", func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.Softplus(x, c.Float("beta"), c.Float("threshold"))
		}),
		computed("mish(input: Tensor)", "As nn.mish.", func(_ *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Mish(x) }),
		{Sig: "dropout(input: Tensor, p: number = 0.5, training: bool = True) -> Tensor",
			Doc: "In training, zeroes elements with probability p and scales the others by 1/(1 - p). Each rank draws its own mask.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				x, p := startensor.Arg(c, "input"), probability(c, "p")
				if !c.Bool("training") || p == 0 {
					return c.Arg("input"), nil
				}
				return startensor.Result(tensor.Dropout(x, p, c.Recv.(inner).k.streams.PerRank.Stream))
			}},
	},
	More: func() []*starlib.Def { return std.Defs("functional") },
}

// computed declares a function of a tensor, its first parameter.
func computed(sig, doc string, fn func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{Sig: sig + " -> Tensor", Doc: doc, TopLevel: true, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return startensor.Result(fn(c, startensor.Arg(c, "input")))
	}}
}

// batched computes what takes a batch for a single sample of n dimensions, too.
func batched(x *tensor.Tensor, n int, fn func(*tensor.Tensor) (*tensor.Tensor, error)) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	if x.Dim() != n {
		return fn(x)
	}
	out := try.To(fn(try.To(tensor.Unsqueeze(x, 0))))
	return tensor.Squeeze(out, 0)
}

func convolved(n int) *starlib.Def {
	name, kernel := fmt.Sprintf("conv%dd", n), []string{"k", "kh, kw", "kd, kh, kw"}[n-1]
	return computed(name+"(input: Tensor, weight: Tensor, bias: Tensor = None, stride: int | tuple | list = 1, padding: int | tuple | list | string = 0, dilation: int | tuple | list = 1, groups: int = 1)",
		fmt.Sprintf("A convolution, as nn.%s; weight has shape (o, i/groups, %s). padding may be \"same\" or \"valid\".", name, kernel), func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
			weight, bias := startensor.Arg(c, "weight"), startensor.Optional(c, "bias")
			stride, dilation, groups := spread(c, "stride", n, 1), spread(c, "dilation", n, 1), c.Int("groups")
			try.FailIf(weight.Dim() != n+2, "weight has shape %s: want %d dimensions", startensor.Shape(weight), n+2)
			try.FailIf(groups < 1, "groups = %d: want at least 1", groups)
			pads := make([][2]int, n)
			switch p, named := starlark.AsString(c.Arg("padding")); {
			case named && p == "same":
				for i, s := range stride {
					try.FailIf(s != 1, `padding = "same" needs a stride of 1`)
					all := dilation[i] * (weight.Shape()[2+i] - 1)
					pads[i] = [2]int{all / 2, all - all/2}
				}
			case named:
				try.FailIf(p != "valid", `padding = %s: want a number, "same" or "valid"`, c.Arg("padding"))
			default:
				for i, p := range spread(c, "padding", n, 0) {
					pads[i] = [2]int{p, p}
				}
			}
			return batched(x, n+1, func(x *tensor.Tensor) (*tensor.Tensor, error) {
				return convolve(n, x, weight, bias, stride, pads, dilation, groups)
			})
		})
}

// convolve pads where the sides differ, and convolves.
func convolve(n int, x, weight, bias *tensor.Tensor, stride []int, pads [][2]int, dilation []int, groups int) (*tensor.Tensor, error) {
	padding, uneven := make([]int, n), make([]int, 2*n)
	for i, p := range pads {
		padding[i] = min(p[0], p[1])
		uneven[2*(n-1-i)], uneven[2*(n-1-i)+1] = p[0]-padding[i], p[1]-padding[i]
	}
	for _, p := range uneven {
		if p != 0 {
			x = try.To(tensor.Pad(x, uneven, tensor.Int(0)))
			break
		}
	}
	switch n {
	case 1:
		return tensor.Conv1d(x, weight, bias, stride[0], padding[0], dilation[0], groups)
	case 2:
		return tensor.Convolve("conv2d", x, weight, bias, tensor.ConvOptions{Stride: [2]int(stride), Padding: [2]int(padding), Dilation: [2]int(dilation), Groups: groups})
	}
	return tensor.Conv3d(x, weight, bias, [3]int(stride), [3]int(padding), [3]int(dilation), groups)
}

// trailing returns normalized_shape, which must be x's last dimensions.
func trailing(c *starlib.Call, x *tensor.Tensor) []int {
	shape := sizes(c.Arg("normalized_shape"))
	first := x.Dim() - len(shape)
	try.FailIf(first < 0 || !slices.Equal(x.Shape()[max(first, 0):], shape), "normalized_shape = %s is not the end of the input's shape %s", c.Arg("normalized_shape"), startensor.Shape(x))
	return shape
}

func adapted(kind string, n int) *starlib.Def {
	name := fmt.Sprintf("%s%dd", kind, n)
	return &starlib.Def{Sig: name + "(input: Tensor, output_size: int | tuple | list) -> Tensor", TopLevel: true,
		Doc: "The mean of each of output_size parts of each dimension; None keeps a dimension.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			x := startensor.Arg(c, "input")
			sizes := make([]int, n)
			for i := range sizes {
				switch v := c.Arg("output_size").(type) {
				case starlark.Indexable:
					try.FailIf(v.Len() != n, "output_size: want %d numbers, got %d", n, v.Len())
					if size, is := v.Index(i).(starlark.Int); is {
						s, ok := size.Int64()
						try.FailIf(!ok || s < 1, "output_size: %s is not a size", size)
						sizes[i] = int(s)
					} else {
						sizes[i] = try.To(tensor.Size(x, i-n))
					}
				default:
					sizes[i] = c.Int("output_size")
				}
			}
			return startensor.Result(batched(x, n+1, func(x *tensor.Tensor) (*tensor.Tensor, error) { return tensor.AdaptivePool(kind, x, sizes, false) }))
		}}
}
