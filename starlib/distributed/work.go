package distributed

import (
	"fmt"
	"slices"

	"drun/collective"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// Work is a call under way, as a recipe holds it.
type Work struct {
	what  string
	group *Group                                // nil for a receive
	wait  func(ctx *collective.WaitLimit) error // nil: nothing to wait for
	done  func() bool
	then  finisher // makes the result, once the call is done
	ctx   *collective.WaitLimit
	at    collective.Position
	over  bool
}

var _ starlark.HasAttrs = (*Work)(nil)

func (w *Work) String() string                           { return "<work of " + w.what + ">" }
func (w *Work) Type() string                             { return "Work" }
func (w *Work) Freeze()                                  {}
func (w *Work) Truth() starlark.Bool                     { return true }
func (w *Work) Hash() (uint32, error)                    { return 0, fmt.Errorf("unhashable: Work") }
func (w *Work) Attr(name string) (starlark.Value, error) { return workMethods.Attr(w, name) }
func (w *Work) AttrNames() []string                      { return workMethods.AttrNames() }

var workMethods = &starlib.Methods{
	Type: "Work",
	Doc: "A call under way. One that is dropped still completes. Its tensor is in use until the call is done: it may be\n" +
		"read and dropped, but what is written to it meanwhile may be lost, or end up in the result.",
	Defs: []*starlib.Def{
		{
			Sig: `wait()`,
			Doc: "Waits until the call is done, and returns its result. It can be called once.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				w := c.Recv.(*Work)
				if w.over {
					return nil, fmt.Errorf("this Work of %s has already been waited for", w.what)
				}
				return w.result()
			},
		},
		{
			Sig: `done() -> bool`,
			Doc: "Whether wait() would return at once.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				w := c.Recv.(*Work)
				return starlark.Bool(w.over || w.done()), nil
			},
		},
	},
}

// result waits for the call's end, if there is something to wait for.
func (w *Work) result() (starlark.Value, error) {
	w.over = true
	if w.wait != nil {
		if err := w.wait(w.ctx); err != nil {
			return nil, err
		}
	}
	return w.then.result()
}

// works are calls under way that belong together.
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

// finished is the Work of a call that is done.
func finished(what string, value starlark.Value) *Work {
	return &Work{what: what, done: func() bool { return true },
		then: finish(func() (starlark.Value, error) { return value, nil })}
}

// newCallFor returns a call to fill in. A synchronous one is kept in the group, since a new one would be allocated each time.
func newCallFor(g *Group, async bool) *collective.Call {
	if async {
		return new(collective.Call)
	}
	return &g.call
}

// start makes the call and returns what then makes of it: at once or, for an
// asynchronous call, as a Work. In a group of one rank there is nothing to call. An
// asynchronous call whose result must be copied into place waits anyway, because
// nothing would copy the result of a dropped Work.
func start(g *Group, c *starlib.Call, ctx *collective.WaitLimit, call *collective.Call, async, copied bool, then finisher) (starlark.Value, error) {
	if async && copied {
		kind := call.Kind
		g.call = *call
		value, err := start(g, c, ctx, &g.call, false, false, then)
		return finished(kind.String(), value), err
	}
	if !async {
		call.Origin = origin(c)
		if err := g.carryOut(ctx); err != nil {
			return nil, err
		}
		return then.result()
	}
	w := &Work{what: call.Kind.String(), group: g, ctx: ctx, then: then, done: func() bool { return true }}
	if g.comm == nil {
		return w, nil
	}
	call.Origin, call.Async, call.Limit = origin(c), true, ctx.Limit
	w.at = call.Pos
	inner, err := g.comm.Start(call)
	if err != nil {
		return nil, err
	}
	w.wait = func(ctx *collective.WaitLimit) error { return inner.Wait(ctx) }
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
