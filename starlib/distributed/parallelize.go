package distributed

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/nn"
	"drun/tensor"
)

// parallelize is dist.parallelize_module, PyTorch's way to tensor parallelism: a plan says which layers of a model are divided.
func parallelize(w *World) *starlib.Def {
	return &starlib.Def{
		Sig: `parallelize_module(module: Module, group: Group, plan: dict, timeout: number = None) -> Module`,
		Doc: "Divides layers of a model over the ranks of a group, for example mesh[\"tp\"], and returns the model: plan maps paths\n" +
			"such as \"blocks.*.mix.query\", where * stands for any name, to \"colwise\" (a nn.linear becomes dist.column_linear, whose\n" +
			"output stays divided), \"colwise_rep\" (with gather_output) or \"rowwise\" (dist.row_linear, or of a nn.embedding\n" +
			"dist.vocab_embedding). Each rank keeps its part of the layer's weights, which must be equal on all ranks; make the\n" +
			"optimizer afterwards. The results are those of the whole layers but for rounding.",
		Fn: w.inGroup(parallelizeModule),
	}
}

func parallelizeModule(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	m := c.Arg("module").(*nn.Model)
	var paths, styles []string
	for key, v := range c.Arg("plan").(*starlark.Dict).Entries() {
		pattern, isPath := starlark.AsString(key)
		style, isStyle := starlark.AsString(v)
		try.FailIf(!isPath || !isStyle || !slices.Contains([]string{"colwise", "colwise_rep", "rowwise"}, style), `plan[%s] = %s: want a path, and "colwise", "colwise_rep" or "rowwise"`, key, v)
		found := false
		for _, name := range m.Paths() {
			if ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(name, ".", "/")); err != nil || !ok {
				continue
			}
			try.FailIf(slices.Contains(paths, name), "two entries of plan match %s", name)
			paths, styles, found = append(paths, name), append(styles, style), true
		}
		try.FailIf(!found, "plan: no module has the path %q: the model has %s", pattern, strings.Join(m.Paths(), ", "))
	}
	var layers []*nn.Model
	key := []byte{}
	for i, name := range paths {
		kind, weight, bias := m.Layer(name)
		shape, divided := []int(nil), 0
		if weight != nil {
			shape = weight.Shape()
		}
		switch {
		case kind == "linear" && styles[i] == "rowwise":
			divided = 1
		case kind == "linear", kind == "embedding" && styles[i] == "rowwise":
		default:
			return nil, fmt.Errorf("plan: %s is nn.%s, which cannot be divided %s: want nn.linear, or nn.embedding rowwise", name, kind, styles[i])
		}
		try.FailIf(shape[divided]%g.Size() != 0, "plan: %s has a weight of shape %s, and %d is not divisible by the group's %d ranks", name, tensor.ShapeString(shape), shape[divided], g.Size())
		for _, t := range []*tensor.Tensor{weight, bias} {
			if t != nil {
				key = fmt.Appendf(key, "%s %s %v %016x\n", name, styles[i], t.Shape(), fnv(try.To(tensor.Contiguous(t.Detach())).Bytes()))
			}
		}
		var layer *nn.Model
		switch {
		case kind == "embedding":
			layer = try.To(wordLayer(g, ctx, weight.Detach()))
		case styles[i] == "rowwise":
			layer = try.To(rowLayer(g, ctx, weight.Detach(), copied(bias), false))
		default:
			layer = try.To(columnLayer(g, ctx, weight.Detach(), copied(bias), styles[i] == "colwise_rep"))
		}
		layers = append(layers, layer)
	}
	try.Ok(g.agree(ctx, key, origin(c), "the ranks divide different layers, or layers of different weights", func() string {
		return strings.Join(each.UpTo(len(paths), func(i int) string { return paths[i] + ": " + styles[i] }), ", ")
	}))
	for i, name := range paths {
		try.Ok(m.Exchange(name, layers[i]))
	}
	return m, nil
}

func copied(t *tensor.Tensor) *tensor.Tensor {
	if t == nil {
		return nil
	}
	return try.To(tensor.Clone(t.Detach()))
}
