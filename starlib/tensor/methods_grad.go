package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
)

// gradDefs are the methods for differentiation, copies and types.
var gradDefs = []*starlib.Def{
	method("backward(retain_graph: bool = False, gradient: Tensor = None, create_graph: bool = False)", "Computes the gradient of this tensor with respect to the tensors it was computed from, and adds it to their .grad. It must have one element, unless gradient, of its shape, gives the gradient to start from. The graph is freed unless retain_graph or create_graph; with create_graph the gradients have gradients themselves, see tensor.grad.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if c.Bool("create_graph") {
				return nil, t.BackwardCreating(Optional(c, "gradient"))
			}
			return nil, t.Backward(Optional(c, "gradient"), c.Bool("retain_graph"))
		}),
	method("requires_grad_(requires_grad: bool = True) -> Tensor", "Sets requires_grad, and returns the tensor.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return c.Recv, setRequiresGrad(t, c.Bool("requires_grad"))
		}),
	method("detach() -> Tensor", "A view through which no gradient flows.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return (*Value)(t.Detach()), nil }),
	method("clone() -> Tensor", "A copy; gradients flow through it.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return Result(tensor.Clone(t)) }),
	method("to(dtype: string) -> Tensor", "The tensor converted to another dtype; the tensor itself if it has that dtype.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Cast(t, dtypeArg(c, t.DType())))
		}),
	casting("float", dtype.Float32), casting("double", dtype.Float64), casting("long", dtype.Int64), casting("int", dtype.Int32), casting("bool", dtype.Bool),
	casting("bfloat16", dtype.BFloat16),
}

// gradDef is tensor.grad.
var gradDef = &starlib.Def{
	Sig: "grad(outputs: Tensor | list | tuple, inputs: Tensor | list | tuple, grad_outputs: Tensor | list | tuple = None, create_graph: bool = False, allow_unused: bool = False, *, retain_graph: bool = None, materialize_grads: bool = False) -> tuple",
	Doc: `The gradients of the sum of outputs with respect to each of inputs, without adding them to any .grad. grad_outputs are the gradients of the outputs to start from; an output of one element needs none. With create_graph the gradients have gradients themselves, of any order: a penalty on them can be part of a loss. The recipe must say create_graph before the operations are called, since they keep more then. The graph is freed unless retain_graph, by default create_graph. An input that the outputs do not depend on is an error; with allow_unused its gradient is None, with materialize_grads zeros.`,
	Fn: func(c *starlib.Call) (starlark.Value, error) {
		outputs, inputs := oneOrMore(c, "outputs"), oneOrMore(c, "inputs")
		seeds := oneOrMore(c, "grad_outputs")
		try.FailIf(seeds != nil && len(seeds) != len(outputs), "there are %d grad_outputs for %d outputs", len(seeds), len(outputs))
		o := tensor.GradOptions{Create: c.Bool("create_graph")}
		o.Retain = o.Create
		if !c.IsNone("retain_graph") {
			o.Retain = c.Bool("retain_graph")
		}
		grads := try.To(tensor.Grad(outputs, inputs, seeds, o))
		out := make(starlark.Tuple, len(grads))
		for i, g := range grads {
			switch {
			case g != nil:
				out[i] = (*Value)(g)
			case c.Bool("materialize_grads"):
				x := inputs[i]
				out[i] = (*Value)(try.To(tensor.Zeros(x.Context(), x.Shape(), x.DType())))
			case c.Bool("allow_unused"):
				out[i] = starlark.None
			default:
				try.FailIf(inputs[i].Share() != nil, "inputs[%d] is this rank's part of a parameter that dist.fsdp divides: backward() computes its gradient", i)
				try.Fail("the outputs were not computed from inputs[%d]; with allow_unused = True its gradient is None", i)
			}
		}
		return out, nil
	},
}

// oneOrMore returns an argument that is a tensor or a list of tensors, where None stands for a missing one.
func oneOrMore(c *starlib.Call, name string) (list []*tensor.Tensor) {
	switch v := c.Arg(name).(type) {
	case *Value:
		return []*tensor.Tensor{v.Tensor()}
	case starlark.Sequence:
		list = []*tensor.Tensor{}
		for e := range starlark.Elements(v) {
			t, ok := e.(*Value)
			switch {
			case ok:
				list = append(list, t.Tensor())
			case e == starlark.None && name == "grad_outputs":
				list = append(list, nil)
			default:
				try.Fail("%s: want Tensors, got %s", name, e.Type())
			}
		}
	}
	return list
}

// casting declares a shorthand for to(dtype).
func casting(name string, d dtype.Type) *starlib.Def {
	return method(name+"() -> Tensor", fmt.Sprintf("The tensor with elements of type %s, as to(%q).", d, d.String()),
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return Result(tensor.Cast(t, d)) })
}

// inPlaceDefs are the methods that change the tensor, and return it.
var inPlaceDefs = []*starlib.Def{
	inPlace("copy_(src: Tensor | number | list | tuple) -> Tensor", "Copies the values of src, broadcast and converted to this tensor's dtype, into it.",
		func(c *starlib.Call, t *tensor.Tensor) error {
			src, err := source(t, c.Arg("src"))
			if err != nil {
				return try.As("copy_", err)
			}
			return tensor.CopyInto(t, src)
		}),
	inPlace("index_put_(indices: tuple | list, values: Tensor | number | bool, accumulate: bool = False) -> Tensor", "index_put in place.",
		func(c *starlib.Call, t *tensor.Tensor) error { return indexPut("index_put_", c, t) }),
	arithmetic("add_", "Adds other, broadcast, in place.", tensor.OpAdd),
	arithmetic("sub_", "Subtracts other, broadcast, in place.", tensor.OpSub),
	arithmetic("mul_", "Multiplies by other, broadcast, in place.", tensor.OpMul),
	arithmetic("div_", "Divides by other, broadcast, in place.", tensor.OpDiv),
	inPlace("zero_() -> Tensor", "Sets all elements to 0.",
		func(c *starlib.Call, t *tensor.Tensor) error { return t.Fill(tensor.Int(0)) }),
	inPlace("fill_(value: number | bool) -> Tensor", "Sets all elements to value.",
		func(c *starlib.Call, t *tensor.Tensor) error {
			return t.Fill(number(c.Arg("value")))
		}),
}

// inPlace declares a method that changes its receiver.
func inPlace(sig, doc string, fn func(*starlib.Call, *tensor.Tensor) error) *starlib.Def {
	return method(sig, doc, func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		try.FailIf(t.Frozen(), "the tensor was made at top level and is frozen: make it in main(), or clone() it there")
		return c.Recv, fn(c, t)
	})
}

func arithmetic(name, doc string, op tensor.BinaryOp) *starlib.Def {
	return inPlace(name+"(other: Tensor | number) -> Tensor", doc, func(c *starlib.Call, t *tensor.Tensor) error {
		if b, ok := c.Arg("other").(*Value); ok {
			return tensor.BinaryInPlace(op, t, b.Tensor())
		}
		return tensor.BinaryScalarInPlace(op, t, number(c.Arg("other")))
	})
}
