package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// maker makes modules for one rank.
type maker struct {
	ctx     *tensor.Context
	streams *random.Streams
}

// make makes a built-in module whose forward takes one tensor.
func (k *maker) make(kind, detail string, fields []field, forward layer) *Model {
	m := k.makeCall(kind, detail, fields, "(x: Tensor) -> Tensor", func(m *Model, c *starlib.Call) (starlark.Value, error) {
		return startensor.Result(forward(m, startensor.Arg(c, "x")))
	})
	m.of = forward
	return m
}

// makeCall makes a built-in module whose calls have this signature.
func (k *maker) makeCall(kind, detail string, fields []field, sig string, forward func(m *Model, c *starlib.Call) (starlark.Value, error)) *Model {
	return builtIn(k.ctx, "nn.", kind, detail, fields, sig, forward)
}

func builtIn(ctx *tensor.Context, module, kind, detail string, fields []field, sig string, forward func(m *Model, c *starlib.Call) (starlark.Value, error)) *Model {
	m := &Model{kind: kind, detail: detail, fields: fields, training: true, layer: true, ctx: ctx}
	call := &starlib.Def{Sig: module + kind + sig, Fn: func(c *starlib.Call) (starlark.Value, error) { return forward(m, c) }}
	m.forward = call.Builtin(nil).(starlark.Callable)
	return m
}

// own returns the parameter or buffer in field i, or nil. Layers read theirs by it, since functional_call replaces them.
func (m *Model) own(i int) *tensor.Tensor {
	t, _ := m.fields[i].tree.(marked)
	return t.Tensor
}

// trained makes the field of a parameter; t is nil if the layer lacks it.
func trained(name string, t *tensor.Tensor) field {
	if t == nil {
		return field{name, starlark.None, starlark.None}
	}
	v := (*startensor.Value)(t)
	return try.To(field{name, v, marked{t, false}}, t.SetRequiresGrad(true))
}

func kept(name string, t *tensor.Tensor) field {
	return field{name, (*startensor.Value)(t), marked{t, true}}
}

// weights makes the fields weight and bias; bias may be nil.
func weights(weight, bias *tensor.Tensor) []field {
	return []field{trained("weight", weight), trained("bias", bias)}
}

// full makes the tensor of a field, with all elements equal to value.
func (k *maker) full(name string, shape []int, value int64) *tensor.Tensor {
	t, err := tensor.Full(k.ctx, shape, tensor.Int(value), dtype.Float32)
	return try.To(t, try.As(name, err))
}

// affine makes weight and bias of a linear map, drawn from ±1/√fan_in: PyTorch's Kaiming-uniform with a = √5.
func (k *maker) affine(shape []int, withBias bool) (weight, bias *tensor.Tensor) {
	weight = k.full("weight", shape, 0)
	if withBias {
		bias = k.full("bias", shape[:1], 0)
	}
	return weight, try.To(bias, k.streams.Shared.Stream.InitLinear(weight, bias))
}

func (k *maker) linear(c *starlib.Call) (starlark.Value, error) {
	return k.newLinear(size(c, "i"), size(c, "o"), c.Bool("bias")), nil
}

func (k *maker) newLinear(in, out int, withBias bool) *Model {
	weight, bias := k.affine([]int{out, in}, withBias)
	return k.make("linear", fmt.Sprintf("%d, %d", in, out), weights(weight, bias), func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.Linear(x, m.own(0), m.own(1))
	})
}

func (k *maker) embedding(c *starlib.Call) (starlark.Value, error) {
	n, dim := size(c, "n"), size(c, "dim")
	weight, err := k.streams.Shared.Stream.Randn(k.ctx, []int{n, dim}, dtype.Float32)
	try.To(weight, try.As("weight", err))
	text, padding := fmt.Sprintf("%d, %d", n, dim), -1
	if !c.IsNone("padding_idx") {
		padding = paddingIndex(c, n)
		text += fmt.Sprintf(", padding_idx = %d", padding)
		try.Ok(try.To(tensor.Select(weight, 0, padding)).Fill(tensor.Int(0)))
	}
	return k.make("embedding", text, []field{trained("weight", weight)}, func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return embedded(m.own(0), x, padding)
	}), nil
}

func paddingIndex(c *starlib.Call, n int) int {
	padding := c.Int("padding_idx")
	try.FailIf(padding < -n || padding >= n, "argument padding_idx: %d is out of range for %d rows: expected %d to %d", padding, n, -n, n-1)
	return (padding + n) % n
}

// embedded looks up rows of weight. Row padding, if it is not negative, gets no gradient.
func embedded(weight, x *tensor.Tensor, padding int) (*tensor.Tensor, error) {
	out, err := tensor.Embedding(weight, x)
	if err != nil || padding < 0 || !out.RequiresGrad() {
		return out, err
	}
	pads := try.To(tensor.BinaryScalar(tensor.OpEq, x, tensor.Int(int64(padding)), false))
	return tensor.Where(try.To(tensor.Unsqueeze(pads, -1)), out.Detach(), out)
}

func (k *maker) layerNorm(c *starlib.Call) (starlark.Value, error) {
	shape, eps := sizes(c.Arg("dim")), c.Float("eps")
	return k.newLayerNorm(c.Arg("dim").String(), shape, eps, true), nil
}

func (k *maker) newLayerNorm(detail string, shape []int, eps float64, withBias bool) *Model {
	weight, bias := k.full("weight", shape, 1), (*tensor.Tensor)(nil)
	if withBias {
		bias = k.full("bias", shape, 0)
	}
	return k.make("layer_norm", detail, weights(weight, bias), func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.LayerNorm(x, m.own(0), m.own(1), len(shape), eps)
	})
}

func (k *maker) rmsNorm(c *starlib.Call) (starlark.Value, error) {
	dim, eps := size(c, "dim"), c.Float("eps")
	weight := k.full("weight", []int{dim}, 1)
	return k.make("rms_norm", fmt.Sprint(dim), []field{trained("weight", weight)}, func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.RMSNorm(x, m.own(0), eps)
	}), nil
}

func (k *maker) batchNorm(c *starlib.Call) (starlark.Value, error) {
	n, momentum, eps := size(c, "channels"), c.Float("momentum"), c.Float("eps")
	shape := []int{n}
	weight, bias := k.full("weight", shape, 1), k.full("bias", shape, 0)
	mean, variance := k.full("running_mean", shape, 0), k.full("running_var", shape, 1)
	fields := append(weights(weight, bias), kept("running_mean", mean), kept("running_var", variance))
	return k.make("batch_norm", fmt.Sprint(n), fields, func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		if m.training && m.across != nil {
			return tensor.BatchNormAcross(x, m.own(0), m.own(1), m.own(2), m.own(3), momentum, eps, m.across)
		}
		return tensor.BatchNorm(x, m.own(0), m.own(1), m.own(2), m.own(3), m.training, momentum, eps)
	}), nil
}

// Group is what dropout needs to know about a group of ranks.
type Group interface {
	starlark.Value
	Rank() int // negative for a rank that is not a member
	Ranks() []int
}

func (k *maker) dropout(c *starlib.Call) (starlark.Value, error) {
	p := probability(c, "p")
	stream := k.streams.PerRank
	switch g := c.Arg("group").(type) {
	case starlark.NoneType:
	case Group:
		try.FailIf(g.Rank() < 0, "this rank is not a member of the group")
		stream = k.streams.Group(g.Ranks())
	default:
		return nil, fmt.Errorf("argument group: want a group of ranks, got %s", g.Type())
	}
	return k.make("dropout", fmt.Sprint(p), nil, func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		if !m.training || p == 0 {
			return x, nil
		}
		return tensor.Dropout(x, p, stream.Stream)
	}), nil
}

// pool returns the constructor of a pooling layer over sequences (n = 1) or images (n = 2). further are its other parameters, in the
// order of nn.functional, where it is computed if one of them is given.
func (k *maker) pool(kind string, n int, pool func(x *tensor.Tensor, kernel, stride, padding [2]int) (*tensor.Tensor, error), further ...string) func(*starlib.Call) (starlark.Value, error) {
	return func(c *starlib.Call) (starlark.Value, error) {
		size, padding := spread(c, "kernel", n, 1), spread(c, "padding", n, 0)
		stride := size
		if !c.IsNone("stride") {
			stride = spread(c, "stride", n, 1)
		}
		if slices.ContainsFunc(further, func(name string) bool { return !c.Default(name) }) {
			settings := each.Of(further, c.Arg)
			fn := try.To(c.Library().Function("functional", kind))
			given := starlark.Tuple{c.Arg("kernel"), c.Arg("stride"), c.Arg("padding")}
			return k.makeCall(kind, numbers(size), nil, "(x: Tensor) -> Tensor | tuple", func(_ *Model, c *starlib.Call) (starlark.Value, error) {
				return starlib.Composed(c.Thread, fn, slices.Concat(starlark.Tuple{c.Arg("x")}, given, settings))
			}), nil
		}
		if n == 2 {
			w := maxima{[2]int(size), [2]int(stride), [2]int(padding)}
			m := k.make(kind, numbers(size), nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
				return pool(x, w.size, w.stride, w.padding)
			})
			if kind == "max_pool2d" {
				m.maxima = &w
			}
			return m, nil
		}
		return k.make(kind, fmt.Sprint(size[0]), nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
			image, err := tensor.Unsqueeze(x, -2)
			if err == nil {
				image, err = pool(image, [2]int{1, size[0]}, [2]int{1, stride[0]}, [2]int{0, padding[0]})
			}
			if err != nil {
				return nil, try.As(kind, err)
			}
			return tensor.Squeeze(image, -2)
		}), nil
	}
}

func (k *maker) flatten(c *starlib.Call) (starlark.Value, error) {
	start, end := c.Int("start_dim"), c.Int("end_dim")
	return k.make("flatten", "", nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.Flatten(x, start, end)
	}), nil
}
