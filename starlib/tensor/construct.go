package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/element"
	"drun/starlib"
	"drun/tensor"
)

// constructors make tensors without chance, so they may stand at top level.
func constructors(ctx *tensor.Context) []*starlib.Def {
	filled := func(name string, make func(*tensor.Context, []int, element.Type) (*tensor.Tensor, error)) *starlib.Def {
		return &starlib.Def{
			Sig: name + "(*shape, dtype: string = None) -> Tensor",
			Doc: fmt.Sprintf("A tensor of %s: %s(2, 3) or %s((2, 3)). float32 by default.", name, name, name),
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				shape, err := shapeOf(c.Rest)
				if err != nil {
					return nil, err
				}
				d, err := dtypeOf(c.Arg("dtype"), element.Float32)
				if err != nil {
					return nil, err
				}
				return result(make(ctx, shape, d))
			},
		}
	}
	return []*starlib.Def{
		fromData(ctx),
		filled("zeros", tensor.Zeros),
		filled("ones", tensor.Ones),
		{
			Sig: "full(shape: tuple | list | int, value: number | bool, dtype: string = None) -> Tensor",
			Doc: "A tensor whose elements are all value; without a dtype, with that of tensor(value).",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				shape, err := shapeOf(starlark.Tuple{c.Arg("shape")})
				if err != nil {
					return nil, err
				}
				s, _, err := scalar(c.Arg("value"))
				if err != nil {
					return nil, err
				}
				d, err := dtypeOf(c.Arg("dtype"), byDefault(s))
				if err != nil {
					return nil, err
				}
				return result(tensor.Full(ctx, shape, s, d))
			},
		},
		{
			Sig: "eye(n: int, m: int = None, dtype: string = None) -> Tensor",
			Doc: "An n×m matrix (n×n by default) with ones on the diagonal.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				n, err := c.Int("n")
				if err != nil {
					return nil, err
				}
				m := n
				if !c.IsNone("m") {
					if m, err = c.Int("m"); err != nil {
						return nil, err
					}
				}
				d, err := dtypeOf(c.Arg("dtype"), element.Float32)
				if err != nil {
					return nil, err
				}
				return result(tensor.Eye(ctx, n, m, d))
			},
		},
		{
			Sig: "arange(start: number, end: number = None, step: number = 1, dtype: string = None) -> Tensor",
			Doc: "start, start + step, … below end; arange(n) is 0 … n - 1. int64 if all arguments are integers, else float32.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				args := [3]tensor.Scalar{tensor.Int(0)}
				kind := element.Int64
				first := 0
				if c.IsNone("end") {
					first = 1 // the only bound is the end
				}
				for i, v := range [3]starlark.Value{c.Arg("start"), c.Arg("end"), c.Arg("step")} {
					if v == starlark.None {
						continue
					}
					s, _, err := scalar(v)
					if err != nil {
						return nil, err
					}
					if i == 0 {
						args[first] = s
					} else {
						args[i] = s
					}
					if s.Kind() == element.Float64 {
						kind = element.Float32
					}
				}
				d, err := dtypeOf(c.Arg("dtype"), kind)
				if err != nil {
					return nil, err
				}
				return result(tensor.Arange(ctx, args[0], args[1], args[2], d))
			},
		},
		{
			Sig: "linspace(start: number, end: number, steps: int, dtype: string = None) -> Tensor",
			Doc: "steps evenly spaced values from start to end, both included.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				n, err := c.Int("steps")
				if err != nil {
					return nil, err
				}
				d, err := dtypeOf(c.Arg("dtype"), element.Float32)
				if err != nil {
					return nil, err
				}
				return result(tensor.Linspace(ctx, c.Float("start"), c.Float("end"), n, d))
			},
		},
	}
}

// fromData is tensor.tensor, which is also what the module does when called.
func fromData(ctx *tensor.Context) *starlib.Def {
	return &starlib.Def{
		Sig: "tensor(data, dtype: string = None) -> Tensor",
		Doc: `A tensor of data: a number, a bool, lists or tuples of these nested to equal lengths, bytes (as uint8), or a tensor (copied). Without a dtype, floats make float32, integers int64, bools bool.
dtypes: float32 float64 int64 int32 int8 uint8 bool compute; float16 bfloat16 complex64 are for storage and communication.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return result(FromData(ctx, c.Arg("data"), c.Arg("dtype")))
		},
	}
}

// byDefault is the type of a tensor made of a number without a dtype.
func byDefault(s tensor.Scalar) element.Type {
	if s.Kind() == element.Float64 {
		return element.Float32
	}
	return s.Kind()
}

// randoms draw from the stream that all ranks share.
func randoms(ctx *tensor.Context, shared *tensor.Generator) []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: "rand(*shape, dtype: string = None) -> Tensor",
			Doc: "Uniformly distributed numbers from [0, 1), the same on all ranks.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return Random(ctx, c.Rest, c.Arg("dtype"), shared.Rand)
			},
		},
		{
			Sig: "randn(*shape, dtype: string = None) -> Tensor",
			Doc: "Normally distributed numbers of mean 0 and standard deviation 1, the same on all ranks.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return Random(ctx, c.Rest, c.Arg("dtype"), shared.Randn)
			},
		},
		{
			Sig: "randint(low: int, high: int, shape: tuple | list | int, dtype: string = None) -> Tensor",
			Doc: "Integers from [low, high), int64 by default, the same on all ranks.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return RandomInts(ctx, c, shared) },
		},
		{
			Sig: "multinomial(p: Tensor, n: int, replacement: bool = False) -> Tensor",
			Doc: "n indices drawn with the probabilities p (shape (k,) or (rows, k); they need not sum to 1), the same on all ranks. Shape (n,) or (rows, n), int64.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				n, err := c.Int("n")
				if err != nil {
					return nil, err
				}
				return result(shared.Multinomial(ctx, Arg(c, "p"), n, c.Bool("replacement")))
			},
		},
	}
}

// Random is rand or randn on behalf of a builtin (*shape, dtype).
func Random(ctx *tensor.Context, shape starlark.Tuple, dtype starlark.Value, draw func(*tensor.Context, []int, element.Type) (*tensor.Tensor, error)) (starlark.Value, error) {
	sizes, err := shapeOf(shape)
	if err != nil {
		return nil, err
	}
	d, err := dtypeOf(dtype, element.Float32)
	if err != nil {
		return nil, err
	}
	return result(draw(ctx, sizes, d))
}

// RandomInts is randint on behalf of a builtin (low, high, shape, dtype).
func RandomInts(ctx *tensor.Context, c *starlib.Call, g *tensor.Generator) (starlark.Value, error) {
	low, err := c.Int("low")
	if err != nil {
		return nil, err
	}
	high, err := c.Int("high")
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(starlark.Tuple{c.Arg("shape")})
	if err != nil {
		return nil, err
	}
	d, err := dtypeOf(c.Arg("dtype"), element.Int64)
	if err != nil {
		return nil, err
	}
	return result(g.RandInt(ctx, int64(low), int64(high), shape, d))
}
