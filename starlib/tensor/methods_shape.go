package tensor

import (
	"slices"

	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"
)

// shapeDefs are the methods that move or pick elements.
var shapeDefs = []*starlib.Def{
	method("item() -> number", "The only element as a plain number; an error unless there is exactly one.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return (*Value)(t).Item() }),
	method("tolist() -> list | number", "The elements as nested lists; a number for a tensor without dimensions.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return toList(t) }),
	method("numel() -> int", "The number of elements.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return starlark.MakeInt(t.Len()), nil
		}),
	method("dim() -> int", "The number of dimensions.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return starlark.MakeInt(t.Dim()), nil
		}),
	method("size(dim: int = None) -> tuple | int", "The sizes, as .shape; with a dim, the size of that dimension.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if c.IsNone("dim") {
				return IntTuple(t.Shape()), nil
			}
			n, err := tensor.Size(t, c.Int("dim"))
			return starlark.MakeInt(n), err
		}),
	sized("reshape(*shape)", "The elements in another shape; one size may be -1. A view where possible, else a copy.", tensor.Reshape),
	sized("view(*shape)", "The same memory in another shape; one size may be -1. An error if that would need a copy.", tensor.View),
	sized("expand(*sizes)", "A view in which dimensions of size 1 are expanded to the given sizes; -1 keeps a size.", tensor.Expand),
	sized("permute(*dims)", "A view with the dimensions in the given order.", tensor.Permute),
	method("flip(*dims) -> Tensor", "The elements in reverse order along the given dimensions; all of them if none is given.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			dims := sizes(c)
			if len(dims) == 0 && len(c.Rest) > 0 {
				return Result(tensor.Clone(t))
			}
			return Result(tensor.Flip(t, dims))
		}),
	method("transpose(dim0: int, dim1: int) -> Tensor", "A view with two dimensions swapped.", twoInts("dim0", "dim1", tensor.Transpose)),
	method("flatten(start_dim: int = 0, end_dim: int = -1) -> Tensor", "The dimensions from start_dim to end_dim joined into one.", twoInts("start_dim", "end_dim", tensor.Flatten)),
	method("select(dim: int, index: int) -> Tensor", "A view at one index of a dimension, which is removed.", twoInts("dim", "index", tensor.Select)),
	method("squeeze(dim: int | tuple | list = None) -> Tensor", "A view without dimension dim, or those of several, if its size is 1; by default, without all dimensions of size 1.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if c.IsNone("dim") {
				return (*Value)(tensor.SqueezeAll(t)), nil
			}
			if list, several := c.Arg("dim").(starlark.Iterable); several {
				given := try.To(Ints(list))
				if len(given) == 0 {
					return (*Value)(t), nil
				}
				over := try.To(tensor.DimList("squeeze", given, t.Dim()))
				for _, d := range slices.Backward(over) {
					t = try.To(tensor.Squeeze(t, d))
				}
				return (*Value)(t), nil
			}
			return alongDim(tensor.Squeeze)(c, t)
		}),
	method("unsqueeze(dim: int) -> Tensor", "A view with a new dimension of size 1 at dim.", alongDim(tensor.Unsqueeze)),
	method("narrow(dim: int, start: int, length: int) -> Tensor", "A view of length elements of a dimension, beginning at start.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Narrow(t, c.Int("dim"), c.Int("start"), c.Int("length")))
		}),
	method("gather(dim: int, index: Tensor) -> Tensor", "The elements at index along dim, in the shape of index: out[i][j] = t[index[i][j]][j] for dim 0.", dimIndex(tensor.Gather)),
	method("index_select(dim: int, index: Tensor) -> Tensor", "The slices along dim at the indices; index has shape (k,).", dimIndex(tensor.IndexSelect)),
	method("scatter_add(dim: int, index: Tensor, src: Tensor) -> Tensor", "A copy with the elements of src added at index along dim, the reverse of gather.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.ScatterAdd(t, c.Int("dim"), Arg(c, "index"), Arg(c, "src")))
		}),
	method("scatter(dim: int, index: Tensor, src: Tensor | number | bool, *, reduce: string = None) -> Tensor", "A copy with the elements of src, or a number, written at index along dim: out[index[i][j]][j] = src[i][j] for dim 0. src has the shape of index, or is larger. Of several values for one position the last wins; reduce = \"add\" or \"multiply\" adds them to what is there, or multiplies it by them.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if how, given := starlark.AsString(c.Arg("reduce")); given {
				kind := map[string]string{"add": "sum", "multiply": "prod"}[how]
				try.FailIf(kind == "", `reduce = %s: want "add" or "multiply"`, c.Arg("reduce"))
				src := operand(c.Arg("src"), c.Recv, t)
				if _, is := c.Arg("src").(*Value); !is {
					src = try.To(tensor.Expand(src, Arg(c, "index").Shape()))
				}
				fn := try.To(c.Library().Function("methods", "scatter_reduce"))
				return starlark.Call(c.Thread, fn, starlark.Tuple{c.Recv, c.Arg("dim"), c.Arg("index"), (*Value)(src), starlark.String(kind), starlark.True}, nil)
			}
			if src, ok := c.Arg("src").(*Value); ok {
				return Result(tensor.Scatter(t, c.Int("dim"), Arg(c, "index"), src.Tensor()))
			}
			return Result(tensor.ScatterValue(t, c.Int("dim"), Arg(c, "index"), number(c.Arg("src"))))
		}),
	method("index_put(indices: tuple | list, values: Tensor | number | bool, accumulate: bool = False) -> Tensor", "A copy with values, broadcast, written at the indices: a tensor of integers or a mask for each dimension in turn, or None for all of it. accumulate adds the values, even several for one position; otherwise the last wins.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			out, err := tensor.Clone(t)
			if err == nil {
				err = indexPut("index_put", c, out)
			}
			return Result(out, err)
		}),
	method("masked_fill(mask: Tensor, value: Tensor | number | bool) -> Tensor", "A copy that has value, a number or a tensor of one element, where mask (bool, broadcast) is true.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if v, is := c.Arg("value").(*Value); is {
				try.FailIf(v.Tensor().Dim() != 0, "value has shape %s: want a number, or a tensor without dimensions", Shape(v.Tensor()))
				return Result(tensor.Where(Arg(c, "mask"), try.To(tensor.Cast(v.Tensor(), t.DType())), t))
			}
			return Result(tensor.MaskedFill(t, Arg(c, "mask"), number(c.Arg("value"))))
		}),
}

// indexPut is index_put in place, with the call's arguments.
func indexPut(op string, c *starlib.Call, t *tensor.Tensor) error {
	var indices []*tensor.Tensor
	list := c.Arg("indices").(starlark.Indexable)
	for i := range list.Len() {
		switch x := list.Index(i).(type) {
		case starlark.NoneType:
			indices = append(indices, nil)
		case *Value:
			indices = append(indices, x.Tensor())
		default:
			return fmt.Errorf("%s: indices: want Tensors or None, element %d is a %s", op, i, x.Type())
		}
	}
	values, err := source(t, c.Arg("values"))
	if err != nil {
		return try.As(op, err)
	}
	return tensor.IndexPut(op, t, indices, values, c.Bool("accumulate"))
}

func method(sig, doc string, fn func(*starlib.Call, *tensor.Tensor) (starlark.Value, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return fn(c, c.Recv.(*Value).Tensor())
	}}
}

// sized declares a method whose arguments are sizes or dimensions, given one by one or as one tuple.
func sized(call, doc string, fn func(*tensor.Tensor, []int) (*tensor.Tensor, error)) *starlib.Def {
	return method(call+" -> Tensor", doc, func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		return Result(fn(t, sizes(c)))
	})
}

func alongDim(fn func(*tensor.Tensor, int) (*tensor.Tensor, error)) func(*starlib.Call, *tensor.Tensor) (starlark.Value, error) {
	return func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return Result(fn(t, c.Int("dim"))) }
}

func twoInts(first, second string, fn func(*tensor.Tensor, int, int) (*tensor.Tensor, error)) func(*starlib.Call, *tensor.Tensor) (starlark.Value, error) {
	return func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		return Result(fn(t, c.Int(first), c.Int(second)))
	}
}

func dimIndex(fn func(*tensor.Tensor, int, *tensor.Tensor) (*tensor.Tensor, error)) func(*starlib.Call, *tensor.Tensor) (starlark.Value, error) {
	return func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		return Result(fn(t, c.Int("dim"), Arg(c, "index")))
	}
}

// splitDefs are the methods that cut a tensor into parts, and those that repeat or move its parts.
var splitDefs = []*starlib.Def{
	method("chunk(chunks: int, dim: int = 0) -> tuple", "Views that cut dim into at most chunks parts of equal size, ceil(size / chunks); the last may be smaller.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return several(tensor.Chunk(t, c.Int("chunks"), c.Int("dim")))
		}),
	method("split(split_size: int | tuple | list, dim: int = 0) -> tuple", "Views that cut dim into parts of size split_size, the last of which may be smaller, or into parts of the sizes in a list, which must add up to dim's size.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if _, one := c.Arg("split_size").(starlark.Int); one {
				return several(tensor.SplitEvery(t, c.Int("split_size"), c.Int("dim")))
			}
			return several(tensor.Split(t, shapeOf(c.Arg("split_size")), c.Int("dim")))
		}),
	method("unbind(dim: int = 0) -> tuple", "A view for each index of dim, without that dimension.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return several(tensor.Unbind(t, c.Int("dim")))
		}),
	sized("repeat(*sizes)", "Copies side by side: sizes[i] of them along dimension i. More sizes than dimensions add dimensions in front; fewer are an error.", tensor.Repeat),
	method("repeat_interleave(repeats: Tensor | int, dim: int = None) -> Tensor", "Each element along dim repeated, by one number or by a vector with a number for each; flattened without dim.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			counts := try.To(FromData(t.Context(), c.Arg("repeats"), starlark.None))
			return Result(tensor.RepeatInterleave(t, counts, optionalDim(c)))
		}),
	method("roll(shifts: int | tuple | list, dims: int | tuple | list = None) -> Tensor", "The elements moved by shifts along dims; those moved beyond the end come back at the front. One shift without dims rolls the flattened tensor.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			var dims []int
			if !c.IsNone("dims") {
				dims = shapeOf(c.Arg("dims"))
			}
			return Result(tensor.Roll(t, shapeOf(c.Arg("shifts")), dims))
		}),
	method("diagonal(offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor", "A view of the elements (i, i + offset) of two dimensions, which become one, the last.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Diagonal(t, c.Int("offset"), c.Int("dim1"), c.Int("dim2")))
		}),
	method("diag(diagonal: int = 0) -> Tensor", "For a vector (n,), a matrix with it on the diagonal and zeros elsewhere; for a matrix, a copy of its diagonal. diagonal is how far above the main diagonal.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Diag(t, c.Int("diagonal")))
		}),
	method("tril(diagonal: int = 0) -> Tensor", lower,
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Tril(t, c.Int("diagonal")))
		}),
	method("triu(diagonal: int = 0) -> Tensor", upper,
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Triu(t, c.Int("diagonal")))
		}),
}

func several(list []*tensor.Tensor, err error) (starlark.Value, error) {
	if err != nil {
		return nil, err
	}
	return starlark.Tuple(each.Of(list, func(t *tensor.Tensor) starlark.Value { return (*Value)(t) })), nil
}

// optionalDim returns the argument dim; nil for None.
func optionalDim(c *starlib.Call) *int {
	if c.IsNone("dim") {
		return nil
	}
	return new(c.Int("dim"))
}
