package distributed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// mesh is the ranks of the world in a grid with named dimensions, or some of its dimensions (PyTorch's DeviceMesh).
type mesh struct {
	starlib.Opaque
	groups *groups
	dims   []dimension
}

// dimension is one of a mesh: extent ranks that are stride apart in the world.
type dimension struct {
	name           string
	extent, stride int
	group          *Group // of this rank's neighbours along it
}

func (gs *groups) meshes() []*starlib.Def {
	return []*starlib.Def{{
		Sig: `init_device_mesh(shape: iterable, names: iterable, backends: dict = None, timeout: number = None) -> Mesh`,
		Doc: "The ranks of the world in a grid, of which the last dimension varies fastest: with shape (2, 4) and names\n" +
			"(\"dp\", \"tp\"), mesh[\"tp\"] is the group of this rank's four neighbours in a row, and mesh[\"dp\"] that of the two in\n" +
			"its column. The product of shape is the world size. Every rank calls it with the same arguments. backends names\n" +
			"other backends than the run's by dimension: {\"dp\": \"gloo\"}.",
		Fn: gs.initMesh,
	}}
}

func (gs *groups) initMesh(c *starlib.Call) (starlark.Value, error) {
	shape := try.To(startensor.Ints(c.Arg("shape").(starlark.Iterable)))
	names := try.To(texts(c, "names"))
	try.FailIf(len(shape) == 0 || len(shape) != len(names), "shape has %d dimensions and names has %d", len(shape), len(names))
	size := 1
	for i, n := range shape {
		try.FailIf(n < 1, "dimension %q has size %d", names[i], n)
		try.FailIf(names[i] == "" || slices.Contains(names[:i], names[i]), "dimension %d has the name %q: want names that differ", i, names[i])
		if size *= n; size > gs.rank.WorldSize {
			break
		}
	}
	try.FailIf(size != gs.rank.WorldSize, "a mesh of %s ranks does not fit the world, which has %d", product(shape), gs.rank.WorldSize)
	backends := try.To(gs.backendsOf(c, func(name string) string {
		if slices.Contains(names, name) {
			return name
		}
		return ""
	}, names))
	m := &mesh{Opaque: "Mesh", groups: gs, dims: make([]dimension, len(shape))}
	stride := 1
	for i := len(shape) - 1; i >= 0; i-- {
		m.dims[i] = dimension{name: names[i], extent: shape[i], stride: stride}
		stride *= shape[i]
	}
	for i := range m.dims {
		d := &m.dims[i]
		d.group = try.To(gs.split(c, along(gs.rank.WorldSize, *d), cmp.Or(backends[d.name], gs.all.backend)))
	}
	return m, nil
}

// product shows a shape as 2 · 3.
func product(shape []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", " · ")
}

// along divides the ranks 0 to size-1 into those that differ only in the given dimensions, of which the last varies fastest.
func along(size int, dims ...dimension) (parts [][]int) {
	for base := range size {
		if slices.ContainsFunc(dims, func(d dimension) bool { return base/d.stride%d.extent != 0 }) {
			continue
		}
		part := []int{base}
		for _, d := range dims {
			var next []int
			for _, r := range part {
				for i := range d.extent {
					next = append(next, r+i*d.stride)
				}
			}
			part = next
		}
		parts = append(parts, part)
	}
	return parts
}

var meshMethods = &starlib.Methods{
	Type: "Mesh",
	Doc: "Ranks in a grid with named dimensions. mesh[\"dp\"] is this rank's group along a dimension, and\n" +
		"mesh[\"dp\", \"tp\"] the mesh of these dimensions.",
	Attrs: [][2]string{{"names", "the names of its dimensions, a tuple"}, {"shape", "the sizes of its dimensions, a tuple"},
		{"ranks", "the ranks of the world that are in it with this rank, a list in order"}},
	Defs: []*starlib.Def{
		{Sig: `size(dim: string = None) -> int`, Doc: "How many ranks a dimension has, by default all together.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			m := c.Recv.(*mesh)
			if c.IsNone("dim") {
				return starlark.MakeInt(len(m.ranks())), nil
			}
			return starlark.MakeInt(try.To(m.dimension(c.String("dim"))).extent), nil
		}},
		{Sig: `rank(dim: string) -> int`, Doc: "This rank's place along a dimension.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			return starlark.MakeInt(try.To(c.Recv.(*mesh).dimension(c.String("dim"))).group.own), nil
		}},
		{Sig: `coordinate() -> tuple`, Doc: "This rank's place along each dimension.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			return c.Recv.(*mesh).each(func(d dimension) starlark.Value { return starlark.MakeInt(d.group.own) }), nil
		}},
		{Sig: `flatten(timeout: number = None) -> Group`, Doc: "The group of all its ranks, in order. Every rank of the world calls it.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			m := c.Recv.(*mesh)
			if len(m.dims) == 1 {
				return m.dims[0].group, nil
			}
			return m.groups.split(c, along(m.groups.rank.WorldSize, m.dims...), m.groups.all.backend)
		}},
	},
}

func (m *mesh) String() string {
	dims := each.Of(m.dims, func(d dimension) string { return fmt.Sprintf("%s: %d", d.name, d.extent) })
	return "mesh(" + strings.Join(dims, ", ") + ")"
}

// ranks returns the ranks that are in the mesh with this one.
func (m *mesh) ranks() []int {
	own := m.groups.rank.Rank
	for _, part := range along(m.groups.rank.WorldSize, m.dims...) {
		if slices.Contains(part, own) {
			return part
		}
	}
	return nil
}

func (m *mesh) each(of func(d dimension) starlark.Value) starlark.Tuple {
	return each.Of(m.dims, of)
}

func (m *mesh) dimension(name string) (dimension, error) {
	for _, d := range m.dims {
		if d.name == name {
			return d, nil
		}
	}
	names := each.Of(m.dims, func(d dimension) string { return d.name })
	return dimension{}, fmt.Errorf("the mesh has no dimension %q: want one of %s", name, strings.Trim(listText(names), "[]"))
}

// Get is mesh["dp"], a group, or mesh["dp", "tp"], a mesh.
func (m *mesh) Get(key starlark.Value) (_ starlark.Value, found bool, err error) {
	defer try.Caught(&err)
	if name, ok := starlark.AsString(key); ok {
		return try.To(m.dimension(name)).group, true, nil
	}
	names, ok := key.(starlark.Tuple)
	try.FailIf(!ok || len(names) == 0, "a mesh is indexed by the name of a dimension or by several, got %s", key.Type())
	part := &mesh{Opaque: m.Opaque, groups: m.groups}
	for _, v := range names {
		name, ok := starlark.AsString(v)
		try.FailIf(!ok, "a mesh is indexed by the names of dimensions, got %s", v.Type())
		d := try.To(m.dimension(name))
		try.FailIf(slices.ContainsFunc(part.dims, func(other dimension) bool { return other.name == name }), "dimension %q comes twice", name)
		part.dims = append(part.dims, d)
	}
	return part, true, nil
}

func (m *mesh) Attr(name string) (starlark.Value, error) {
	switch name {
	case "names":
		return m.each(func(d dimension) starlark.Value { return starlark.String(d.name) }), nil
	case "shape":
		return m.each(func(d dimension) starlark.Value { return starlark.MakeInt(d.extent) }), nil
	case "ranks":
		return intList(m.ranks()), nil
	}
	return meshMethods.Attr(m, name)
}

func (m *mesh) AttrNames() []string { return meshMethods.AttrNames() }

// inspections has the builtins that translate between ranks of the world and of a group.
func (w *World) inspections() []*starlib.Def {
	return []*starlib.Def{
		{Sig: `get_process_group_ranks(group: Group = None) -> list`, Doc: "The ranks of the world that are in a group, in order.", TopLevel: true,
			Fn: func(c *starlib.Call) (starlark.Value, error) { return intList(try.To(w.anyGroup(c)).ranks), nil }},
		{Sig: `get_group_rank(group: Group, global_rank: int) -> int`, Doc: "The number in a group of a rank of the world; an error if it is not in the group.", TopLevel: true,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				n, err := try.To(w.anyGroup(c)).member(c, "global_rank")
				return starlark.MakeInt(n), err
			}},
		{Sig: `get_global_rank(group: Group, group_rank: int) -> int`, Doc: "The rank of the world that has this number in a group.", TopLevel: true,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				g, n := try.To(w.anyGroup(c)), c.Int("group_rank")
				try.FailIf(n < 0 || n >= len(g.ranks), "group_rank %d: the group of %s has the ranks 0 to %d", n, collective.RankList(g.ranks), len(g.ranks)-1)
				return starlark.MakeInt(g.ranks[n]), nil
			}},
	}
}
