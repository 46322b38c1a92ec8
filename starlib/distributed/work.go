package distributed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"drun/collective"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Work is a call in progress, as a recipe holds it.
type Work struct {
	starlib.Opaque
	what  string
	group *Group                                // nil for a receive
	wait  func(ctx *collective.WaitLimit) error // nil: nothing to wait for
	done  func() bool
	then  finisher // makes the result, once the call is done
	ctx   *collective.WaitLimit
	at    collective.Position
	over  bool // waited for: value and err are the result
	value starlark.Value
	err   error
}

func (w *Work) String() string                           { return "<work of " + w.what + ">" }
func (w *Work) Attr(name string) (starlark.Value, error) { return workMethods.Attr(w, name) }
func (w *Work) AttrNames() []string                      { return workMethods.AttrNames() }

var workMethods = &starlib.Methods{
	Type: "Work",
	Doc: "A call in progress. It completes even if it is dropped. Its tensor is in use until the call is done: it may be\n" +
		"read and dropped, but whatever is written to it meanwhile may be lost, or end up in the result.",
	Defs: []*starlib.Def{
		{Sig: `wait()`, Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*Work).result() },
			Doc: "Waits until the call is done, and returns its result, each time the same."},
		{Sig: `done() -> bool`,
			Doc: "Whether wait() would return at once.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				w := c.Recv.(*Work)
				return starlark.Bool(w.over || w.done()), nil
			}},
		{Sig: `exception() -> string`,
			Doc: "What went wrong in a call that is done, or None.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				w := c.Recv.(*Work)
				try.FailIf(!w.over && !w.done(), "the call is not done: wait for it")
				if _, err := w.result(); err != nil {
					return starlark.String(err.Error()), nil
				}
				return starlark.None, nil
			}},
		{Sig: `then(fn: callable) -> Work`,
			Doc: "A Work whose wait() waits for this one, and returns what fn returns for its result.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				w, fn, thread := c.Recv.(*Work), c.Callable("fn"), c.Thread
				done := func() bool { return w.over || w.done() }
				return &Work{Opaque: "Work", what: w.what, ctx: w.ctx, at: w.at, done: done, then: finish(func() (starlark.Value, error) {
					value, err := w.result()
					if err != nil {
						return nil, err
					}
					return starlark.Call(thread, fn, starlark.Tuple{value}, nil)
				})}, nil
			}},
	},
}

// result waits until the call is done, and returns its result.
func (w *Work) result() (starlark.Value, error) {
	if w.over {
		return w.value, w.err
	}
	w.over = true
	if w.wait != nil {
		w.err = w.wait(w.ctx)
	}
	if w.err == nil {
		w.value, w.err = w.then.result()
	}
	return w.value, w.err
}

// works are calls in progress that belong together.
type works []collective.Work

func (all works) wait(ctx *collective.WaitLimit) error {
	for _, work := range all {
		if err := work.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (all works) done() bool {
	return !slices.ContainsFunc(all, func(work collective.Work) bool { return !work.Done() })
}

// finisher makes the result of a call that is done.
type finisher interface {
	result() (starlark.Value, error)
}

// finish is a finisher that is a function.
type finish func() (starlark.Value, error)

func (f finish) result() (starlark.Value, error) { return f() }

// finished returns the Work of a call that is already done.
func finished(what string, value starlark.Value) *Work {
	return &Work{Opaque: "Work", what: what, done: func() bool { return true },
		then: finish(func() (starlark.Value, error) { return value, nil })}
}

// start makes the call on an operand and returns the result that then gives: at once or, with async_op, as a Work. In a group
// of one rank there is nothing to call. An asynchronous call whose result must be copied into place waits anyway, because
// nothing would copy the result of a dropped Work.
func start(g *Group, c *starlib.Call, ctx *collective.WaitLimit, call collective.Call, o *operand, copied bool, then finisher) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	call.Shape = o.shape
	if async := c.Bool("async_op"); !async || copied {
		try.Ok(g.do(ctx, call, origin(c)))
		value, err := then.result()
		if async {
			value = finished(call.Kind.String(), value)
		}
		return value, err
	}
	w := &Work{Opaque: "Work", what: call.Kind.String(), group: g, ctx: ctx, then: then, done: func() bool { return true }}
	if g.comm == nil {
		return w, nil
	}
	at := origin(c)
	w.at = at.Pos
	data := o.data // o is empty once it has given its result
	if data != nil {
		tensor.Pin(data)
	}
	inner := try.To(g.begin(ctx, call, at))
	w.wait = func(ctx *collective.WaitLimit) (err error) {
		if err = inner.Wait(ctx); err == nil && data != nil {
			tensor.Unpin(data)
		}
		return err
	}
	w.done = inner.Done
	g.world.keep(w)
	return w, nil
}

// keep retains a Work, and so the tensors that it uses, until it is done, even if the recipe drops it.
func (w *World) keep(work *Work) {
	w.pending = append(slices.DeleteFunc(w.pending, func(p *Work) bool { return p.over || p.done() }), work)
}

// Finish waits for the calls in progress that the recipe has dropped, so that they
// complete. It is called when main has returned.
func (w *World) Finish() error {
	if err := w.rpc.settle(); err != nil {
		return err
	}
	for _, work := range w.pending {
		if work.over || work.wait == nil {
			continue
		}
		work.over = true
		if err := work.wait(work.ctx); err != nil {
			return fmt.Errorf("%s: %s, which main did not wait for: %w", work.at, work.what, err)
		}
	}
	return nil
}

// origin returns the builtin that the recipe calls, and where.
func origin(c *starlib.Call) collective.Origin { return originOf(c.Name, c.Position()) }

func originOf(builtin string, pos syntax.Position) collective.Origin {
	return collective.Origin{Builtin: builtin, Pos: collective.Position{File: pos.Filename(), Line: pos.Line, Col: pos.Col}}
}

// until returns the wait limit that the argument timeout sets.
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

// onGroup is a builtin with the arguments group and timeout, which are passed as g and ctx.
type onGroup = func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error)

// inGroup makes a builtin that works on a group.
func (w *World) inGroup(fn onGroup) builtin {
	return func(c *starlib.Call) (starlark.Value, error) {
		return fn(try.To(w.group(c)), c, try.To(w.until(c)))
	}
}

// withRank is inGroup for a builtin with an argument, called name, that is a rank of the world; fn gets its number in the group.
func (w *World) withRank(name string, fn func(g *Group, c *starlib.Call, ctx *collective.WaitLimit, rank int) (starlark.Value, error)) builtin {
	return w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
		return fn(g, c, ctx, try.To(g.member(c, name)))
	})
}

// do makes one call on behalf of the recipe's call, and waits for it.
func (g *Group) do(ctx context.Context, call collective.Call, at collective.Origin) error {
	if err := g.world.flush(); err != nil {
		return err
	}
	g.call = call
	g.call.Origin = at
	g.call.Arguments, g.arguments = g.arguments, 0
	return g.carryOut(ctx)
}

// begin makes an asynchronous call.
func (g *Group) begin(ctx *collective.WaitLimit, call collective.Call, at collective.Origin) (collective.Work, error) {
	if err := g.world.flush(); err != nil {
		return nil, err
	}
	call.Origin, call.Async, call.Limit = at, true, ctx.Limit
	return g.comm.Start(&call)
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
