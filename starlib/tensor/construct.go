package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
)

// constructors are the builtins that make tensors without randomness; they are allowed at top level.
func constructors(ctx *tensor.Context) []*starlib.Def {
	filled := func(name string, make func(*tensor.Context, []int, dtype.Type) (*tensor.Tensor, error)) *starlib.Def {
		return &starlib.Def{
			Sig: name + "(*shape, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: fmt.Sprintf("A tensor of %s: %s(2, 3) or %s((2, 3)). float32 by default.", name, name, name),
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return leaf(c)(Shaped(ctx, c, make)) },
		}
	}
	return []*starlib.Def{
		fromData(ctx),
		filled("zeros", tensor.Zeros),
		filled("ones", tensor.Ones),
		like("zeros_like(t: Tensor, dtype: string = None, requires_grad: bool = False) -> Tensor", "zeros", tensor.Zeros),
		like("ones_like(t: Tensor, dtype: string = None, requires_grad: bool = False) -> Tensor", "ones", tensor.Ones),
		{Sig: "full_like(t: Tensor, value: number | bool, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "A tensor of t's shape whose elements are all value, and of t's dtype unless another is given.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				t := Arg(c, "t")
				return leaf(c)(Result(tensor.Full(ctx, t.Shape(), number(c.Arg("value")), dtypeArg(c, t.DType()))))
			}},
		{Sig: "full(shape: tuple | list | int, value: number | bool, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "A tensor whose elements are all value; by default with the dtype of tensor(value).",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				shape, s := shapeArg(c), number(c.Arg("value"))
				return leaf(c)(Result(tensor.Full(ctx, shape, s, dtypeArg(c, byDefault(s)))))
			}},
		{Sig: "eye(n: int, m: int = None, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "An n×m matrix (n×n by default) with ones on the diagonal.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				n := c.Int("n")
				m := n
				if !c.IsNone("m") {
					m = c.Int("m")
				}
				return leaf(c)(Result(tensor.Eye(ctx, n, m, dtypeArg(c, dtype.Float32))))
			}},
		{Sig: "arange(start: number, end: number = None, step: number = 1, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "start, start + step, … below end; arange(n) is 0 … n - 1. int64 if all arguments are integers, else float32.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				given := [3]starlark.Value{c.Arg("start"), c.Arg("end"), c.Arg("step")}
				if c.IsNone("end") {
					given[0], given[1] = starlark.MakeInt(0), given[0] // the only bound is the end
				}
				var args [3]tensor.Scalar
				kind := dtype.Int64
				for i, v := range given {
					if args[i] = number(v); args[i].Kind() == dtype.Float64 {
						kind = dtype.Float32
					}
				}
				return leaf(c)(Result(tensor.Arange(ctx, args[0], args[1], args[2], dtypeArg(c, kind))))
			}},
		triangleIndices(ctx, "tril_indices", "lower triangle: column ≤ row + offset", tensor.TrilIndices),
		triangleIndices(ctx, "triu_indices", "upper triangle: column ≥ row + offset", tensor.TriuIndices),
		{Sig: "linspace(start: Tensor | number, end: Tensor | number, steps: int, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "steps evenly spaced values from start to end, both included, shape (steps,).",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return leaf(c)(Result(tensor.Linspace(ctx, try.To(starlib.AsNumber(c.Arg("start"))), try.To(starlib.AsNumber(c.Arg("end"))), c.Int("steps"), dtypeArg(c, dtype.Float32))))
			}},
	}
}

// like declares a builtin that makes a tensor of another's shape.
func like(sig, of string, make func(*tensor.Context, []int, dtype.Type) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{
		Sig: sig,
		Doc: "A tensor of " + of + " of t's shape; of t's dtype unless another is given.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			t := Arg(c, "t")
			return leaf(c)(Result(make(t.Context(), t.Shape(), dtypeArg(c, t.DType()))))
		},
	}
}

func triangleIndices(ctx *tensor.Context, name, which string, list func(*tensor.Context, int, int, int) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{
		Sig: name + `(row: int, col: int, offset: int = 0, *, dtype: string = "int64") -> Tensor`,
		Doc: "The indices of a row × col matrix's " + which + "; of shape (2, n), rows and columns.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(tensor.Cast(try.To(list(ctx, c.Int("row"), c.Int("col"), c.Int("offset"))), dtypeArg(c, dtype.Int64)))
		},
	}
}

// fromData is tensor.tensor, which is also what a call of the module calls.
func fromData(ctx *tensor.Context) *starlib.Def {
	return &starlib.Def{
		Sig: "tensor(data, dtype: string = None, requires_grad: bool = False) -> Tensor",
		Doc: `A tensor of data: a number, a bool, lists or tuples of these nested to equal lengths, bytes (as uint8), or a tensor (copied). Without a dtype, floats make float32, integers int64, bools bool.
dtypes: float32, float64, bfloat16, int64, int32, int8, uint8 and bool can be computed with, bfloat16 in float32 with rounded results; float16 and complex64 are for storage and communication only. With requires_grad, backward computes a gradient for it.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return leaf(c)(Result(FromData(ctx, c.Arg("data"), c.Arg("dtype"))))
		},
	}
}

// leaf returns what converts a builtin's result, and sets requires_grad as the argument says.
func leaf(c *starlib.Call) func(starlark.Value, error) (starlark.Value, error) {
	return func(v starlark.Value, err error) (starlark.Value, error) {
		if err != nil || !c.Bool("requires_grad") {
			return v, err
		}
		return v, v.(*Value).Tensor().SetRequiresGrad(true)
	}
}

// byDefault returns the type of a tensor made from a number without a dtype.
func byDefault(s tensor.Scalar) dtype.Type {
	if s.Kind() == dtype.Float64 {
		return dtype.Float32
	}
	return s.Kind()
}

// randoms are the builtins that draw from the stream that all ranks share.
func randoms(ctx *tensor.Context, shared *tensor.Generator) []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: "rand(*shape, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "Uniformly distributed numbers in [0, 1), the same on all ranks.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return leaf(c)(Shaped(ctx, c, shared.Rand)) },
		},
		{
			Sig: "randn(*shape, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "Normally distributed numbers of mean 0 and standard deviation 1, the same on all ranks.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return leaf(c)(Shaped(ctx, c, shared.Randn)) },
		},
		like("rand_like(t: Tensor, dtype: string = None, requires_grad: bool = False) -> Tensor", "uniformly distributed numbers from [0, 1), the same on all ranks,", shared.Rand),
		like("randn_like(t: Tensor, dtype: string = None, requires_grad: bool = False) -> Tensor", "normally distributed numbers of mean 0 and standard deviation 1, the same on all ranks,", shared.Randn),
		{
			Sig: "randint(low: int, high: int, shape: tuple | list | int, dtype: string = None, requires_grad: bool = False) -> Tensor",
			Doc: "Uniformly distributed integers in [low, high), int64 by default, the same on all ranks.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return leaf(c)(RandomInts(ctx, c, shared)) },
		},
		{Sig: "multinomial(p: Tensor, n: int, replacement: bool = False) -> Tensor",
			Doc: "n indices drawn with the probabilities p (shape (k,) or (rows, k); they need not sum to 1), the same on all ranks. Shape (n,) or (rows, n), int64.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return Result(shared.Multinomial(ctx, Arg(c, "p"), c.Int("n"), c.Bool("replacement")))
			}},
	}
}

// Shaped makes a tensor for a builtin with the arguments *shape and dtype, float32 by default.
func Shaped(ctx *tensor.Context, c *starlib.Call, make func(*tensor.Context, []int, dtype.Type) (*tensor.Tensor, error)) (starlark.Value, error) {
	return Result(make(ctx, sizes(c), dtypeArg(c, dtype.Float32)))
}

// RandomInts is randint for a builtin with the arguments low, high, shape and dtype.
func RandomInts(ctx *tensor.Context, c *starlib.Call, g *tensor.Generator) (starlark.Value, error) {
	low, high := int64(c.Int("low")), int64(c.Int("high"))
	return Result(g.RandInt(ctx, low, high, shapeArg(c), dtypeArg(c, dtype.Int64)))
}
