package distributed

import (
	"context"
	"fmt"
	"time"

	"drun/collective"
	"drun/starlib"

	"go.starlark.net/syntax"
)

// origin is the builtin that the recipe calls, and where.
func origin(c *starlib.Call) collective.Origin { return originOf(c.Name, c.Position()) }

func originOf(builtin string, pos syntax.Position) collective.Origin {
	return collective.Origin{Builtin: builtin, Pos: collective.Position{File: pos.Filename(), Line: pos.Line, Col: pos.Col}}
}

// until reads the argument timeout as the context of a wait.
func (w *World) until(c *starlib.Call) (*collective.WaitLimit, error) {
	limit, err := timeout(c)
	if err != nil || limit == 0 {
		return w.within, err
	}
	return collective.Within(w.ctx, limit), nil
}

// maxTimeout is 30 years.
const maxTimeout = 1e9

// timeout reads the argument timeout, in seconds: 0 when it is left out.
func timeout(c *starlib.Call) (time.Duration, error) {
	if c.IsNone("timeout") {
		return 0, nil
	}
	s := c.Float("timeout")
	if !(s > 0) || s > maxTimeout {
		return 0, fmt.Errorf("argument timeout: want seconds above 0 and at most %g, got %v", float64(maxTimeout), c.Arg("timeout"))
	}
	return max(1, time.Duration(s*float64(time.Second))), nil // 0 would be left out
}

// scope reads the arguments group and timeout.
func (w *World) scope(c *starlib.Call) (*Group, *collective.WaitLimit, error) {
	g, err := w.group(c)
	if err != nil {
		return nil, nil, err
	}
	ctx, err := w.until(c)
	return g, ctx, err
}

// scopeWith is scope with a rank of the group, which the argument of that name is.
func (w *World) scopeWith(c *starlib.Call, name string) (g *Group, ctx *collective.WaitLimit, rank int, err error) {
	if g, ctx, err = w.scope(c); err == nil {
		rank, err = g.member(c, name)
	}
	return g, ctx, rank, err
}

// do makes one call and waits for it.
func (g *Group) do(ctx context.Context, call collective.Call) error {
	g.call = call
	return g.carryOut(ctx)
}

// carryOut makes the group's synchronous call and waits for it.
func (g *Group) carryOut(ctx context.Context) error {
	work, err := g.comm.Start(&g.call)
	if err == nil {
		err = work.Wait(ctx)
	}
	g.call.Send.Data, g.call.Recv.Data = nil, nil // keep no tensor's memory
	return err
}
