package random

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Module makes the module for a rank.
func Module(ctx *tensor.Context) *starlib.Module {
	return &starlib.Module{
		Name:  "random",
		Doc:   "Random number generators with their own seeds. tensor.rand and the like draw from the run's stream instead, which is the same on all ranks.",
		Types: []*starlib.Methods{methods},
		Defs: []*starlib.Def{{
			Sig: "generator(seed: int) -> Generator",
			Doc: "A generator whose numbers depend only on the seed, an integer from -2^63 to 2^64 - 1. Its position can be part of a checkpoint.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				seed, err := seedOf(c.Arg("seed").(starlark.Int))
				if err != nil {
					return nil, err
				}
				return New(ctx, seed, User), nil
			},
		}},
	}
}

func seedOf(n starlark.Int) (uint64, error) {
	if u, ok := n.Uint64(); ok {
		return u, nil
	}
	if i, ok := n.Int64(); ok {
		return uint64(i), nil
	}
	return 0, fmt.Errorf("seed %s does not fit into 64 bits", n)
}

var methods = &starlib.Methods{
	Type: "Generator",
	Doc:  "A stream of random numbers.",
	Defs: []*starlib.Def{
		method("rand(*shape, dtype: string = None) -> Tensor", "Uniformly distributed numbers from [0, 1): rand(2, 3) or rand((2, 3)).",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				return startensor.Shaped(g.ctx, c, g.Stream.Rand)
			}),
		method("randn(*shape, dtype: string = None) -> Tensor", "Normally distributed numbers of mean 0 and standard deviation 1.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				return startensor.Shaped(g.ctx, c, g.Stream.Randn)
			}),
		method("randint(low: int, high: int, shape: tuple | list | int = (), dtype: string = None) -> Tensor | int", "Integers from [low, high), int64 by default; a plain integer without a shape.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				v, err := startensor.RandomInts(g.ctx, c, g.Stream)
				if shape, ok := c.Arg("shape").(starlark.Tuple); err != nil || !ok || len(shape) > 0 || !c.IsNone("dtype") {
					return v, err
				}
				s, err := v.(*startensor.Value).Tensor().Item()
				return starlark.MakeInt64(s.Int()), err
			}),
		method("choice(items: list | tuple | range | Tensor | string) -> any", "One of the items.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				items := c.Arg("items").(starlark.Indexable)
				if items.Len() <= 0 {
					return nil, fmt.Errorf("there are no items to choose from")
				}
				t, err := g.Stream.RandInt(g.ctx, 0, int64(items.Len()), nil, dtype.Int64)
				if err != nil {
					return nil, err
				}
				i, err := t.Item()
				if err != nil {
					return nil, err
				}
				return items.Index(int(i.Int())), nil
			}),
		method("shuffle(items: list | Tensor) -> list | Tensor", "Puts a list, or a tensor's rows, into random order in place, and returns it.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) { return g.shuffle(c.Arg("items")) }),
		method("permutation(n: int) -> Tensor", "The integers 0 … n - 1 in random order, int64.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				return startensor.Result(g.Permutation(c.Int("n")))
			}),
	},
}

func method(sig, doc string, fn func(*starlib.Call, *Generator) (starlark.Value, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return fn(c, c.Recv.(*Generator))
	}}
}

// Permutation is 0 … n-1 in random order, shape (n,), int64.
func (g *Generator) Permutation(n int) (*tensor.Tensor, error) {
	order, err := g.Stream.Permutation(n)
	if err != nil {
		return nil, err
	}
	return tensor.FromInts(g.ctx, order, []int{n}, dtype.Int64)
}

func (g *Generator) shuffle(items starlark.Value) (starlark.Value, error) {
	if v, ok := items.(*startensor.Value); ok {
		if v.Len() < 0 {
			return nil, fmt.Errorf("a Tensor without dimensions has no rows")
		}
		order, err := g.Permutation(v.Len())
		if err != nil {
			return nil, err
		}
		mixed, err := tensor.IndexSelect(v.Tensor(), 0, order)
		if err != nil {
			return nil, err
		}
		return v, tensor.CopyInto(v.Tensor(), mixed)
	}
	list := items.(*starlark.List)
	order, err := g.Stream.Permutation(list.Len())
	if err != nil {
		return nil, err
	}
	old := make([]starlark.Value, list.Len())
	for i := range old {
		old[i] = list.Index(i)
	}
	for i, from := range order {
		if err := list.SetIndex(i, old[from]); err != nil {
			return nil, err
		}
	}
	return list, nil
}
