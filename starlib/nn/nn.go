// Package nn is the module nn of recipes: layers, models made of them, losses.
// Layouts, names of parameters and initial distributions are PyTorch's.
package nn

import (
	"cmp"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/random"
	"drun/starlib/std"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Module makes the module nn for a rank; its layers draw random numbers from the streams.
func Module(ctx *tensor.Context, streams *random.Streams) *starlib.Module {
	k := &maker{ctx, streams}
	return &starlib.Module{
		Name:   "nn",
		Doc:    "Layers, models and losses. Layers are called with a tensor; initial values are drawn from the random stream that all ranks share, so a model starts the same on every rank.",
		More:   func() []*starlib.Def { return std.Defs("nn") },
		Types:  []*starlib.Methods{methods, initMethods, functionalMethods},
		Values: starlark.StringDict{"init": inner{"init", k, initMethods}, "functional": inner{"functional", k, functionalMethods}},
		Defs: slices.Concat([]*starlib.Def{
			{Sig: "linear(i: int, o: int, bias: bool = True) -> Module", Fn: k.linear,
				Doc: "x·Wᵀ + b over the last dimension: (…, i) to (…, o). weight has shape (o, i), bias (o,)."},
			{Sig: "embedding(n: int, dim: int, padding_idx: int = None) -> Module", Fn: k.embedding,
				Doc: "Looks up rows of a table: integers from 0 to n - 1 of any shape (…) become (…, dim). weight has shape (n, dim). Row padding_idx, counted from the end if negative, starts as zeros and gets no gradient."},
			{Sig: "layer_norm(dim: int | tuple | list, eps: number = 1e-5) -> Module", Fn: k.layerNorm,
				Doc: "Normalizes the last dimensions to mean 0 and variance 1, then scales by weight and adds bias."},
			{Sig: "rms_norm(dim: int, eps: number = 1e-6) -> Module", Fn: k.rmsNorm,
				Doc: "Divides the last dimension by its root mean square, then scales by weight."},
			{Sig: "batch_norm(channels: int, momentum: number = 0.1, eps: number = 1e-5) -> Module", Fn: k.batchNorm,
				Doc: "Normalizes each channel, dimension 1 of (n, channels, …), with the batch's statistics in training and the running ones (buffers running_mean, running_var) in evaluation, then scales by weight and adds bias."},
			{Sig: "dropout(p: number, group = None) -> Module", Fn: k.dropout,
				Doc: "In training, zeroes elements with probability p and scales the others by 1/(1 - p). Each rank draws its own mask; with a group, all of the group's ranks draw the same one."},
			{Sig: "max_pool2d(kernel: int | tuple, stride: int | tuple = None, padding: int | tuple = 0, dilation: int | tuple = 1, return_indices: bool = False, ceil_mode: bool = False) -> Module", Fn: k.pool("max_pool2d", 2, tensor.MaxPool2d, "dilation", "ceil_mode", "return_indices"),
				Doc: "The maximum of each window of (n, c, h, w); stride defaults to the kernel size. The last three as in nn.functional.max_pool2d."},
			{Sig: "avg_pool2d(kernel: int | tuple, stride: int | tuple = None, padding: int | tuple = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int = None) -> Module", Fn: k.pool("avg_pool2d", 2, tensor.AvgPool2d, "ceil_mode", "count_include_pad", "divisor_override"),
				Doc: "The mean of each window of (n, c, h, w); stride defaults to the kernel size. The last three as in nn.functional.avg_pool2d."},
			{Sig: "flatten(start_dim: int = 1, end_dim: int = -1) -> Module", Fn: k.flatten,
				Doc: "Joins the dimensions from start_dim to end_dim into one."},
			{Sig: "sequential(*modules) -> Module", Fn: k.sequential,
				Doc: `Calls the modules (or functions) in order; parameters are named "0.weight", "2.bias", ….`},
			{Sig: "module(forward: callable, **fields) -> Module", Fn: k.custom,
				Doc: `A model of your own: calling it calls forward(self, *args, **kwargs). A field is a module, nn.parameter(t), nn.buffer(t), a list or dict of these, or a plain value; forward reads it as self.name, and self.training, too.`},
			{Sig: "parameter(t: Tensor) -> Tensor", Fn: newParameter,
				Doc: "A trainable tensor with t's values: it requires gradients."},
			{Sig: "buffer(t: Tensor)", Fn: newBuffer,
				Doc: "Marks a tensor in a field of nn.module as part of the model's state that is not trained."},
		}, []*starlib.Def{k.autocast(), functionalCall}, k.activations(), k.convolutions(), k.recurrents(), k.transformers(), k.losses()),
	}
}

func (k *maker) sequential(c *starlib.Call) (starlark.Value, error) {
	return Sequential(k.ctx, c.Rest, nil)
}

// Sequential makes a model that calls modules in order. numbers name them in parameters' names; nil: 0, 1 ….
func Sequential(ctx *tensor.Context, modules starlark.Tuple, numbers []int) (_ *Model, err error) {
	defer try.Caught(&err)
	try.Ok(cmp.Or(checkCallables(modules), wrapped(modules)))
	m := &Model{kind: "sequential", training: true, ctx: ctx}
	for i, v := range modules {
		if numbers != nil {
			i = numbers[i]
		}
		m.fields = append(m.fields, register(fmt.Sprint(i), v))
	}
	m.forward = starlark.NewBuiltin("nn.sequential", func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var inner inside
		for i := 0; i < len(m.fields); i++ {
			opens, v := i == 0, m.fields[m.turn(i)].seen
			out, err := m.together(i, args, kwargs)
			if out != nil {
				i++
			} else if err == nil {
				out, err = call(thread, v, args, kwargs)
			}
			if err != nil {
				return nil, err
			}
			inner.next(v, args, out)
			if m, ok := v.(*Model); !opens && ok && m.hooks == nil && m.around == nil && m.direct(args, kwargs) {
				args[0] = out // nothing else refers to these arguments
			} else {
				args = starlark.Tuple{out}
			}
			kwargs = nil
		}
		if len(args) != 1 {
			return nil, fmt.Errorf("nn.sequential: no module, and %d arguments to pass on", len(args))
		}
		return args[0], nil
	})
	return m, nil
}

// plain returns field i if it is a built-in layer without hooks or wrappers.
func (m *Model) plain(i int) *Model {
	if l, ok := m.fields[i].seen.(*Model); ok && l.layer && l.hooks == nil && l.around == nil {
		return l
	}
	return nil
}

// plainInside reports whether m and its parts are built-in layers without hooks or wrappers.
func (m *Model) plainInside() bool {
	if !m.layer || m.hooks != nil || m.around != nil {
		return false
	}
	for i := range m.fields {
		if inner, ok := m.fields[i].seen.(*Model); ok && !inner.plainInside() {
			return false
		}
	}
	return true
}

// together computes a convolution at index i and the max pooling after it at once; nil if there are none, or they must be
// computed one after the other. The bits are the same.
func (m *Model) together(i int, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if i+1 >= len(m.fields) {
		return nil, nil
	}
	conv := m.plain(m.turn(i))
	if conv == nil || conv.with == nil || !conv.direct(args, kwargs) {
		return nil, nil
	}
	pool := m.plain(m.turn(i + 1))
	if pool == nil || pool.maxima == nil {
		return nil, nil
	}
	return conv.pooled(pool, args[0].(*startensor.Value))
}

// turn returns the field that a sequence computes at index i. A relu just before a max pooling is computed after it,
// on the maxima only: results and gradients are the same to the bit, since relu is monotonic and keeps NaN.
func (m *Model) turn(i int) int {
	plain := func(i int, kind string) bool {
		if i < 1 || i >= len(m.fields) { // the first layer's errors are about the sequence's own input
			return false
		}
		l := m.plain(i)
		return l != nil && l.kind == kind
	}
	switch {
	case plain(i, "relu") && plain(i+1, "max_pool2d"):
		return i + 1
	case plain(i, "max_pool2d") && plain(i-1, "relu"):
		return i - 1
	}
	return i
}

// inside follows a value through a sequence, and frees the memory of intermediate results that only the sequence's own layers have seen.
type inside struct {
	last *tensor.Tensor // the result of the layer before, if nothing else refers to it
}

// next records a step from in to out.
func (s *inside) next(fn starlark.Value, in starlark.Tuple, out starlark.Value) {
	m, ok := fn.(*Model)
	v, isTensor := out.(*startensor.Value)
	if !ok || !m.plainInside() || !isTensor {
		s.last = nil // anything may refer to it
		return
	}
	t := (*tensor.Tensor)(v)
	for _, a := range in {
		if from, ok := a.(*startensor.Value); ok && tensor.SharesStorage((*tensor.Tensor)(from), t) {
			return // whatever refers to the input shares the memory of a view of it
		}
	}
	if s.last != nil {
		tensor.Discard(s.last)
	}
	s.last = t
}

// call calls a module or function. A built-in layer needs no frame of its own in a backtrace: its errors name it.
func call(thread *starlark.Thread, fn starlark.Value, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if m, ok := fn.(*Model); ok && !m.self && m.hooks == nil && m.around == nil {
		if m.direct(args, kwargs) {
			return m.layered(args[0].(*startensor.Value))
		}
		return m.forward.CallInternal(thread, args, kwargs)
	}
	return starlark.Call(thread, fn, args, kwargs)
}

func (k *maker) custom(c *starlib.Call) (starlark.Value, error) {
	forward := c.Callable("forward")
	m := &Model{kind: "module", detail: forward.Name(), training: true, self: true, forward: forward, ctx: k.ctx}
	for _, kv := range c.Named {
		name := string(kv[0].(starlark.String))
		if v, _ := methods.Attr(m, name); v != nil || name == "training" {
			return nil, fmt.Errorf("a field cannot be named %s: modules already have one", name)
		}
		try.Ok(try.As(name, wrapped(kv[1])))
		m.fields = append(m.fields, register(name, kv[1]))
	}
	return m, nil
}

func newParameter(c *starlib.Call) (starlark.Value, error) {
	t := try.To(tensor.Clone(startensor.Arg(c, "t").Detach()))
	return (*startensor.Value)(t), t.SetRequiresGrad(true)
}

func newBuffer(c *starlib.Call) (starlark.Value, error) {
	t := startensor.Arg(c, "t")
	try.FailIf(t.RequiresGrad(), "the tensor requires gradients: a buffer is not trained, use t.detach() or nn.parameter")
	return marked{t, true}, nil
}

func (k *maker) autocast() *starlib.Def {
	return &starlib.Def{
		Sig: `autocast(fn: callable, *args, dtype: string = "bfloat16", **kwargs)`,
		Doc: `Calls fn, a model or a function, with these arguments and returns its result. During the call, linear layers, matmul, convolutions and attention round float32 operands to bfloat16, add up in float32 and return bfloat16; softmax, norms, losses, sums, exp, log and pow return float32; everything else follows the types of its operands. Parameters and their gradients stay float32. Put the loss inside, backward and the optimizer's step outside:
	loss = nn.autocast(lambda: nn.cross_entropy(model(x), y))
	loss.backward()
dtype = "float32" turns it off inside another autocast. Recurrent layers compute in float32.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			dtype := c.String("dtype")
			try.FailIf(dtype != "bfloat16" && dtype != "float32", "dtype is %q: want bfloat16, or float32 to turn autocast off", dtype)
			defer k.ctx.Autocast(k.ctx.Autocast(dtype == "bfloat16"))
			return starlark.Call(c.Thread, c.Arg("fn").(starlark.Callable), c.Rest, c.Named)
		},
	}
}
