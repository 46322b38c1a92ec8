package distributed

import (
	"fmt"
	"slices"
	"strings"

	"drun/collective"
	"drun/starlib"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// Group is some ranks of the world, in order.
type Group struct {
	world *World
	id    uint32
	ranks []int           // of the world
	own   int             // this rank's place among them, -1 outside
	comm  collective.Comm // nil for a group of one, and outside

	// The synchronous call in progress uses these.
	call    collective.Call
	operand operand

	places []string // where the ranks were when compare found a difference
}

var _ starlark.HasAttrs = (*Group)(nil)

func (g *Group) String() string {
	return "group(" + listText(g.ranks) + ")"
}

// Type is the name that signatures use.
func (g *Group) Type() string { return "Group" }

// Freeze does nothing: a group does not change.
func (g *Group) Freeze() {}

// Truth is always true.
func (g *Group) Truth() starlark.Bool { return true }

// Hash is the group's number.
func (g *Group) Hash() (uint32, error) { return g.id, nil }

// Rank is this rank's place in the group, -1 outside.
func (g *Group) Rank() int { return g.own }

// Size is the number of ranks.
func (g *Group) Size() int { return len(g.ranks) }

// Ranks lists the ranks of the world that are in the group, in its order.
func (g *Group) Ranks() []int { return g.ranks }

// Attr gives ranks and the methods.
func (g *Group) Attr(name string) (starlark.Value, error) {
	if name == "ranks" {
		return intList(g.ranks), nil
	}
	return groupMethods.Attr(g, name)
}

// AttrNames lists them.
func (g *Group) AttrNames() []string { return groupMethods.AttrNames() }

var groupMethods = &starlib.Methods{
	Type:  "Group",
	Doc:   "Some ranks of the world.",
	Attrs: [][2]string{{"ranks", "the ranks of the world that are in it, a list in order"}},
	Defs: []*starlib.Def{
		{Sig: `rank() -> int`, Doc: "This rank's place in the group, or -1 outside.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			return starlark.MakeInt(c.Recv.(*Group).own), nil
		}},
		{Sig: `size() -> int`, Doc: "How many ranks it has.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			return starlark.MakeInt(len(c.Recv.(*Group).ranks)), nil
		}},
	},
}

// anyGroup reads the argument group, where None is the world.
func (w *World) anyGroup(c *starlib.Call) (*Group, error) {
	if c.IsNone("group") {
		return w.all, nil
	}
	g, ok := c.Arg("group").(*Group)
	if !ok {
		return nil, fmt.Errorf("argument group: want a Group, got %s", c.Arg("group").Type())
	}
	return g, nil
}

// group reads the argument group, of which this rank must be a member.
func (w *World) group(c *starlib.Call) (*Group, error) {
	g, err := w.anyGroup(c)
	if err == nil && g.own < 0 {
		return nil, fmt.Errorf("rank %d is not a member of the group of %s", w.rank.Rank, collective.RankList(g.ranks))
	}
	return g, err
}

// member reads an argument that is a rank of the world as a place in the group.
func (g *Group) member(c *starlib.Call, name string) (int, error) {
	n := c.Int(name)
	if n < 0 || n >= g.world.rank.WorldSize {
		return 0, fmt.Errorf("%s %d is not a rank: valid are 0 to %d", name, n, g.world.rank.WorldSize-1)
	}
	at := slices.Index(g.ranks, n)
	if at < 0 {
		return 0, fmt.Errorf("%s %d is not in the group of %s", name, n, collective.RankList(g.ranks))
	}
	return at, nil
}

func (w *World) grouping() []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: `new_group(ranks: iterable, backend: string = None, timeout: number = None) -> Group`,
			Doc: "A group of these ranks of the world, in this order. Every rank of the world calls it with the same\n" +
				"ranks; those outside the group get it too, and their rank in it is -1. Groups may overlap.",
			Fn: w.newGroup,
		},
		{
			Sig: `new_subgroups(size: int, timeout: number = None) -> Group`,
			Doc: "Divides the world into groups of size consecutive ranks and returns this rank's. size must divide\n" +
				"the world size.",
			Fn: w.newSubgroups,
		},
		{
			Sig: `local_group(timeout: number = None) -> Group`,
			Doc: "The group of the ranks on this rank's node, in the order of their local ranks. It does not wait for\n" +
				"other ranks.",
			Fn: func(*starlib.Call) (starlark.Value, error) { return w.local, nil },
		},
		{
			Sig: `init_parallelism(model: int = 1, pipeline: int = 1, timeout: number = None, rank_offset: int = 0) -> struct`,
			Doc: "This rank's groups for tensor (mp), pipeline (pp) and data parallelism (dp), as a struct. The model\n" +
				"dimension varies fastest, then pipeline, then data. Call it once; model · pipeline must divide the\n" +
				"world size. With rank_offset the ranks before that number stay out, to serve parameters or data: all\n" +
				"ranks call it, theirs in each group is -1, and the ranks from there on are what is divided.",
			Fn: w.initParallelism,
		},
		{
			Sig: `copy_to_group(x: Tensor, group: Group = None, timeout: number = None) -> Tensor`,
			Doc: "Tensor parallelism: x itself; in backward its gradient is summed over the group.",
			Fn:  w.inGroup(w.copyToGroup),
		},
		{
			Sig: `reduce_from_group(x: Tensor, group: Group = None, timeout: number = None) -> Tensor`,
			Doc: "Tensor parallelism: the sum of x over the group. In backward its gradient is passed to every rank\n" +
				"unchanged.",
			Fn: w.inGroup(w.reduceFromGroup),
		},
		{
			Sig: `shard(t: Tensor, dim: int, group: Group = None) -> Tensor`,
			Doc: "This rank's part of t along dimension dim, as a copy. The group's size must divide the size of that\n" +
				"dimension.",
			Fn: w.shard,
		},
	}
}

func (w *World) newGroup(c *starlib.Call) (starlark.Value, error) {
	ranks := starlib.Must(startensor.Ints(c.Arg("ranks").(starlark.Iterable)))
	if len(ranks) == 0 {
		return nil, fmt.Errorf("a group needs at least one rank")
	}
	if err := collective.CheckRanks(ranks, w.rank.WorldSize); err != nil {
		return nil, err
	}
	if !c.IsNone("backend") && c.String("backend") != w.backend {
		return nil, fmt.Errorf("argument backend: this run has %q only", w.backend)
	}
	return w.split(c, [][]int{ranks})
}

func (w *World) newSubgroups(c *starlib.Call) (starlark.Value, error) {
	size := c.Int("size")
	if size < 1 || w.rank.WorldSize%size != 0 {
		return nil, fmt.Errorf("the size of the subgroups, %d, must divide the world size, %d", size, w.rank.WorldSize)
	}
	return w.subgroups(c, size)
}

// subgroups divides the world into groups of neighbours.
func (w *World) subgroups(c *starlib.Call, size int) (starlark.Value, error) {
	var parts [][]int
	for part := range slices.Chunk(w.all.ranks, size) {
		parts = append(parts, part)
	}
	return w.split(c, parts)
}

// split makes disjoint groups at once and returns this rank's, or the first
// where it is in none.
func (w *World) split(c *starlib.Call, parts [][]int) (starlark.Value, error) {
	ctx := starlib.Must(w.until(c))
	w.groups++
	mine := parts[0]
	for _, part := range parts {
		if slices.Contains(part, w.rank.Rank) {
			mine = part
		}
	}
	g := &Group{world: w, id: w.groups, ranks: mine, own: slices.Index(mine, w.rank.Rank)}
	if w.all.comm == nil {
		return g, nil
	}
	err := w.agreeOnParts(ctx, parts, origin(c))
	if err == nil {
		g.comm, err = w.all.comm.Split(ctx, collective.Group{ID: g.id, Ranks: mine, Origin: origin(c)})
	}
	return g, err
}

// agreeOnParts checks that all ranks of the world make the same groups: a rank
// that took another for a member would wait for it until the timeout.
func (w *World) agreeOnParts(ctx *collective.WaitLimit, parts [][]int, at collective.Origin) error {
	return w.all.agree(ctx, fmt.Append(nil, parts), at, "the ranks make different groups", func(key []byte) string {
		return "[" + strings.ReplaceAll(strings.Trim(string(key), "[]"), "] [", "], [") + "]"
	})
}

func intList(ns []int) *starlark.List {
	values := make([]starlark.Value, len(ns))
	for i, n := range ns {
		values[i] = starlark.MakeInt(n)
	}
	return starlark.NewList(values)
}
