// Package dist is what a recipe knows of the other ranks: who it is among them,
// the collectives, and helpers built on them. Names and meanings follow
// torch.distributed, detectron2's comm and flashy's distrib. The ranks are
// reached through a collective.Comm, which engine/worker provides; with one
// rank there is none, and every collective is the identity.
package dist

import (
	"context"
	"fmt"
	"time"

	"drun/collective"
	"drun/starlib"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// World is one rank's access to the others.
type World struct {
	rank    *starlib.Rank
	comm    collective.Comm // nil when the world is one rank
	backend string
	ctx     context.Context // ends when the run is aborted
	tensors *tensor.Context

	limit    time.Duration // the run's default for every wait
	patience *collective.Patience
	staging  []byte // where scattered gradients meet; kept for the next step
}

// New makes the dist module. comm may be nil for a world of one rank. Every wait
// ends after limit unless the call says otherwise.
func New(ctx context.Context, rank *starlib.Rank, comm collective.Comm, backend string, limit time.Duration, tensors *tensor.Context) (*World, *starlib.Module) {
	w := &World{
		rank: rank, comm: comm, backend: backend, ctx: ctx, tensors: tensors,
		limit: limit, patience: collective.Within(ctx, limit),
	}
	return w, &starlib.Module{
		Name: "dist",
		Doc: "The other ranks. Every collective is called by all ranks in the same order; where they\n" +
			"disagree, all of them get an error with a table of who called what, and where.\n" +
			"timeout is in seconds and defaults to the run's (--timeout).",
		Defs: append(w.identity(), append(w.collectives(), w.helpers()...)...),
	}
}

// identity declares who this rank is.
func (w *World) identity() []*starlib.Def {
	constant := func(sig, doc string, v starlark.Value) *starlib.Def {
		return &starlib.Def{Sig: sig, Doc: doc, TopLevel: true,
			Fn: func(*starlib.Call) (starlark.Value, error) { return v, nil }}
	}
	r := w.rank
	return []*starlib.Def{
		constant(`rank(group: Group = None) -> int`, "This rank's number, from 0.", starlark.MakeInt(r.Rank)),
		constant(`world_size(group: Group = None) -> int`, "How many ranks there are.", starlark.MakeInt(r.WorldSize)),
		constant(`local_rank() -> int`, "This rank's number on its node.", starlark.MakeInt(r.LocalRank)),
		constant(`local_size() -> int`, "How many ranks its node has.", starlark.MakeInt(r.LocalSize)),
		constant(`node_rank() -> int`, "The number of its node.", starlark.MakeInt(r.NodeRank)),
		constant(`num_nodes() -> int`, "How many nodes there are.", starlark.MakeInt(r.NumNodes)),
		constant(`is_distributed() -> bool`, "Whether there is more than one rank.", starlark.Bool(r.WorldSize > 1)),
		constant(`is_main() -> bool`, "Whether this is rank 0.", starlark.Bool(r.Rank == 0)),
		constant(`backend() -> string`, "The engine that carries the collectives: \"shm\", ….", starlark.String(w.backend)),
	}
}

// do makes one call and waits for it. Argument timeout of c is the call's own limit.
func (w *World) do(c *starlib.Call, call *collective.Call, timeout time.Duration) error {
	pos := c.Position()
	call.Pos = collective.Position{File: pos.Filename(), Line: pos.Line, Col: pos.Col}
	work, err := w.comm.Start(call)
	if err != nil {
		return err
	}
	if timeout == 0 {
		return work.Wait(w.patience)
	}
	return work.Wait(collective.Within(w.ctx, timeout))
}

// timeout reads argument i: seconds, None for the run's default.
func timeout(c *starlib.Call, i int) (time.Duration, error) {
	if c.IsNone(i) {
		return 0, nil
	}
	s := c.Float(i)
	if !(s > 0) || s > 1e9 {
		return 0, fmt.Errorf("argument timeout: want seconds above 0, got %v", c.Args[i])
	}
	return time.Duration(s * float64(time.Second)), nil
}

// root reads argument i, a rank of the world.
func (w *World) root(c *starlib.Call, i int, what string) (int, error) {
	n, err := c.Int(i)
	if err != nil {
		return 0, err
	}
	if n < 0 || n >= w.rank.WorldSize {
		return 0, fmt.Errorf("%s %d is not a rank: valid are 0 to %d", what, n, w.rank.WorldSize-1)
	}
	return n, nil
}

// A DisagreementError says that ranks called a helper with arguments that do not
// fit together. All ranks get the same.
type DisagreementError struct{ Msg string }

func (e *DisagreementError) Error() string { return e.Msg }

// ExitCode is that of a mismatch between ranks.
func (e *DisagreementError) ExitCode() int { return 5 }
