package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// convolutions are layers over sequences, images and volumes: convolutions, pooling, normalization, resizing.
func (k *maker) convolutions() []*starlib.Def {
	conv := func(n int, size, shapes string) *starlib.Def {
		name := fmt.Sprintf("conv%dd", n)
		return &starlib.Def{
			Sig: name + "(i: int, o: int, kernel: " + size + ", stride: " + size + " = 1, padding: " + size + ` | string = 0, bias: bool = True, dilation: ` + size + ` = 1, groups: int = 1, padding_mode: string = "zeros") -> Module`,
			Doc: shapes + ` dilation is the distance between a kernel's cells; groups divides the channels into groups that are convolved separately (weight then has i/groups). padding is a number, for both sides, "same" for an output of the input's size (the stride must be 1), or "valid" for none. padding_mode is "zeros", "reflect" (mirrored at the edge), "replicate" (the edge repeated) or "circular".`,
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return k.conv(c, name, n) },
		}
	}
	adaptive := func(kind string, n int, largest bool, doc string) *starlib.Def {
		return &starlib.Def{Sig: kind + "(size: int | tuple | list) -> Module", Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
			want := spread(c, "size", n, 1)
			return k.make(kind, c.Arg("size").String(), nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
				return tensor.AdaptivePool(kind, x, want, largest)
			}), nil
		}}
	}
	const elements = " size is one number, or one for each dimension; element j covers the input's elements from ⌊j·in/size⌋ up to, but not including, ⌈(j+1)·in/size⌉."
	return []*starlib.Def{
		conv(1, "int | tuple", "A convolution of sequences: (n, i, l) to (n, o, l'). weight has shape (o, i, k), bias (o,)."),
		conv(2, "int | tuple", "A convolution of images: (n, i, h, w) to (n, o, h', w'). weight has shape (o, i, kh, kw), bias (o,)."),
		conv(3, "int | tuple", "A convolution of volumes: (n, i, d, h, w) to (n, o, d', h', w'). weight has shape (o, i, kd, kh, kw), bias (o,)."),
		{
			Sig: "conv_transpose2d(i: int, o: int, kernel: int | tuple, stride: int | tuple = 1, padding: int | tuple = 0, output_padding: int | tuple = 0, groups: int = 1, bias: bool = True, dilation: int | tuple = 1) -> Module",
			Doc: "A transposed convolution of images, whose strides spread the input: (n, i, h, w) to (n, o, h', w') with h' = (h - 1)·stride - 2·padding + dilation·(kernel - 1) + output_padding + 1. weight has shape (i, o/groups, kh, kw), bias (o,).",
			Fn:  k.convTranspose2d,
		},
		{Sig: "group_norm(groups: int, channels: int, eps: number = 1e-5, affine: bool = True) -> Module",
			Doc: "Normalizes each of the groups of channels, dimension 1 of (n, channels, …), of every sample to mean 0 and variance 1 (Wu, He 2018), then scales each channel by weight and adds bias, unless affine = False. groups must divide channels.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				groups, n := size(c, "groups"), size(c, "channels")
				try.FailIf(n%groups != 0, "%d groups do not divide %d channels", groups, n)
				return k.groupNorm("group_norm", fmt.Sprintf("%d, %d", groups, n), groups, n, c.Float("eps"), c.Bool("affine")), nil
			}},
		{
			Sig: "instance_norm(channels: int, eps: number = 1e-5, affine: bool = False, momentum: number = 0.1, track_running_stats: bool = False) -> Module",
			Doc: "Normalizes each channel, dimension 1 of (n, channels, …), of every sample to mean 0 and variance 1 (Ulyanov et al. 2016); with affine, then scales it by weight and adds bias. With track_running_stats, training moves the buffers running_mean and running_var by momentum towards the means of the samples' statistics, and evaluation normalizes with them; otherwise training and evaluation are the same.",
			Fn:  k.instanceNorm,
		},
		{Sig: "max_pool1d(kernel: int, stride: int = None, padding: int = 0, dilation: int = 1, return_indices: bool = False, ceil_mode: bool = False) -> Module", Fn: k.pool("max_pool1d", 1, tensor.MaxPool2d, "dilation", "ceil_mode", "return_indices"),
			Doc: "The maximum of each window of (n, c, l); stride defaults to the kernel size. The last three as in nn.functional.max_pool1d."},
		{Sig: "avg_pool1d(kernel: int, stride: int = None, padding: int = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> Module", Fn: k.pool("avg_pool1d", 1, tensor.AvgPool2d, "ceil_mode", "count_include_pad"),
			Doc: "The mean of each window of (n, c, l); stride defaults to the kernel size. The last two as in nn.functional.avg_pool1d."},
		adaptive("adaptive_avg_pool1d", 1, false, "Means over (n, c, l) that give an output (n, c, size)."+elements),
		adaptive("adaptive_avg_pool2d", 2, false, "Means over (n, c, h, w) that give an output of the given size."+elements),
		adaptive("adaptive_max_pool1d", 1, true, "Maxima over (n, c, l) that give an output (n, c, size)."+elements),
		adaptive("adaptive_max_pool2d", 2, true, "Maxima over (n, c, h, w) that give an output of the given size."+elements),
		{Sig: `upsample(size: int | tuple | list = None, scale_factor: number | tuple | list = None, mode: string = "nearest", align_corners: bool = False) -> Module`,
			Doc: "nn.interpolate with these settings, as a layer.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				resize := try.To(resizer(c))
				return k.make("upsample", c.String("mode"), nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) { return resize(x) }), nil
			}},
		{Sig: `interpolate(x: Tensor, size: int | tuple | list = None, scale_factor: number | tuple | list = None, mode: string = "nearest", align_corners: bool = False) -> Tensor`,
			Doc: `Resizes the dimensions after the first two of (n, c, l), (n, c, h, w) or (n, c, d, h, w): to size, or by scale_factor, rounded down. mode is "nearest"; "linear", "bilinear" or "trilinear" for linear interpolation in 1, 2 or 3 dimensions; or "bicubic" for cubic interpolation in 2 (with PyTorch's coefficient, -0.75; the result may go beyond the input's range). align_corners aligns the corner elements of input and output. Positions are computed as in PyTorch.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				resize := try.To(resizer(c))
				return startensor.Result(resize(startensor.Arg(c, "x")))
			}},
	}
}

func (k *maker) conv(c *starlib.Call, name string, n int) (starlark.Value, error) {
	in, out, groups := size(c, "i"), size(c, "o"), size(c, "groups")
	try.FailIf(in%groups != 0 || out%groups != 0, "%d groups do not divide %d and %d channels", groups, in, out)
	kernel, stride, dilation := spread(c, "kernel", n, 1), spread(c, "stride", n, 1), spread(c, "dilation", n, 1)
	mode := c.String("padding_mode")
	try.FailIf(!slices.Contains([]string{"zeros", "reflect", "replicate", "circular"}, mode), `padding_mode = %s: want "zeros", "reflect", "replicate" or "circular"`, c.Arg("padding_mode"))
	pads := make([][2]int, n)
	switch v := c.Arg("padding").(type) {
	case starlark.String:
		switch {
		case v == "valid":
		case v != "same":
			return nil, fmt.Errorf(`padding = %s: want numbers, "same" or "valid"`, v)
		case slices.Max(stride) > 1:
			return nil, fmt.Errorf(`padding = "same" needs a stride of 1, not %s`, c.Arg("stride"))
		default:
			for i := range pads {
				try.FailIf(dilation[i] > 1<<40/kernel[i], "dilation = %s is too large", c.Arg("dilation"))
				all := dilation[i] * (kernel[i] - 1)
				pads[i] = [2]int{all / 2, all - all/2}
			}
		}
	default:
		for i, p := range spread(c, "padding", n, 0) {
			pads[i] = [2]int{p, p}
		}
	}
	weight, bias := k.affine(append([]int{out, in / groups}, kernel...), c.Bool("bias"))
	m := k.make(name, fmt.Sprintf("%d, %d, kernel = %s", in, out, numbers(kernel)), weights(weight, bias), func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		own := make([]int, n) // what the convolution itself pads: equally many zeros on both sides
		outside := make([][2]int, n)
		var ahead bool
		for i, p := range pads {
			if mode == "zeros" {
				own[i] = min(p[0], p[1])
			}
			outside[i] = [2]int{p[0] - own[i], p[1] - own[i]}
			ahead = ahead || outside[i] != [2]int{}
		}
		var err error
		switch {
		case ahead && x.Dim() != n+2:
			return nil, fmt.Errorf("%s: needs an input of %d dimensions, not shape %s", name, n+2, startensor.Shape(x))
		case ahead && mode == "zeros":
			var flat []int
			for _, p := range slices.Backward(outside) {
				flat = append(flat, p[0], p[1])
			}
			x, err = tensor.Pad(x, flat, tensor.Int(0))
		case ahead:
			x, err = tensor.PadMode(name, x, outside, mode)
		}
		if err != nil {
			return nil, try.As(name, err)
		}
		switch n {
		case 1:
			return tensor.Conv1d(x, m.own(0), m.own(1), stride[0], own[0], dilation[0], groups)
		case 3:
			return tensor.Conv3d(x, m.own(0), m.own(1), [3]int(stride), [3]int(own), [3]int(dilation), groups)
		}
		return tensor.Convolve(name, x, m.own(0), m.own(1), tensor.ConvOptions{Stride: [2]int(stride), Padding: [2]int(own), Dilation: [2]int(dilation), Groups: groups})
	})
	if n == 2 && mode == "zeros" && pads[0][0] == pads[0][1] && pads[1][0] == pads[1][1] {
		options := tensor.ConvOptions{Stride: [2]int(stride), Padding: [2]int{pads[0][0], pads[1][0]}, Dilation: [2]int(dilation), Groups: groups}
		m.with = func(x *tensor.Tensor, p maxima) (*tensor.Tensor, error) {
			return tensor.ConvolvePooled(x, m.own(0), m.own(1), options, p.size, p.stride, p.padding)
		}
	}
	return m, nil
}

func (k *maker) convTranspose2d(c *starlib.Call) (starlark.Value, error) {
	in, out, groups := size(c, "i"), size(c, "o"), size(c, "groups")
	try.FailIf(in%groups != 0 || out%groups != 0, "%d groups do not divide %d and %d channels", groups, in, out)
	pair := func(name string, least int) [2]int { return [2]int(spread(c, name, 2, least)) }
	kernel := pair("kernel", 1)
	o := tensor.ConvOptions{Stride: pair("stride", 1), Padding: pair("padding", 0), Dilation: pair("dilation", 1), Groups: groups, OutputPadding: pair("output_padding", 0)}
	for i := range 2 {
		try.FailIf(o.OutputPadding[i] >= max(o.Stride[i], o.Dilation[i]), "output_padding = %s: want less than the larger of stride and dilation", c.Arg("output_padding"))
	}
	weight := k.full("weight", []int{in, out / groups, kernel[0], kernel[1]}, 0)
	var bias *tensor.Tensor
	if c.Bool("bias") {
		bias = k.full("bias", []int{out}, 0)
	}
	try.Ok(k.streams.Shared.Stream.InitLinear(weight, bias))
	return k.make("conv_transpose2d", fmt.Sprintf("%d, %d, kernel = %s", in, out, numbers(kernel[:])), weights(weight, bias), func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.ConvTranspose2d(x, m.own(0), m.own(1), o)
	}), nil
}

func (k *maker) groupNorm(kind, detail string, groups, channels int, eps float64, affine bool) *Model {
	var weight, bias *tensor.Tensor
	if affine {
		weight, bias = k.full("weight", []int{channels}, 1), k.full("bias", []int{channels}, 0)
	}
	return k.make(kind, detail, weights(weight, bias), func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		if x.Dim() < 2 || x.Shape()[1] != channels {
			return nil, fmt.Errorf("%s: an input of shape %s does not fit %d channels: expected (N, %d, …)", kind, startensor.Shape(x), channels, channels)
		}
		if kind == "instance_norm" && x.Len() == x.Shape()[0]*channels && x.Len() > 0 {
			return nil, fmt.Errorf("%s: the statistics of a sample's channel need more than one value, not an input of shape %s", kind, startensor.Shape(x))
		}
		return tensor.GroupNorm(kind, x, m.own(0), m.own(1), groups, eps)
	})
}

func (k *maker) instanceNorm(c *starlib.Call) (starlark.Value, error) {
	n, eps, momentum := size(c, "channels"), c.Float("eps"), c.Float("momentum")
	m := k.groupNorm("instance_norm", fmt.Sprint(n), n, n, eps, c.Bool("affine"))
	if !c.Bool("track_running_stats") {
		return m, nil
	}
	mean, variance := k.full("running_mean", []int{n}, 0), k.full("running_var", []int{n}, 1)
	return k.make("instance_norm", fmt.Sprint(n), append(m.fields, kept("running_mean", mean), kept("running_var", variance)), func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		if !m.training {
			y, err := tensor.BatchNorm(x, m.own(0), m.own(1), m.own(2), m.own(3), false, momentum, eps)
			return y, try.As("instance_norm", err)
		}
		return tensor.InstanceNorm(x, m.own(0), m.own(1), m.own(2), m.own(3), momentum, eps)
	}), nil
}

// resizer reads the settings of interpolate, and returns the function that resizes a tensor by them.
func resizer(c *starlib.Call) (func(*tensor.Tensor) (*tensor.Tensor, error), error) {
	mode, align := c.String("mode"), c.Bool("align_corners")
	m, ok := map[string]struct {
		kind string
		dims int // 0: any
	}{"nearest": {"nearest", 0}, "linear": {"linear", 1}, "bilinear": {"linear", 2}, "trilinear": {"linear", 3}, "bicubic": {"cubic", 2}}[mode]
	switch {
	case !ok:
		return nil, fmt.Errorf(`mode = %s: want "nearest", "linear", "bilinear", "trilinear" or "bicubic"`, c.Arg("mode"))
	case align && mode == "nearest":
		return nil, fmt.Errorf(`align_corners is for "linear", "bilinear", "trilinear" and "bicubic"`)
	case c.IsNone("size") == c.IsNone("scale_factor"):
		return nil, fmt.Errorf("want either size or scale_factor")
	}
	given, factors := c.Arg("size"), c.Arg("scale_factor")
	return func(x *tensor.Tensor) (*tensor.Tensor, error) {
		n := x.Dim() - 2
		try.FailIf(n < 1 || n > 3 || m.dims > 0 && n != m.dims, "interpolate: mode %s does not fit an input of shape %s: expected (N, C, …)", mode, startensor.Shape(x))
		var sizes []int
		var scales []float64
		if given != starlark.None {
			var err error
			if sizes, err = spreadOf(given, n, 1); err != nil {
				return nil, fmt.Errorf("interpolate: argument size: %w", err)
			}
		} else {
			list, ok := factors.(starlark.Indexable)
			if !ok {
				list = slices.Repeat(starlark.Tuple{factors}, n)
			}
			try.FailIf(list.Len() != n, "interpolate: want a scale_factor for each of %d dimensions, got %s", n, factors)
			for i := range n {
				f, ok := starlark.AsFloat(list.Index(i))
				try.FailIf(!ok || !(f > 0) || f > 1<<40, "interpolate: scale_factor = %s: want numbers above 0", factors)
				size := float64(x.Shape()[2+i]) * f
				try.FailIf(size >= 1<<50, "interpolate: scale_factor = %s makes too many elements", factors)
				sizes, scales = append(sizes, int(size)), append(scales, f)
			}
		}
		return tensor.Interpolate(x, sizes, scales, m.kind, align)
	}, nil
}
