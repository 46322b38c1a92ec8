package nn

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/element"
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

// make finishes a module of drun's own: forward takes one tensor.
func (k *maker) make(kind, detail string, fields []field, forward func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error)) *Model {
	m := &Model{kind: kind, detail: detail, fields: fields, training: true, layer: true, ctx: k.ctx}
	call := &starlib.Def{Sig: "nn." + kind + "(x: Tensor) -> Tensor", Fn: func(c *starlib.Call) (starlark.Value, error) {
		t, err := forward(m, startensor.Arg(c, "x"))
		if err != nil {
			return nil, err
		}
		return (*startensor.Value)(t), nil
	}}
	m.forward = call.Builtin(nil).(starlark.Callable)
	return m
}

// trained makes a parameter's field; t may be nil for one that is left out.
func trained(name string, t *tensor.Tensor) (field, error) {
	if t == nil {
		return field{name, starlark.None, starlark.None}, nil
	}
	return field{name, (*startensor.Value)(t), marked{t, false}}, t.SetRequiresGrad(true)
}

// kept makes a buffer's field.
func kept(name string, t *tensor.Tensor) field {
	return field{name, (*startensor.Value)(t), marked{t, true}}
}

// weights makes the fields weight and bias, of which bias may be nil.
func weights(weight, bias *tensor.Tensor) ([]field, error) {
	w, err := trained("weight", weight)
	if err != nil {
		return nil, err
	}
	b, err := trained("bias", bias)
	return []field{w, b}, err
}

// affine makes weight and bias of a linear map, drawn from ±1/√fan_in: PyTorch's
// Kaiming-uniform with a = √5.
func (k *maker) affine(shape []int, withBias bool) (weight, bias *tensor.Tensor, err error) {
	if weight, err = tensor.Empty(k.ctx, shape, element.Float32); err != nil {
		return nil, nil, tensor.As("weight", err)
	}
	if withBias {
		if bias, err = tensor.Empty(k.ctx, shape[:1], element.Float32); err != nil {
			return nil, nil, tensor.As("bias", err)
		}
	}
	return weight, bias, k.streams.Shared.Stream.InitLinear(weight, bias)
}

func (k *maker) linear(c *starlib.Call) (starlark.Value, error) {
	in, err := size(c, "i")
	if err != nil {
		return nil, err
	}
	out, err := size(c, "o")
	if err != nil {
		return nil, err
	}
	weight, bias, err := k.affine([]int{out, in}, c.Bool("bias"))
	if err != nil {
		return nil, err
	}
	fields, err := weights(weight, bias)
	if err != nil {
		return nil, err
	}
	return k.make("linear", fmt.Sprintf("%d, %d", in, out), fields, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.Linear(x, weight, bias)
	}), nil
}

func (k *maker) conv2d(c *starlib.Call) (starlark.Value, error) {
	in, err := size(c, "i")
	if err != nil {
		return nil, err
	}
	out, err := size(c, "o")
	if err != nil {
		return nil, err
	}
	kernel, stride, padding, err := window(c)
	if err != nil {
		return nil, err
	}
	weight, bias, err := k.affine([]int{out, in, kernel[0], kernel[1]}, c.Bool("bias"))
	if err != nil {
		return nil, err
	}
	fields, err := weights(weight, bias)
	if err != nil {
		return nil, err
	}
	return k.make("conv2d", fmt.Sprintf("%d, %d, kernel = (%d, %d)", in, out, kernel[0], kernel[1]), fields, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.Conv2d(x, weight, bias, stride, padding)
	}), nil
}

func (k *maker) embedding(c *starlib.Call) (starlark.Value, error) {
	n, err := size(c, "n")
	if err != nil {
		return nil, err
	}
	dim, err := size(c, "dim")
	if err != nil {
		return nil, err
	}
	weight, err := k.streams.Shared.Stream.Randn(k.ctx, []int{n, dim}, element.Float32)
	if err != nil {
		return nil, tensor.As("weight", err)
	}
	w, err := trained("weight", weight)
	if err != nil {
		return nil, err
	}
	return k.make("embedding", fmt.Sprintf("%d, %d", n, dim), []field{w}, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.Embedding(weight, x)
	}), nil
}

func (k *maker) layerNorm(c *starlib.Call) (starlark.Value, error) {
	shape, err := sizes(c.Arg("dim"))
	if err != nil {
		return nil, err
	}
	eps := c.Float("eps")
	weight, err := tensor.Ones(k.ctx, shape, element.Float32)
	if err != nil {
		return nil, tensor.As("weight", err)
	}
	bias, err := tensor.Zeros(k.ctx, shape, element.Float32)
	if err != nil {
		return nil, tensor.As("bias", err)
	}
	fields, err := weights(weight, bias)
	if err != nil {
		return nil, err
	}
	return k.make("layer_norm", c.Arg("dim").String(), fields, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.LayerNorm(x, weight, bias, len(shape), eps)
	}), nil
}

func (k *maker) rmsNorm(c *starlib.Call) (starlark.Value, error) {
	dim, err := size(c, "dim")
	if err != nil {
		return nil, err
	}
	eps := c.Float("eps")
	weight, err := tensor.Ones(k.ctx, []int{dim}, element.Float32)
	if err != nil {
		return nil, tensor.As("weight", err)
	}
	w, err := trained("weight", weight)
	if err != nil {
		return nil, err
	}
	return k.make("rms_norm", fmt.Sprint(dim), []field{w}, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.RMSNorm(x, weight, eps)
	}), nil
}

func (k *maker) batchNorm(c *starlib.Call) (starlark.Value, error) {
	n, err := size(c, "channels")
	if err != nil {
		return nil, err
	}
	momentum, eps := c.Float("momentum"), c.Float("eps")
	var t [4]*tensor.Tensor // weight, bias, running mean and variance
	for i, value := range []int64{1, 0, 0, 1} {
		if t[i], err = tensor.Full(k.ctx, []int{n}, tensor.Int(value), element.Float32); err != nil {
			return nil, tensor.As("weight", err)
		}
	}
	fields, err := weights(t[0], t[1])
	if err != nil {
		return nil, err
	}
	fields = append(fields, kept("running_mean", t[2]), kept("running_var", t[3]))
	return k.make("batch_norm", fmt.Sprint(n), fields, func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.BatchNorm(x, t[0], t[1], t[2], t[3], m.training, momentum, eps)
	}), nil
}

// Group is what dropout needs to know of a group of ranks.
type Group interface {
	starlark.Value
	Rank() int // negative for a rank that is not a member
	Ranks() []int
}

func (k *maker) dropout(c *starlib.Call) (starlark.Value, error) {
	p := c.Float("p")
	if !(p >= 0 && p <= 1) {
		return nil, fmt.Errorf("p = %v is not a probability from 0 to 1", p)
	}
	stream := k.streams.PerRank
	switch g := c.Arg("group").(type) {
	case starlark.NoneType:
	case Group:
		if g.Rank() < 0 {
			return nil, fmt.Errorf("this rank is not a member of the group")
		}
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

func (k *maker) pool(kind string, pool func(x *tensor.Tensor, kernel, stride, padding [2]int) (*tensor.Tensor, error)) func(*starlib.Call) (starlark.Value, error) {
	return func(c *starlib.Call) (starlark.Value, error) {
		kernel, stride, padding, err := window(c)
		if err != nil {
			return nil, err
		}
		return k.make(kind, fmt.Sprintf("(%d, %d)", kernel[0], kernel[1]), nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
			return pool(x, kernel, stride, padding)
		}), nil
	}
}

func (k *maker) flatten(c *starlib.Call) (starlark.Value, error) {
	start, err := c.Int("start_dim")
	if err != nil {
		return nil, err
	}
	end, err := c.Int("end_dim")
	if err != nil {
		return nil, err
	}
	return k.make("flatten", "", nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.Flatten(x, start, end)
	}), nil
}

func (k *maker) activation(kind string, op tensor.UnaryOp) func(*starlib.Call) (starlark.Value, error) {
	return func(*starlib.Call) (starlark.Value, error) {
		return k.make(kind, "", nil, func(_ *Model, x *tensor.Tensor) (*tensor.Tensor, error) {
			return tensor.Unary(op, x)
		}), nil
	}
}
