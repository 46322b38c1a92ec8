// Package tensor is the recipes' module tensor: its value is the tensor itself, with operators, indexing and methods,
// and its builtins make tensors. The other modules (nn, optim, data, dist, checkpoint) take and return these values.
package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/std"
	"drun/tensor"
)

// Module makes the module for a rank: ctx is what the rank's tensors share, and shared
// is the random stream that is the same on all ranks.
func Module(ctx *tensor.Context, shared *tensor.Generator) *starlib.Module {
	made := constructors(ctx)
	for _, d := range made {
		d.TopLevel = true
	}
	pure := append(made, functions...)
	m := &starlib.Module{
		Name: "tensor",
		Doc: `Tensors: arrays of numbers with automatic differentiation. tensor(data, dtype = None) is short for tensor.tensor(data, dtype).
Attributes float32, float64, … are the names of the dtypes.`,
		Defs:   append(append(pure, randoms(ctx, shared)...), noGrad(ctx)),
		More:   func() []*starlib.Def { return std.Defs("tensor") },
		Types:  []*starlib.Methods{methods},
		Values: starlark.StringDict{},
		Call:   fromData(ctx),
	}
	m.Call.TopLevel = true
	for _, d := range dtype.Types() {
		m.Values[d.String()] = dtypeNames[d]
	}
	return m
}

func init() { // once for all ranks of the process
	for _, d := range functions {
		d.TopLevel = true
	}
}

// functions are the builtins that combine or transform tensors. Most of what tensors do is a method.
var functions = []*starlib.Def{
	joiner("cat", "The tensors joined along an existing dimension; their other sizes must be equal.", tensor.Cat),
	joiner("stack", "The tensors, which have the same shape, joined along a new dimension.", tensor.Stack),
	{Sig: "where(cond: Tensor, a: Tensor | number, b: Tensor | number) -> Tensor",
		Doc: "The elements of a where cond (bool) is true, and those of b elsewhere; all are broadcast.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			cond := Arg(c, "cond")
			a, b := operand(c.Arg("a"), c.Arg("b"), cond), operand(c.Arg("b"), c.Arg("a"), cond)
			return Result(tensor.Where(cond, a, b))
		}},
	{Sig: "one_hot(t: Tensor, classes: int = -1) -> Tensor",
		Doc: "A new last dimension of size classes, with 1 at the class and 0 elsewhere, int64. By default classes is the largest class + 1.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(tensor.OneHot(Arg(c, "t"), c.Int("classes")))
		}},
	{Sig: "einsum(equation: string, *operands) -> Tensor",
		Doc: `Sums of products of the operands' elements: before ->, letters name the dimensions of each operand; those that the output, after ->, does not name are summed over. "ij,jk->ik" is a matrix product, "bii->b" the traces, "i,j" an outer product. ... stands for further dimensions, broadcast. Without -> the output has the letters that occur once, in alphabetical order. The operands, Tensors or one list of them, must have the same dtype.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			given := starlark.Value(c.Rest)
			if len(c.Rest) == 1 {
				if list, ok := c.Rest[0].(starlark.Sequence); ok && list.Type() != "Tensor" {
					given = list
				}
			}
			return Result(tensor.Einsum(c.String("equation"), try.To(List(given))))
		}},
	gradDef,
	triangle("tril", lower, tensor.Tril),
	triangle("triu", upper, tensor.Triu),
	{Sig: "pad(t: Tensor, pad: tuple | list, value: number = 0) -> Tensor",
		Doc: "Pads t with value: pad = (left, right) for the last dimension, then (top, bottom) for the one before it, and so on.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(tensor.Pad(Arg(c, "t"), shapeOf(c.Arg("pad")), number(c.Arg("value"))))
		}},
	{Sig: "bincount(t: Tensor, weights: Tensor = None, minlength: int = 0) -> Tensor",
		Doc: "How often each integer 0, 1, … occurs in t, or with weights the sum of the weights there; shape (n,), where n is max(t) + 1, or minlength if that is larger.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(tensor.BinCount(Arg(c, "t"), Optional(c, "weights"), c.Int("minlength")))
		}},
	{Sig: `searchsorted(sorted_sequence: Tensor, input: Tensor | number, *, out_int32: bool = False, right: bool = False, side: string = None, sorter: Tensor = None) -> Tensor`,
		Doc: `Where in a sorted vector (m,), or in the rows of a tensor whose other dimensions are input's, each number of input would be inserted: before its equals, or after them with right or side = "right". sorter has the indices that sort the sequence. int64, or int32, of input's shape.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			seq := Arg(c, "sorted_sequence")
			if by := Optional(c, "sorter"); by != nil {
				seq = try.To(tensor.Gather(seq, -1, by))
			}
			right := c.Bool("right")
			switch side, given := c.Arg("side").(starlark.String); {
			case given && side != "left" && side != "right", given && right && side == "left":
				return nil, fmt.Errorf(`side = %s: want "left" or "right", as right says`, c.Arg("side"))
			case given:
				right = side == "right"
			}
			at := try.To(tensor.SearchSorted(seq, operand(c.Arg("input"), c.Arg("sorted_sequence"), seq), right))
			if c.Bool("out_int32") {
				return Result(tensor.Cast(at, dtype.Int32))
			}
			return (*Value)(at), nil
		}},
	test("is_nan", "NaN", tensor.IsNaN),
	test("is_inf", "infinite", tensor.IsInf),
	test("is_finite", "neither infinite nor NaN", tensor.IsFinite),
}

func test(name, what string, fn func(*tensor.Tensor) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{
		Sig: name + "(t: Tensor) -> Tensor",
		Doc: "Where t is " + what + ", as bools.",
		Fn:  func(c *starlib.Call) (starlark.Value, error) { return Result(fn(Arg(c, "t"))) },
	}
}

func joiner(name, doc string, join func([]*tensor.Tensor, int) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{
		Sig: name + "(tensors: iterable, dim: int = 0) -> Tensor",
		Doc: doc,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(join(try.To(List(c.Arg("tensors"))), c.Int("dim")))
		},
	}
}

// What tril and triu do, as functions and as methods.
const (
	lower = "The lower triangle of the last two dimensions, with zeros above the diagonal; diagonal is how far that is above the main one."
	upper = "The upper triangle of the last two dimensions, with zeros below the diagonal; diagonal is how far that is above the main one."
)

func triangle(name, doc string, cut func(*tensor.Tensor, int) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{
		Sig: name + "(t: Tensor, diagonal: int = 0) -> Tensor",
		Doc: doc,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(cut(Arg(c, "t"), c.Int("diagonal")))
		},
	}
}

// operand makes a tensor from a number combined with other: of other's type, so that the number does not widen the result.
func operand(v, other starlark.Value, near *tensor.Tensor) *tensor.Tensor {
	if t, ok := v.(*Value); ok {
		return t.Tensor()
	}
	s := number(v)
	d := byDefault(s)
	switch o := other.(type) {
	case *Value:
		if t := o.Tensor(); t.DType().IsFloat() || s.Kind() != dtype.Float64 {
			d = t.DType()
		}
	case starlark.Float:
		d = dtype.Float32
	}
	return try.To(tensor.Full(near.Context(), nil, s, d))
}

// noGrad has two forms: for a loop, and for a call.
func noGrad(ctx *tensor.Context) *starlib.Def {
	return &starlib.Def{
		Sig: "no_grad(iterable_or_fn: iterable | callable, *args, **kwargs)",
		Doc: `Computes without recording gradients. no_grad(iterable) yields the same elements; nothing is recorded in a loop over it, until the loop ends, even by break or return:
	for x, y in tensor.no_grad(loader): …
no_grad(fn, *args, **kwargs) calls fn with these arguments and returns its result.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			if fn, ok := c.Arg("iterable_or_fn").(starlark.Callable); ok {
				args, named, thread := c.Rest, c.Named, c.Thread
				ctx.BeginNoGrad()
				defer ctx.EndNoGrad()
				return starlark.Call(thread, fn, args, named)
			}
			try.FailIf(len(c.Rest) > 0 || len(c.Named) > 0, "got extra arguments with an iterable: only a function takes them")
			loop := noGradLoop{c.Arg("iterable_or_fn").(starlark.Iterable), ctx}
			if _, ok := loop.Iterable.(starlark.Sequence); ok {
				return noGradSequence{loop}, nil
			}
			return loop, nil
		},
	}
}

// noGradLoop is an iterable whose loops record no gradients.
type noGradLoop struct {
	starlark.Iterable
	ctx *tensor.Context
}

func (l noGradLoop) String() string { return "no_grad(" + l.Iterable.String() + ")" }
func (l noGradLoop) Type() string   { return "no_grad" }

func (l noGradLoop) Iterate() starlark.Iterator {
	it := l.Iterable.Iterate()
	if it == nil {
		return nil
	}
	l.ctx.BeginNoGrad()
	return &noGradIterator{Iterator: it, ctx: l.ctx}
}

// noGradSequence also has a length.
type noGradSequence struct{ noGradLoop }

func (s noGradSequence) Len() int { return s.Iterable.(starlark.Sequence).Len() }

type noGradIterator struct {
	starlark.Iterator
	ctx  *tensor.Context
	done bool
}

func (it *noGradIterator) Done() {
	if !it.done {
		it.done = true
		it.ctx.EndNoGrad()
		it.Iterator.Done()
	}
}
