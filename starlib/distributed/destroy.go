package distributed

import (
	"context"
	"errors"
	"fmt"

	"drun/collective"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// destroyed is the Comm of a group that was destroyed: nothing can be called on it.
type destroyed struct {
	collective.Comm // for its rank and size
	err             error
}

func (d *destroyed) Start(*collective.Call) (collective.Work, error) { return nil, d.err }

// destroyGroup ends a group. Its ranks leave together: by then all calls have completed and all messages have been
// received, so the group's own backend can be closed at once.
func (gs *groups) destroyGroup(c *starlib.Call) (starlark.Value, error) {
	g := starlib.Must(gs.anyGroup(c))
	ctx := starlib.Must(gs.until(c))
	if g == gs.all || g == gs.local {
		return nil, errors.New("drun itself ends the world and the groups of nodes: leave this call out")
	}
	if g.own < 0 || g.comm == nil {
		return starlark.None, nil
	}
	if d, over := g.comm.(*destroyed); over {
		return nil, d.err
	}
	for route, queue := range gs.receives {
		if route.group == g {
			return nil, fmt.Errorf("the group is still receiving: the irecv at %s has not been waited for", queue[0].at.Pos)
		}
	}
	at := origin(c)
	last := func() error { return gs.lastOf(ctx, g, at) }
	if err := gs.leave(ctx, g.id, g.ranks, last); err != nil {
		return nil, err
	}
	comm := g.comm
	g.comm = &destroyed{comm, fmt.Errorf("the group of %s was destroyed at %s", collective.RankList(g.ranks), at.Pos)}
	if g.backend == gs.all.backend {
		return starlark.None, nil // it uses the world's connections
	}
	return starlark.None, comm.Close()
}

// lastOf waits for what this rank has started on a group, and for the other ranks.
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
