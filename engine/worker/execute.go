package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/debug"
	"drun/engine/recipe"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/run"
	"drun/starlib/universe"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// execute runs the recipe's top level, freezes its globals, and calls main.
func (w *worker) execute(rank *starlib.Rank, u *universe.Universe) (err error) {
	thread := &starlark.Thread{Name: "main", Print: w.print}
	lang.Watch(thread)
	lang.Observe(thread, w.at)
	defer lang.Bound(thread, w.giveUp)()
	defer func() {
		if p := recover(); p != nil {
			err = w.overflowed(p)
		}
	}()
	rank.At = w.at
	for name, v := range starlark.Universe { // as predeclared names they have positions, at which a debugger can see a statement begin
		if !u.Env.Has(name) {
			u.Env[name] = v
		}
	}
	u.Tensors.Fail = func(err error) { lang.Cancel(thread, err) }
	loader := &recipe.Loader{Bundle: w.bundle(), Env: u.Env, Prepare: func(f *lang.File) {
		u.Reads(f.Source)
		f.SavePoints = w.job.Target != nil || w.job.Marks
		f.Marks = w.job.Marks
		if w.trace != nil {
			f.Tracer = &w.trace.Tracer
		}
	}}
	thread.Load = loader.Load
	rank.Global = loader.Global
	rank.Explain = func(thread *starlark.Thread, err error) (where, what string, ended bool) {
		e := lang.Explain(thread, err)
		if e.Pos.IsValid() {
			where = e.Pos.String()
		}
		return where, e.Msg, lang.Cancelled(thread) != nil
	}
	w.mu.Lock()
	w.thread = thread
	w.mu.Unlock()
	w.debug.Begin(debug.Recipe{Thread: thread, Rank: rank, Tensors: u.Tensors, Env: u.Env, Lines: func(file string) *lang.Lines { return w.bundle().Lines(file, w.job.Marks) }, Entry: w.job.Debug})
	if err := cmp.Or(w.doubt(), context.Cause(w.ctx)); err != nil {
		return err
	}

	globals, err := loader.Exec(thread, w.job.Main)
	if err != nil {
		w.debug.Failed()
		return lang.Explain(thread, err)
	}
	if err := u.Params.Unknown(); err != nil {
		return err
	}
	if rank.Rank == 0 {
		if err := w.declare(u.Params); err != nil {
			return err
		}
	}
	if w.job.Describe {
		return nil
	}
	name := cmp.Or(w.job.Function, "main")
	main, ok := globals[name].(starlark.Callable)
	if !ok && name != "main" {
		return exit.Errorf(exit.Recipe, "%s: there is no function %s()", w.job.Recipe, name)
	}
	if !ok {
		return exit.WithHint(exit.Errorf(exit.Recipe, "%s: there is no function main()", w.job.Recipe),
			"a recipe defines main(), which drun calls on every rank: def main(): …")
	}
	rank.Stage = starlib.Running
	if _, err := starlark.Call(thread, main, nil, nil); err != nil {
		w.debug.Failed()
		return lang.Explain(thread, err)
	}
	w.debug.Returned()
	if err := u.Dist.Finish(); err != nil {
		return err
	}
	return u.Run.Finish()
}

// at notes on the board where the recipe is, for ranks that wait for this one.
func (w *worker) at(thread *starlark.Thread) {
	if w.thread != nil && thread != w.thread { // an expression of the debugger
		return
	}
	w.position = starlib.Position(thread)
	w.board.At(onBoard(w.position))
	if w.debug != nil && w.debug.Wanted.Load() {
		w.debug.Called()
	}
}

func onBoard(p syntax.Position) collective.Position {
	return collective.Position{File: p.Filename(), Line: p.Line, Col: p.Col}
}

func (w *worker) declare(params *run.Params) error {
	d := &engine.Declared{}
	for _, p := range params.Declared() {
		v := engine.Value{Name: p.Name, Default: p.Default.String(), Kind: p.Value.Type(), Text: run.Text(p.Value), Help: p.Help,
			Changed: p.Default.Type() != p.Value.Type() || run.Text(p.Default) != run.Text(p.Value)}
		for _, c := range p.Choices {
			v.Choices = append(v.Choices, run.Text(c))
		}
		d.Params = append(d.Params, v)
	}
	return w.channel.Send(&engine.ToAgent{Declared: d})
}

// print writes a recipe's lines to stdout, which the agent captures.
func (w *worker) print(_ *starlark.Thread, msg string) {
	_, _ = os.Stdout.WriteString(strings.TrimSuffix(msg, "\n") + "\n")
}

// stop ends the recipe's thread with a cause; another goroutine calls it. A thread that stands still, until the context ends, must
// not execute another step.
func (w *worker) stop(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.thread != nil {
		lang.Cancel(w.thread, cause)
	}
	w.cancel(cause)
}

// abort tells the other ranks that this one has failed, unless it failed because of them. It returns this rank's
// failure.
func (w *worker) abort(err error) *engine.Failure {
	w.board.SetState(collective.Failed)
	f := w.failure(err)
	if !f.Secondary {
		if at := (*lang.Error)(nil); errors.As(err, &at) && at.Pos.IsValid() {
			w.board.At(onBoard(at.Pos)) // not at its last call of a module's builtin
		}
		w.board.AwaitLower()
		w.board.Abort(w.job.Placement.Rank, &collective.FailedError{Rank: w.job.Placement.Rank, Msg: f.Message, Code: f.Code})
	}
	return f
}

func (w *worker) failure(err error) *engine.Failure {
	f := engine.NewFailure(w.job.Placement.Rank, err, board.Now())
	var located *lang.Error
	if !errors.As(err, &located) {
		located = &lang.Error{Msg: err.Error(), Cause: err}
	}
	f.Message, f.Traceback, _ = strings.Cut(strings.TrimRight(located.Render(w.bundle().Text), "\n"), "\n")
	if p := (*starlib.PanicError)(nil); errors.As(err, &p) {
		f.Traceback += "\n" + string(p.Stack)
	}
	f.Secondary = errors.As(err, new(*collective.AbortError))
	w.doubted(f, err)
	f.Suspected = !f.Secondary && collective.Suspects(err)
	f.Common = !f.Secondary && (errors.As(err, new(*collective.MismatchError)) || errors.As(err, new(*collective.TimeoutError)))
	return f
}

// giveUp reports that the rank uses too much memory, in place of its thread, which does not end, and ends the
// process.
func (w *worker) giveUp(e *lang.Error) {
	f := w.failure(e)
	w.telling.Lock() // for good: no other end is reported
	if w.told == nil {
		w.board.SetState(collective.Failed)
		w.board.Abort(w.job.Placement.Rank, &collective.FailedError{Rank: w.job.Placement.Rank, Msg: f.Message, Code: f.Code})
		w.record.close()
		_ = w.channel.Send(&engine.ToAgent{Failure: f})
	}
	os.Exit(int(exit.Recipe))
}

// overflowed makes an error of a panic by which Go refuses a size that no machine has. Its position is that of the
// latest call of a module's builtin.
func (w *worker) overflowed(panicked any) error {
	err := memory.Overflow(panicked)
	if err == nil {
		panic(panicked)
	}
	if w.position.IsValid() {
		return fmt.Errorf("%w; it was last seen at %v", err, w.position)
	}
	return err
}
