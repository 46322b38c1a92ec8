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
		Sig: `parallelize_module(module: Module, group: Group | Mesh, plan: dict, micro_batches: int = None, timeout: number = None) -> Module`,
		Doc: "Divides layers of a model over the ranks of a group, for example mesh[\"tp\"], and returns the model: plan maps paths\n" +
			"such as \"blocks.*.mix.query\", where * stands for any name, to \"colwise\" (a nn.linear becomes dist.column_linear, whose\n" +
			"output stays divided), \"colwise_rep\" (with gather_output), \"rowwise\" (dist.row_linear, or of a nn.embedding\n" +
			"dist.vocab_embedding) or \"rowwise_rep\" (whose input is not divided). Each rank keeps its part of the layer's weights,\n" +
			"which must be equal on all ranks; make the optimizer afterwards. The results are those of the whole layers but for\n" +
			"rounding. With a mesh, layers are divided along its dimension \"tp\", and a nn.sequential that the plan calls\n" +
			"\"pipeline\" along \"pp\": each rank keeps consecutive parts of it, and the model's calls go through them in\n" +
			"micro_batches parts of the batch, by default as many as there are ranks. What is not in it is computed by all of\n" +
			"them. Other dimensions are copies of the model: dist.sync_grad averages over these, and optim.clip_grad_norm\n" +
			"clips by the norm of the whole model. Within the model's calls the ranks of a copy draw the same random numbers.",
		Fn: w.parallelizeModule,
	}
}

// layout reads the argument group: which ranks divide the model's layers and stages, and which have copies of it. On a mesh, copy is
// the part of it whose ranks have one copy.
func (w *World) layout(c *starlib.Call) (of division, on, copy *mesh) {
	on, ok := c.Arg("group").(*mesh)
	if !ok {
		return division{layers: try.To(w.group(c))}, nil, nil
	}
	alone := &Group{Opaque: "Group", world: w, ranks: []int{w.rank.Rank}, backend: w.all.backend}
	of = division{layers: alone, stages: alone}
	copy = &mesh{groups: on.groups}
	others := &mesh{groups: on.groups}
	for _, d := range on.dims {
		switch d.name {
		case "tp":
			of.layers, copy.dims = d.group, append(copy.dims, d)
		case "pp":
			of.stages, copy.dims = d.group, append(copy.dims, d)
		default:
			others.dims = append(others.dims, d)
		}
	}
	switch {
	case len(on.ranks()) < w.rank.WorldSize: // a part of a mesh
	case len(others.dims) == 0:
		of.copies = alone
	case len(others.dims) == 1:
		of.copies = others.dims[0].group
	default:
		of.copies = try.To(w.groups.split(c, along(w.rank.WorldSize, others.dims...), w.all.backend))
	}
	return of, on, copy
}

func (w *World) parallelizeModule(c *starlib.Call) (starlark.Value, error) {
	m, ctx := c.Arg("module").(*nn.Model), try.To(w.until(c))
	of, on, copy := w.layout(c)
	g := of.layers
	var paths, styles, pipelines []string
	for key, v := range c.Arg("plan").(*starlark.Dict).Entries() {
		pattern, isPath := starlark.AsString(key)
		style, isStyle := starlark.AsString(v)
		try.FailIf(!isPath || !isStyle || !slices.Contains(planStyles, style), "plan[%s] = %s: want a path, and one of %s", key, v, strings.Trim(listText(planStyles), "[]"))
		dim := "tp"
		if style == "pipeline" {
			dim = "pp"
		}
		if on == nil {
			try.FailIf(dim == "pp", "plan[%s]: a pipeline needs a mesh with a dimension \"pp\"", key)
		} else {
			try.To(on.dimension(dim))
		}
		found := false
		for _, name := range m.Paths() {
			if ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(name, ".", "/")); err != nil || !ok {
				continue
			}
			try.FailIf(slices.Contains(paths, name) || slices.Contains(pipelines, name), "two entries of plan match %s", name)
			if found = true; style == "pipeline" {
				pipelines = append(pipelines, name)
			} else {
				paths, styles = append(paths, name), append(styles, style)
			}
		}
		try.FailIf(!found, "plan: no module has the path %q: the model has %s", pattern, strings.Join(m.Paths(), ", "))
	}
	var layers []*nn.Model
	var weights []*tensor.Tensor
	key := fmt.Appendf(nil, "%v %v", pipelines, c.Arg("micro_batches"))
	for i, name := range paths {
		kind, weight, bias := m.At(name).Layer()
		shape, divided := []int(nil), 0
		if weight != nil {
			shape = weight.Shape()
		}
		switch {
		case kind == "linear" && strings.HasPrefix(styles[i], "rowwise"):
			divided = 1
		case kind == "linear", kind == "embedding" && styles[i] == "rowwise":
		default:
			return nil, fmt.Errorf("plan: %s is nn.%s, which cannot be divided %s: want nn.linear, or nn.embedding rowwise", name, kind, styles[i])
		}
		try.FailIf(shape[divided]%g.Size() != 0, "plan: %s has a weight of shape %s, and %d is not divisible by the group's %d ranks", name, tensor.ShapeString(shape), shape[divided], g.Size())
		for _, t := range []*tensor.Tensor{weight, bias} {
			if t != nil {
				weights = append(weights, t)
				key = fmt.Appendf(key, "%s %s %v %016x\n", name, styles[i], t.Shape(), fnv(try.To(tensor.Contiguous(t.Detach())).Content()))
			}
		}
		var layer *nn.Model
		switch {
		case kind == "embedding":
			layer = try.To(wordLayer(g, ctx, weight.Detach()))
		case divided == 1:
			layer = try.To(rowLayer(g, ctx, weight.Detach(), copied(bias), styles[i] == "rowwise_rep"))
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
	names, params := m.Parameters()
	for i, p := range params {
		try.FailIf(slices.Contains(weights, p), "plan: %s is the weight of a layer that is divided, too: give each its own, or divide neither", names[i])
	}
	if on != nil {
		try.Ok(w.intoStages(c, ctx, m, of, pipelines))
		if ranks := copy.ranks(); len(ranks) > 1 {
			w.Divided.places = append(w.Divided.places, fmt.Sprintf("tp %d of %d, pp %d of %d", of.layers.own, of.layers.Size(), of.stages.own, of.stages.Size()))
			m.Wrap(func(_ *starlark.Thread, compute func() (starlark.Value, error)) (starlark.Value, error) {
				return w.sameDraws(ranks, compute)
			})
		}
	}
	return m, nil
}

// intoStages puts a model on a mesh: its pipelines are spread, and its parameters know how it is divided.
func (w *World) intoStages(c *starlib.Call, ctx *collective.WaitLimit, m *nn.Model, of division, pipelines []string) (err error) {
	defer try.Caught(&err)
	micros := of.stages.Size()
	if !c.IsNone("micro_batches") {
		micros = c.Int("micro_batches")
	}
	try.FailIf(micros < 1, "argument micro_batches: want at least 1, got %d", micros)
	names, all := m.Parameters()
	for i, p := range all {
		try.FailIf(p.Claimed(), "parameter %s already belongs to an optimizer or dist.ddp: make the optimizer afterwards", names[i])
	}
	place(all, of, false, false)
	for _, path := range pipelines {
		shared := m.Shared(path)
		try.FailIf(shared != "", "plan: %s is a parameter or buffer of the pipeline %s, too: give each its own", shared, path)
		part := m.At(path)
		try.Ok(spreadStages(of.stages, of.layers, ctx, part, path, micros))
		_, kept := part.Parameters()
		place(kept, of, false, of.stages.Size() > 1)
	}
	return nil
}

var planStyles = []string{"colwise", "colwise_rep", "rowwise", "rowwise_rep", "pipeline"}

func copied(t *tensor.Tensor) *tensor.Tensor {
	if t == nil {
		return nil
	}
	return try.To(tensor.Clone(t.Detach()))
}
