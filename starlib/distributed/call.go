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

// until reads argument i, a timeout, as the context of a wait.
func (w *World) until(c *starlib.Call, i int) (*collective.Patience, error) {
	limit, err := timeout(c, i)
	if err != nil || limit == 0 {
		return w.patience, err
	}
	return collective.Within(w.ctx, limit), nil
}

// maxTimeout is 30 years.
const maxTimeout = 1e9

// timeout reads argument i: seconds, 0 when it is left out.
func timeout(c *starlib.Call, i int) (time.Duration, error) {
	if c.IsNone(i) {
		return 0, nil
	}
	s := c.Float(i)
	if !(s > 0) || s > maxTimeout {
		return 0, fmt.Errorf("argument timeout: want seconds above 0 and at most %g, got %v", float64(maxTimeout), c.Args[i])
	}
	return max(1, time.Duration(s*float64(time.Second))), nil // 0 would be left out
}

// scope reads a call's group, argument i, and its timeout, the one after.
func (w *World) scope(c *starlib.Call, i int) (*Group, *collective.Patience, error) {
	g, err := w.group(c, i)
	if err != nil {
		return nil, nil, err
	}
	ctx, err := w.until(c, i+1)
	return g, ctx, err
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
