package distributed

import (
	"cmp"
	"fmt"
	"strings"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

func (gs *groups) initParallelism(c *starlib.Call) (starlark.Value, error) {
	model, pipeline, offset := c.Int("model"), c.Int("pipeline"), c.Int("rank_offset")
	try.FailIf(offset < 0 || offset >= gs.rank.WorldSize, "argument rank_offset is %d: the world has ranks 0 to %d", offset, gs.rank.WorldSize-1)
	size := gs.rank.WorldSize - offset
	if model < 1 || pipeline < 1 || model > size || pipeline > size || size%(model*pipeline) != 0 {
		what := "the world's size"
		if offset > 0 {
			what = fmt.Sprintf("the number of ranks from rank %d on,", offset)
		}
		return nil, fmt.Errorf("%s %d is not divisible by model %d · pipeline %d", what, size, model, pipeline)
	}
	backends := try.To(gs.backendsOf(c, func(name string) string { return parallelDimensions[name] }, []string{"mp", "pp", "dp"}))
	try.FailIf(gs.parallel, "it has already been called: keep its result")
	fields := starlark.StringDict{}
	for _, dim := range []dimension{{"mp", model, 1, nil}, {"pp", pipeline, model, nil}, {"dp", size / (model * pipeline), model * pipeline, nil}} {
		parts := along(size, dim)
		for _, part := range parts {
			for i := range part {
				part[i] += offset
			}
		}
		g := try.To(gs.split(c, parts, cmp.Or(backends[dim.name], gs.all.backend)))
		fields[dim.name] = g
	}
	gs.parallel = true
	return starlarkstruct.FromStringDict(starlarkstruct.Default, fields), nil
}

// parallelDimensions maps the names allowed in backends to the fields that init_parallelism returns.
var parallelDimensions = map[string]string{"mp": "mp", "pp": "pp", "dp": "dp", "model": "mp", "pipeline": "pp", "data": "dp"}

// backendsOf reads the argument backends: the names of backends by dimension, as dimension calls it ("": there is none).
func (gs *groups) backendsOf(c *starlib.Call, dimension func(name string) string, dimensions []string) (map[string]string, error) {
	if c.IsNone("backends") {
		return nil, nil
	}
	backends := map[string]string{}
	for _, item := range c.Arg("backends").(*starlark.Dict).Items() {
		dim, _ := starlark.AsString(item[0])
		dim = dimension(dim)
		try.FailIf(dim == "", "argument backends: %s is not a dimension: want one of %s", item[0], strings.Trim(listText(dimensions), "[]"))
		if item[1] == starlark.None {
			continue
		}
		name, ok := starlark.AsString(item[1])
		try.FailIf(!ok, "argument backends: want the name of a backend for %q, got %s", dim, item[1].Type())
		if err := gs.checkBackend(name); err != nil {
			return nil, fmt.Errorf("argument backends: %q: %w", dim, err)
		}
		other, twice := backends[dim]
		try.FailIf(twice && other != name, "argument backends: %q has both %q and %q", dim, other, name)
		backends[dim] = name
	}
	return backends, nil
}

// tensorParallelism has the building blocks of tensor-parallel layers.
func tensorParallelism(w *World) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `copy_to_group(x: Tensor, group: Group = None, timeout: number = None) -> Tensor`, Fn: w.inGroup(copyToGroupOf),
			Doc: "Tensor parallelism: x itself; in backward its gradient is summed over the group."},
		{Sig: `reduce_from_group(x: Tensor, group: Group = None, timeout: number = None) -> Tensor`, Fn: w.inGroup(reduceFromGroup),
			Doc: "Tensor parallelism: the sum of x over the group. In backward its gradient is passed to every rank\n" +
				"unchanged."},
		{Sig: `shard(t: Tensor, dim: int, group: Group = None) -> Tensor`, Fn: func(c *starlib.Call) (starlark.Value, error) { return shardOf(w, c) },
			Doc: "This rank's part of t along dimension dim, as a copy. The group's size must divide the size of that\n" +
				"dimension."},
	}
}

func copyToGroupOf(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	in, at := startensor.Arg(c, "x"), origin(c).Backward()
	out := try.To(tensor.Clone(in.Detach()))
	differentiable("copy_to_group", out, in, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
		return reduced(g, ctx, grad, dtype.Sum, at)
	})
	return (*startensor.Value)(out), nil
}

func reduceFromGroup(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	in := startensor.Arg(c, "x")
	return (*startensor.Value)(summed(g, ctx, "reduce_from_group", in, origin(c))), nil
}

// summed returns the sum of x over the group; its gradient is the gradient of every rank's x. A failure ends the caller.
func summed(g *Group, ctx *collective.WaitLimit, name string, x *tensor.Tensor, at collective.Origin) *tensor.Tensor {
	out := try.To(reduced(g, ctx, x.Detach(), dtype.Sum, at))
	differentiable(name, out, x, tensor.Clone)
	return out
}

func shardOf(w *World, c *starlib.Call) (starlark.Value, error) {
	g := try.To(w.group(c))
	dim := c.Int("dim")
	t := startensor.Arg(c, "t")
	try.FailIf(dim < -t.Dim() || dim >= t.Dim(), "dimension %d of a %d-dimensional tensor: want %d to %d", dim, t.Dim(), -t.Dim(), t.Dim()-1)
	if dim < 0 {
		dim += t.Dim()
	}
	n := t.Shape()[dim]
	try.FailIf(n%g.Size() != 0, "dimension %d has size %d, which is not divisible by %d ranks", dim, n, g.Size())
	return startensor.Result(partOf(g, t.Detach(), dim))
}
