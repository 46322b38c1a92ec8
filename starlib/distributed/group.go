package distributed

import (
	"context"
	"errors"
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

// Group is a list of ranks of the world.
type Group struct {
	starlib.Opaque
	world   *World
	id      uint32
	ranks   []int           // of the world
	own     int             // this rank's number among them, -1 outside
	comm    collective.Comm // nil for a group of one, and outside
	backend string

	// The synchronous call in progress uses these.
	call    collective.Call
	operand operand
	key     []byte // memory for the keys that ranks compare

	arguments uint64 // passed with the next call that do makes, see compareWith

	places []string // where the ranks were when compare found a difference
}

func (g *Group) String() string {
	return "group(" + listText(g.ranks) + ")"
}

func (g *Group) Hash() (uint32, error) { return g.id, nil }
func (g *Group) Rank() int             { return g.own }
func (g *Group) Size() int             { return len(g.ranks) }

// Ranks returns the group's members, as ranks of the world, in order.
func (g *Group) Ranks() []int { return g.ranks }

func (g *Group) Attr(name string) (starlark.Value, error) {
	if name == "ranks" {
		return intList(g.ranks), nil
	}
	return groupMethods.Attr(g, name)
}

func (g *Group) AttrNames() []string { return groupMethods.AttrNames() }

var groupMethods = &starlib.Methods{
	Type:  "Group",
	Doc:   "Some ranks of the world.",
	Attrs: [][2]string{{"ranks", "the ranks of the world that are in it, a list in order"}},
	Defs: []*starlib.Def{
		{Sig: `rank() -> int`, Doc: "This rank's number in the group, or -1 outside.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			return starlark.MakeInt(c.Recv.(*Group).own), nil
		}},
		{Sig: `size() -> int`, Doc: "How many ranks it has.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			return starlark.MakeInt(len(c.Recv.(*Group).ranks)), nil
		}},
	},
}

// anyGroup reads the argument group; None is the world.
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

// member reads an argument that is a rank of the world, and returns its number in the group.
func (g *Group) member(c *starlib.Call, name string) (int, error) {
	n := c.Int(name)
	if n < 0 || n >= g.world.rank.WorldSize {
		return 0, fmt.Errorf("%s %d is not a rank: ranks are 0 to %d", name, n, g.world.rank.WorldSize-1)
	}
	at := slices.Index(g.ranks, n)
	if at < 0 {
		return 0, fmt.Errorf("%s %d is not in the group of %s", name, n, collective.RankList(g.ranks))
	}
	return at, nil
}

// groups makes the groups of the world, and ends them.
type groups struct {
	*World
	// open makes the Comm of a group with another backend; nil: there is no other.
	open func(ctx context.Context, backend string, group collective.Group) (collective.Comm, error)
	// leave leaves a group before its Comm is closed; last is this rank's last wait on it.
	leave    func(ctx context.Context, group uint32, ranks []int, last func() error) error
	made     uint32 // so far: the next ID is one more
	parallel bool   // init_parallelism was called

	begun *collective.Position // where init_process_group was called; nil: it was not
}

func (gs *groups) defs() []*starlib.Def {
	return []*starlib.Def{
		{Sig: `new_group(ranks: iterable, backend: string = None, timeout: number = None) -> Group`, Fn: gs.newGroup,
			Doc: "A group of these ranks of the world, in this order. Every rank of the world must call it with the same\n" +
				"ranks and the same backend; those outside the group get it too, with rank -1. Groups may\n" +
				"overlap. backend names another backend than the run's for the group's collectives and messages, such\n" +
				"as \"gloo\": a plugin that is not found, or cannot run here, is an error on all ranks."},
		{Sig: `init_process_group(backend: string = None, timeout: number = None)`, Fn: gs.initProcessGroup,
			Doc: "Chooses another backend than the run's for everything that follows. drun has already connected the ranks, so a\n" +
				"recipe that uses --backend does not need it. Every rank calls it once, with the same name, before\n" +
				"anything else that needs other ranks."},
		{Sig: `destroy_process_group(group: Group, timeout: number = None)`, Fn: gs.destroyGroup,
			Doc: "Ends a group that is no longer needed, and the plugins of its own backend, which would otherwise\n" +
				"run until the run ends. All its ranks must call it, and wait for each other and for their calls in progress;\n" +
				"on other ranks it does nothing. Afterwards the group, and whatever was made with it, cannot be used.\n" +
				"The world cannot be destroyed: drun ends it."},
		{Sig: `new_subgroups(size: int, timeout: number = None) -> Group`, Fn: gs.newSubgroups,
			Doc: "Divides the world into groups of size consecutive ranks and returns this rank's. size must divide\n" +
				"the world size."},
		{Sig: `new_subgroups_by_enumeration(ranks_per_subgroup_list: iterable, backend: string = None, timeout: number = None) -> Group`,
			Doc: "Makes several groups at once from lists of ranks of the world, no rank in two of them, and returns this rank's;\n" +
				"a rank in none gets the first, with rank -1. Every rank of the world calls it with the same lists.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return gs.enumerated(c, gs.all, c.Arg("ranks_per_subgroup_list"))
			}},
		{Sig: `split_group(parent_pg: Group = None, split_ranks: iterable = None, backend: string = None, timeout: number = None) -> Group`,
			Doc: "Like new_subgroups_by_enumeration, with lists of numbers in the group parent_pg, by default the world.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				parent := gs.all
				if !c.IsNone("parent_pg") {
					parent = c.Arg("parent_pg").(*Group)
				}
				try.FailIf(c.IsNone("split_ranks"), "argument split_ranks: want a list of lists of ranks")
				return gs.enumerated(c, parent, c.Arg("split_ranks"))
			}},
		{Sig: `local_group(timeout: number = None) -> Group`, Fn: func(*starlib.Call) (starlark.Value, error) { return gs.local, nil },
			Doc: "The group of the ranks on this rank's node, in the order of their local ranks. It does not wait for\n" +
				"other ranks."},
		{Sig: `init_parallelism(model: int = 1, pipeline: int = 1, timeout: number = None, rank_offset: int = 0, backends: dict = None) -> struct`, Fn: gs.initParallelism,
			Doc: "This rank's groups for tensor (mp), pipeline (pp) and data parallelism (dp), as a struct. The model\n" +
				"dimension varies fastest, then pipeline, then data. Call it once; model · pipeline must divide the\n" +
				"world size. With rank_offset the ranks below that number are left out, to serve parameters or data: all\n" +
				"ranks call it, but these have rank -1 in each group, and only the others are divided. backends\n" +
				"names other backends than the run's by dimension: {\"dp\": \"gloo\"}."},
	}
}

func (gs *groups) newGroup(c *starlib.Call) (starlark.Value, error) {
	ranks := try.To(startensor.Ints(c.Arg("ranks").(starlark.Iterable)))
	try.FailIf(len(ranks) == 0, "a group needs at least one rank")
	try.Ok(collective.CheckRanks(ranks, gs.rank.WorldSize))
	backend := try.To(gs.argBackend(c))
	return gs.split(c, [][]int{ranks}, backend)
}

func (gs *groups) argBackend(c *starlib.Call) (string, error) {
	if c.IsNone("backend") {
		return gs.all.backend, nil
	}
	name := c.String("backend")
	if err := gs.checkBackend(name); err != nil {
		return "", fmt.Errorf("argument backend: %w", err)
	}
	return name, nil
}

// checkBackend checks the name of a group's backend, as far as this rank can by itself.
func (gs *groups) checkBackend(name string) error {
	const most = 64 // what the status board shows
	switch {
	case name == "":
		return errors.New("want the name of a backend, such as \"gloo\", got \"\"")
	case len(name) > most:
		return fmt.Errorf("a backend's name has at most %d bytes, but this one has %d", most, len(name))
	case gs.open == nil && name != gs.all.backend && gs.all.comm != nil:
		return fmt.Errorf("this run has no backend but %q", gs.all.backend)
	}
	return nil
}

func (gs *groups) initProcessGroup(c *starlib.Call) (starlark.Value, error) {
	at := origin(c)
	try.FailIf(gs.begun != nil, "it was called before, at %s: a run has one world, which drun ends", gs.begun)
	backend := try.To(gs.argBackend(c))
	gs.begun = &at.Pos
	all := [][]int{gs.all.ranks}
	if backend == gs.all.backend {
		return starlark.None, gs.agreeOnParts(try.To(gs.until(c)), all, backend, at)
	}
	try.FailIf(gs.all.comm != nil && gs.all.call.Kind != collective.NoKind || len(gs.pending) > 0 || len(gs.receives) > 0, "call it before anything that needs other ranks: they have already started with the backend %q", gs.all.backend)
	g := try.To(gs.split(c, all, backend))
	gs.all.comm, gs.all.backend = g.comm, backend
	gs.memory.useArena(gs.World)
	return starlark.None, nil
}

func (gs *groups) newSubgroups(c *starlib.Call) (starlark.Value, error) {
	size := c.Int("size")
	try.FailIf(size < 1 || gs.rank.WorldSize%size != 0, "the size of the subgroups, %d, must divide the world size, %d", size, gs.rank.WorldSize)
	parts := slices.Collect(slices.Chunk(gs.all.ranks, size))
	return gs.split(c, parts, gs.all.backend)
}

// enumerated makes the groups that lists of numbers in the group parent name.
func (gs *groups) enumerated(c *starlib.Call, parent *Group, lists starlark.Value) (starlark.Value, error) {
	backend := try.To(gs.argBackend(c))
	var sets [][]int
	at := map[int]int{}
	for v := range starlark.Elements(lists.(starlark.Iterable)) {
		list, ok := v.(starlark.Iterable)
		try.FailIf(!ok, "want lists of ranks, got %s", v.Type())
		numbers := try.To(startensor.Ints(list))
		try.FailIf(len(numbers) == 0, "a group needs at least one rank")
		try.Ok(collective.CheckRanks(numbers, len(parent.ranks)))
		set := make([]int, len(numbers))
		for i, n := range numbers {
			other, twice := at[n]
			try.FailIf(twice, "rank %d is in the lists %d and %d", n, other, len(sets))
			at[n], set[i] = len(sets), parent.ranks[n]
		}
		sets = append(sets, set)
	}
	try.FailIf(len(sets) == 0, "there are no lists of ranks")
	return gs.split(c, sets, backend)
}

// split makes disjoint groups at once, with the given backend, and returns this rank's, or the first if it is in none.
func (gs *groups) split(c *starlib.Call, sets [][]int, backend string) (*Group, error) {
	ctx := try.To(gs.until(c))
	gs.made++
	mine := sets[0]
	for _, set := range sets {
		if slices.Contains(set, gs.rank.Rank) {
			mine = set
		}
	}
	g := &Group{Opaque: "Group", world: gs.World, id: gs.made, ranks: mine, own: slices.Index(mine, gs.rank.Rank), backend: backend}
	if gs.all.comm == nil {
		return g, nil
	}
	err := gs.agreeOnParts(ctx, sets, backend, origin(c))
	if err == nil {
		g.comm, err = gs.all.comm.Split(ctx, gs.over(g, origin(c)))
	}
	return g, err
}

// over returns the group as it is requested from the world's Comm. A group of one rank has nothing to exchange, so it needs no
// backend of its own.
func (gs *groups) over(g *Group, at collective.Origin) collective.Group {
	of := collective.Group{ID: g.id, Ranks: g.ranks, Origin: at}
	if g.backend != gs.all.backend && len(g.ranks) > 1 {
		of.Backend = g.backend
		of.Open = func(ctx context.Context) (collective.Comm, error) {
			if g.own < 0 {
				return nil, nil
			}
			return gs.open(ctx, g.backend, of)
		}
	}
	return of
}

// agreeOnParts checks that all ranks of the world make the same groups with the same backend:
// a rank that mistook another for a member would wait for it until the timeout.
func (gs *groups) agreeOnParts(ctx *collective.WaitLimit, parts [][]int, backend string, at collective.Origin) error {
	texts, err := gs.all.compare(ctx, fmt.Appendf(nil, "%d %s", parts, backend), nil, at)
	if err != nil || texts == nil {
		return err
	}
	var lines, backends []string
	for _, text := range texts {
		sets, name, _ := strings.Cut(text, "]] ")
		lines = append(lines, strings.ReplaceAll(sets[1:], "] [", "], [")+"]")
		backends = append(backends, name)
	}
	what := "the ranks make different groups"
	if slices.ContainsFunc(backends, func(name string) bool { return name != backend }) {
		what = "the ranks make a group with different backends"
		for i := range lines {
			lines[i] += fmt.Sprintf(", backend %q", backends[i])
		}
	}
	return gs.all.disagree(what, lines)
}

func intList(ns []int) *starlark.List {
	return starlark.NewList(each.Of(ns, func(n int) starlark.Value { return starlark.MakeInt(n) }))
}

// destroyed is the Comm of a destroyed group: every call fails.
type destroyed struct {
	collective.Comm // for its rank and size
	err             error
}

func (d *destroyed) Start(*collective.Call) (collective.Work, error) { return nil, d.err }

// destroyGroup ends a group. Its ranks leave together: by then all calls have completed and all messages have been
// received, so the group's own backend can be closed at once.
func (gs *groups) destroyGroup(c *starlib.Call) (starlark.Value, error) {
	g := try.To(gs.anyGroup(c))
	ctx := try.To(gs.until(c))
	try.FailIf(g == gs.all || g == gs.local, "drun itself ends the world and the groups of nodes: leave this call out")
	if g.own < 0 || g.comm == nil {
		return starlark.None, nil
	}
	if d, over := g.comm.(*destroyed); over {
		return nil, d.err
	}
	for route, queue := range gs.receives {
		try.FailIf(route.group == g, "the group is still receiving: the irecv at %s has not been waited for", queue[0].at.Pos)
	}
	at := origin(c)
	last := func() error { return gs.lastOf(ctx, g, at) }
	try.Ok(gs.leave(ctx, g.id, g.ranks, last))
	comm := g.comm
	g.comm = &destroyed{comm, fmt.Errorf("the group of %s was destroyed at %s", collective.RankList(g.ranks), at.Pos)}
	if g.backend == gs.all.backend {
		return starlark.None, nil // it uses the world's connections
	}
	return starlark.None, comm.Close()
}

// lastOf waits for the calls that this rank has started on a group, and for the other ranks.
func (gs *groups) lastOf(ctx context.Context, g *Group, at collective.Origin) error {
	for _, work := range gs.pending {
		if work.group != g || work.over {
			continue
		}
		err := work.wait(work.ctx)
		if err != nil {
			return fmt.Errorf("%s: %s, which was not waited for: %w", work.at, work.what, err)
		}
		work.wait, work.done = nil, func() bool { return true }
	}
	return g.do(ctx, collective.NewBarrier(), at)
}
