package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// noGrad has two forms: around a loop, and around one call.
func noGrad(ctx *tensor.Context) *starlib.Def {
	return &starlib.Def{
		Sig: "no_grad(iterable_or_fn: iterable | callable, *args, **kwargs)",
		Doc: `Computes without recording gradients. no_grad(iterable): the same elements; nothing is recorded in a loop over it, until it ends, also by break or return:
	for x, y in tensor.no_grad(loader): …
no_grad(fn, *args, **kwargs): calls fn with these arguments and returns its result.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			if fn, ok := c.Arg("iterable_or_fn").(starlark.Callable); ok {
				args, named, thread := c.Rest, c.Named, c.Thread
				ctx.BeginNoGrad()
				defer ctx.EndNoGrad()
				return starlark.Call(thread, fn, args, named)
			}
			if len(c.Rest) > 0 || len(c.Named) > 0 {
				return nil, fmt.Errorf("got extra arguments with an iterable: only a function takes them")
			}
			loop := noGradLoop{c.Arg("iterable_or_fn").(starlark.Iterable), ctx}
			if _, ok := loop.Iterable.(starlark.Sequence); ok {
				return noGradSequence{loop}, nil
			}
			return loop, nil
		},
	}
}

// noGradLoop is an iterable whose loops record no gradients.
type noGradLoop struct {
	starlark.Iterable
	ctx *tensor.Context
}

func (l noGradLoop) String() string { return "no_grad(" + l.Iterable.String() + ")" }
func (l noGradLoop) Type() string   { return "no_grad" }

func (l noGradLoop) Iterate() starlark.Iterator {
	it := l.Iterable.Iterate()
	if it == nil {
		return nil
	}
	l.ctx.BeginNoGrad()
	return &noGradIterator{Iterator: it, ctx: l.ctx}
}

// noGradSequence also has a length.
type noGradSequence struct{ noGradLoop }

func (s noGradSequence) Len() int { return s.Iterable.(starlark.Sequence).Len() }

type noGradIterator struct {
	starlark.Iterator
	ctx  *tensor.Context
	done bool
}

func (it *noGradIterator) Done() {
	if !it.done {
		it.done = true
		it.ctx.EndNoGrad()
		it.Iterator.Done()
	}
}
