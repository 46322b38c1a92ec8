package tensor

import (
	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// splitDefs are the methods that cut a tensor into parts, and those that repeat or move its parts.
var splitDefs = []*starlib.Def{
	method("chunk(chunks: int, dim: int = 0) -> tuple", "Views that cut dim into at most chunks parts of equal size, ceil(size / chunks); the last may be smaller.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return several(tensor.Chunk(t, c.Int("chunks"), c.Int("dim")))
		}),
	method("split(split_size: int | tuple | list, dim: int = 0) -> tuple", "Views that cut dim into parts of split_size, of which the last may be smaller, or into parts of the sizes in a list, which must add up to that of dim.",
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
	sized("repeat(*sizes)", "Copies side by side: sizes[i] of them along dimension i. More sizes than dimensions put new ones in front; fewer are an error.", tensor.Repeat),
	method("repeat_interleave(repeats: Tensor | int, dim: int = None) -> Tensor", "Each element along dim repeated, by one number or by a vector with a number for each; flattened without dim.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			counts := starlib.Must(FromData(t.Context(), c.Arg("repeats"), starlark.None))
			return Result(tensor.RepeatInterleave(t, counts, optionalDim(c)))
		}),
	method("roll(shifts: int | tuple | list, dims: int | tuple | list = None) -> Tensor", "Elements moved by shifts along dims; what leaves at the end comes back at the front. One shift without dims rolls the flattened tensor.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			var dims []int
			if !c.IsNone("dims") {
				dims = shapeOf(c.Arg("dims"))
			}
			return Result(tensor.Roll(t, shapeOf(c.Arg("shifts")), dims))
		}),
	method("diagonal(offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor", "A view of the elements (i, i + offset) of two dimensions, which become one at the end.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Diagonal(t, c.Int("offset"), c.Int("dim1"), c.Int("dim2")))
		}),
	method("diag(diagonal: int = 0) -> Tensor", "For a vector (n,), a matrix with it on the diagonal and zeros elsewhere; for a matrix, a copy of its diagonal. diagonal counts from the main one, upwards.",
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

// several is a tuple of tensors.
func several(list []*tensor.Tensor, err error) (starlark.Value, error) {
	if err != nil {
		return nil, err
	}
	t := make(starlark.Tuple, len(list))
	for i, x := range list {
		t[i] = (*Value)(x)
	}
	return t, nil
}

// optionalDim is the argument dim; nil for None.
func optionalDim(c *starlib.Call) *int {
	if c.IsNone("dim") {
		return nil
	}
	return new(c.Int("dim"))
}
