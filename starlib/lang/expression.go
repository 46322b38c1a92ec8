package lang

import (
	"fmt"
	"maps"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

// An Expression is compiled once and evaluated many times, with the names that it uses as they are then.
type Expression struct {
	Names []string // that it uses, each once
	fn    starlark.Callable
}

// Purity says which calls leave everything as it is.
type Purity interface {
	// Call is asked about each function that is called and, when it is called, about each that it gets as an argument.
	Call(fn starlark.Callable) bool
	// Method is asked when the expression is compiled, where only a method's name is known.
	Method(name string) bool
}

// ParseExpression compiles an expression with the meaning that it would have in a recipe whose environment is env, made by
// Environment. It refuses one that may change something, as far as that is known without its values; Value refuses the rest. The
// error is an *Error.
func ParseExpression(name, src string, env starlark.StringDict, pure Purity) (_ *Expression, err error) {
	defer try.Caught(&err)
	e := &Expression{}
	env = maps.Clone(env)
	env[predeclared+callGuard] = guard{pure: pure, file: name}
	pos := syntax.MakePosition(&name, 1, 1)
	// function is the expression as a function of e.Names; resolving a tree annotates it, so each has its own.
	function := func() *syntax.File {
		lambda := &syntax.LambdaExpr{Lambda: pos, Body: try.To(parseGuarded(name, src, env, pure))}
		for _, name := range e.Names {
			lambda.Params = append(lambda.Params, &syntax.Ident{NamePos: pos, Name: name})
		}
		tree := &syntax.File{Path: name, Options: &dialect, Stmts: []syntax.Stmt{&syntax.AssignStmt{OpPos: pos, Op: syntax.EQ, LHS: &syntax.Ident{NamePos: pos, Name: Result}, RHS: lambda}}}
		try.Ok(checkTree(tree))
		rewrite(tree)
		return tree
	}
	_, err = starlark.FileProgram(function(), func(name string) bool { // it is asked once about each name that is not bound
		if !strings.HasPrefix(name, predeclared) {
			e.Names = append(e.Names, name)
		}
		return true
	})
	if err != nil {
		return nil, Explain(nil, err)
	}
	program := try.To(starlark.FileProgram(function(), env.Has))
	e.fn = try.To(program.Init(&starlark.Thread{Name: name}, env))[Result].(starlark.Callable)
	return e, nil
}

// parseGuarded parses an expression whose calls are checked.
func parseGuarded(name, src string, env starlark.StringDict, pure Purity) (syntax.Expr, error) {
	body, err := dialect.ParseExpr(name, src, 0)
	if err != nil {
		return nil, Explain(nil, err)
	}
	syntax.Walk(body, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && err == nil {
			if shown, maybe := judge(call.Fn, env, pure); !maybe {
				err = errorAt(position(n), "a call of %s may change something: only what leaves the run as it is can be evaluated", shown)
			}
			call.Fn = index(callGuard, call.Lparen, call.Fn)
		}
		return err == nil
	})
	return body, err
}

// Value evaluates the expression on a thread. lookup returns nil for a name without a value.
func (e *Expression) Value(thread *starlark.Thread, lookup func(name string) starlark.Value) (starlark.Value, error) {
	args := make(starlark.Tuple, len(e.Names))
	for i, name := range e.Names {
		if args[i] = lookup(name); args[i] == nil {
			return nil, fmt.Errorf("%s has no value here", name)
		}
	}
	v, err := starlark.Call(thread, e.fn, args, nil)
	if err != nil {
		return nil, &Error{Msg: Explain(thread, err).Msg, Cause: err}
	}
	return v, nil
}

// judge says what a callee is called, and whether it may be one that changes nothing.
func judge(fn syntax.Expr, env starlark.StringDict, pure Purity) (shown string, maybe bool) {
	switch fn := unparen(fn).(type) {
	case *syntax.Ident:
		known, ok := valueOf(fn, env).(starlark.Callable)
		return fn.Name, ok && pure.Call(known)
	case *syntax.DotExpr:
		shown = "." + fn.Name.Name
		if known, ok := valueOf(fn, env).(starlark.Callable); ok {
			return shown, pure.Call(known)
		}
		return shown, pure.Method(fn.Name.Name)
	}
	return "a value", false
}

// valueOf is the value that a name, or an attribute of one, has in the environment; nil if it has none.
func valueOf(e syntax.Expr, env starlark.StringDict) starlark.Value {
	switch e := unparen(e).(type) {
	case *syntax.Ident:
		if v := env[e.Name]; v != nil {
			return v
		}
		return starlark.Universe[e.Name]
	case *syntax.DotExpr:
		if of, ok := valueOf(e.X, env).(starlark.HasAttrs); ok {
			if v, err := of.Attr(e.Name.Name); err == nil {
				return v
			}
		}
	}
	return nil
}

// callGuard is the name of the guard: f(x) becomes guard[f](x).
const callGuard = "f(pure)"

// guard, indexed by a function, gives that function if a call of it changes nothing, with a check of its arguments.
type guard struct {
	internal
	pure Purity
	file string // by which the expression's own functions are known
}

func (g guard) Get(v starlark.Value) (starlark.Value, bool, error) {
	fn, ok := v.(starlark.Callable)
	if !ok {
		return v, true, nil // its call says what is wrong
	}
	if err := g.check(fn); err != nil {
		return nil, false, err
	}
	return starlark.NewBuiltin(fn.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		for _, arg := range args {
			if err := g.check(arg); err != nil {
				return nil, err
			}
		}
		for _, arg := range kwargs {
			if err := g.check(arg[1]); err != nil {
				return nil, err
			}
		}
		return starlark.Call(thread, fn, args, kwargs)
	}), true, nil
}

// check refuses a function that may change something, wherever it comes from.
func (g guard) check(v starlark.Value) error {
	fn, ok := v.(starlark.Callable)
	if own, is := v.(*starlark.Function); !ok || is && own.Position().Filename() == g.file || g.pure.Call(fn) {
		return nil
	}
	name := fn.Name()
	if b, is := fn.(*starlark.Builtin); is && b.Receiver() != nil {
		name = fmt.Sprintf(".%s of a %s", name[strings.LastIndexByte(name, '.')+1:], b.Receiver().Type())
	}
	return fmt.Errorf("a call of %s may change something", name)
}
