// Package distributed connects a recipe with the other ranks: which rank it is, the collectives, messages, groups,
// and helpers built on them. Names and meanings follow torch.distributed, detectron2's comm and flashy's distrib. The
// ranks are reached through a collective.Comm, which engine/worker provides; in a group of one rank there is none,
// and every collective is the identity.
package distributed

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"drun/collective"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/random"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// World is one rank's access to the others.
type World struct {
	rank    *starlib.Rank
	all     *Group          // the group of all ranks
	local   *Group          // the ranks of this rank's node
	ctx     context.Context // ends when the run is aborted
	tensors *tensor.Context
	random  *tensor.Generator // the random stream that all ranks share
	streams *random.Streams
	largest int // the most bytes of plain values in one call

	within  *collective.WaitLimit // for calls without a timeout of their own
	forever *collective.WaitLimit // for receives

	groups   groups
	rpc      rpc
	memory   callMemory
	pending  []*Work // asynchronous calls that may be under way
	wrapped  wrappedModules
	receives map[route][]*receive // irecvs that wait for their message, oldest first

	Divided Divided // models, as checkpoints say

	disk      *tensor.Pool // what is kept on disk instead of in memory; nil: nothing yet
	coalesced *coalesced   // nil: each call is made at once
	joining   bool         // within dist.join
}

// Config is what a World is made of.
type Config struct {
	Rank    *starlib.Rank
	Comm    collective.Comm // nil in a world of one rank
	Store   Store           // nil if a recipe is only checked
	Backend string
	// OpenGroup makes the Comm of a group with another backend; nil: there is no other.
	OpenGroup func(ctx context.Context, backend string, group collective.Group) (collective.Comm, error)
	// LeaveGroup leaves a group that its ranks destroy, before its Comm is closed; last is this rank's last wait on it.
	// nil: there is nothing to do.
	LeaveGroup func(ctx context.Context, group uint32, ranks []int, last func() error) error
	Timeout    time.Duration // of calls without one of their own
	Tensors    *tensor.Context
	Streams    *random.Streams
}

// New makes the dist module. Waits end with ctx.
func New(ctx context.Context, c Config) (*World, *starlib.Module) {
	w := &World{
		rank: c.Rank, ctx: ctx, tensors: c.Tensors, random: c.Streams.Shared.Stream, streams: c.Streams,
		within: collective.Within(ctx, c.Timeout), forever: collective.Within(ctx, 0),
		receives: map[route][]*receive{}, largest: memory.LargestValue() / 5 * 4, // the receiver holds the value and its bytes at once
	}
	w.groups = groups{World: w, open: c.OpenGroup, leave: c.LeaveGroup}
	w.rpc = rpc{World: w, kept: map[int64]starlark.Value{}}
	if c.LeaveGroup == nil {
		w.groups.leave = func(_ context.Context, _ uint32, _ []int, last func() error) error { return last() }
	}
	w.all = &Group{Opaque: "Group", world: w, ranks: collective.AllRanks(c.Rank.WorldSize), own: c.Rank.Rank, comm: c.Comm, backend: c.Backend}
	w.local = w.all
	w.memory.useArena(w)
	m := &starlib.Module{
		Name: "dist",
		Doc: "The other ranks. Every collective is called by all ranks of the group in the same order; if they\n" +
			"disagree, all of them get an error with a table of who called what, and where. Roots and peers\n" +
			"are ranks of the world. group defaults to all ranks, timeout, in seconds, to the run's (--timeout).",
		Types:  []*starlib.Methods{groupMethods, meshMethods, workMethods, ddpMethods, fsdpMethods, storeMethods, hookMethods, joinHookMethods, pipelineMethods, referenceMethods},
		Values: starlark.StringDict{"store": &storeValue{"store", w, c.Store, nil}, "hooks": &hooks{"hooks"}},
	}
	for _, defs := range [][]*starlib.Def{identity(w), collectives(w), exchanges(w), fillers(w), reduceOps(), coalescing(w), unevenInputs(w), pointToPoint(w), helpers(w), w.groups.defs(), w.groups.meshes(), w.inspections(), tensorParallelism(w), wrappers(w), parallelLayers(w), pipelining(w), w.rpc.defs(), dataParallelism(w), sequenceParallelism(w), syncNorms(w)} {
		m.Defs = append(m.Defs, defs...)
	}
	return w, m
}

// FormNodeGroup makes the group of the ranks on this rank's node, if there are several nodes. All ranks call it
// before the recipe starts, so that work within a node never waits for another node later.
func (w *World) FormNodeGroup(ctx context.Context) error {
	if w.rank.NumNodes < 2 {
		return nil
	}
	w.groups.made++
	peers := w.rank.Peers
	w.local = &Group{Opaque: "Group", world: w, id: w.groups.made, ranks: peers, own: slices.Index(peers, w.rank.Rank), backend: w.all.backend}
	var err error
	w.local.comm, err = w.all.comm.Split(ctx, collective.Group{ID: w.local.id, Ranks: peers, Internal: true})
	return err
}

// identity has the builtins that say which rank this is.
func identity(w *World) []*starlib.Def {
	constant := func(sig, doc string, v starlark.Value) *starlib.Def {
		return &starlib.Def{Sig: sig, Doc: doc, TopLevel: true,
			Fn: func(*starlib.Call) (starlark.Value, error) { return v, nil }}
	}
	ofGroup := func(sig, doc string, get func(*Group) int) *starlib.Def {
		return &starlib.Def{Sig: sig, Doc: doc, TopLevel: true,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				g := try.To(w.anyGroup(c))
				return starlark.MakeInt(get(g)), nil
			}}
	}
	r := w.rank
	return []*starlib.Def{
		ofGroup(`rank(group: Group = None) -> int`, "This rank's number, from 0; with a group, its number within it, or -1 if it is not a member.", (*Group).Rank),
		ofGroup(`world_size(group: Group = None) -> int`, "How many ranks there are.", (*Group).Size),
		constant(`local_rank() -> int`, "This rank's number on its node.", starlark.MakeInt(r.LocalRank)),
		constant(`local_size() -> int`, "How many ranks this node has.", starlark.MakeInt(r.LocalSize)),
		constant(`node_rank() -> int`, "This node's number.", starlark.MakeInt(r.NodeRank)),
		constant(`num_nodes() -> int`, "How many nodes there are.", starlark.MakeInt(r.NumNodes)),
		constant(`is_distributed() -> bool`, "Whether there is more than one rank.", starlark.Bool(r.WorldSize > 1)),
		constant(`is_main() -> bool`, "Whether this is rank 0.", starlark.Bool(r.Rank == 0)),
		{Sig: `backend(group: Group = None) -> string`, TopLevel: true,
			Doc: "The name of the group's backend: \"shm\", \"gloo\", ….",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return starlark.String(try.To(w.anyGroup(c)).backend), nil
			}},
	}
}

func (w *World) drawSeed() int64 {
	n, err := w.random.RandInt(w.tensors, 0, 1<<31, []int{1}, dtype.Int64)
	if err != nil {
		return 0 // cannot happen: one element can always be allocated
	}
	return int64(binary.NativeEndian.Uint64(n.Bytes()))
}

// A DisagreementError says that ranks called a helper with incompatible arguments. All ranks get the same error.
type DisagreementError struct{ Msg string }

func (e *DisagreementError) Error() string       { return e.Msg }
func (e *DisagreementError) ExitCode() exit.Code { return exit.Mismatch }
