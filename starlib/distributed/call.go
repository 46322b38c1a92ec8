package distributed

import (
	"context"
	"fmt"
	"time"

	"drun/collective"
	"drun/starlib"

	"go.starlark.net/starlark"
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

// timeout reads the argument timeout, in seconds: 0 if it is left out.
func timeout(c *starlib.Call) (time.Duration, error) {
	if c.IsNone("timeout") {
		return 0, nil
	}
	s := c.Float("timeout")
	if !(s > 0) || s > maxTimeout {
		return 0, fmt.Errorf("argument timeout: want seconds above 0 and at most %g, got %v", float64(maxTimeout), c.Arg("timeout"))
	}
	return max(1, time.Duration(s*float64(time.Second))), nil // 0 would mean left out
}

type builtin = func(*starlib.Call) (starlark.Value, error)

// onGroup is a builtin with the arguments group and timeout, which it gets as g and ctx.
type onGroup = func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error)

// inGroup makes a builtin that works on a group.
func (w *World) inGroup(fn onGroup) builtin {
	return func(c *starlib.Call) (starlark.Value, error) {
		return fn(starlib.Must(w.group(c)), c, starlib.Must(w.until(c)))
	}
}

// withRank is inGroup for a builtin whose argument of that name is a rank of the world; fn gets its number in the group.
func (w *World) withRank(name string, fn func(g *Group, c *starlib.Call, ctx *collective.WaitLimit, rank int) (starlark.Value, error)) builtin {
	return w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
		return fn(g, c, ctx, starlib.Must(g.member(c, name)))
	})
}

// do makes one call on behalf of the recipe's call, and waits for it.
func (g *Group) do(ctx context.Context, call collective.Call, at collective.Origin) error {
	g.call = call
	g.call.Origin = at
	g.call.Arguments, g.arguments = g.arguments, 0
	return g.carryOut(ctx)
}

// carryOut makes the group's synchronous call and waits for it. A group of one receives what it sends.
func (g *Group) carryOut(ctx context.Context) (err error) {
	if g.comm == nil {
		copy(g.call.Recv.Data, g.call.Send.Data)
	} else if work, startErr := g.comm.Start(&g.call); startErr != nil {
		err = startErr
	} else {
		err = work.Wait(ctx)
	}
	g.call.Send.Data, g.call.Recv.Data = nil, nil // keep no tensor's memory
	return err
}
