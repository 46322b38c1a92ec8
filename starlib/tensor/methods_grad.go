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
	method("backward(retain_graph: bool = False, gradient: Tensor = None)", "Computes the gradient of this tensor with respect to the tensors it was computed from, and adds it to their .grad. It must have one element, unless gradient, of its shape, gives the gradient to start from. The graph is freed unless retain_graph.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
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
