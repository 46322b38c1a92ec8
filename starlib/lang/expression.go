package lang

import (
	"fmt"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

// An Expression is compiled once and evaluated many times, with the names that it uses as they are then.
type Expression struct {
	Names   []string // that it uses, each once
	private starlark.StringDict
	program *starlark.Program
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
	try.Ok(err)
	pos := syntax.MakePosition(&name, 1, 1)
	tree := &syntax.File{Path: name, Options: &dialect, Stmts: []syntax.Stmt{&syntax.AssignStmt{OpPos: pos, Op: syntax.EQ, LHS: &syntax.Ident{NamePos: pos, Name: Result}, RHS: body}}}
	try.Ok(checkTree(tree))
	rewrite(tree)
	e := &Expression{private: starlark.StringDict{}}
	guard := guard{pure: pure, file: name}
	e.program, err = starlark.FileProgram(tree, func(name string) bool { // asked once about each name that it does not bind itself
		switch {
		case name == predeclared+callGuard:
			e.private[name] = guard
		case strings.HasPrefix(name, predeclared):
			e.private[name] = env[name]
		default:
			e.Names = append(e.Names, name)
		}
		return true
	})
	if err != nil {
		return nil, Explain(nil, err)
	}
	return e, nil
}

// Value evaluates the expression on a thread. lookup returns nil for a name without a value.
func (e *Expression) Value(thread *starlark.Thread, lookup func(name string) starlark.Value) (starlark.Value, error) {
	values := make(starlark.StringDict, len(e.Names)+len(e.private))
	for name, v := range e.private {
		values[name] = v
	}
	for _, name := range e.Names {
		if values[name] = lookup(name); values[name] == nil {
			return nil, fmt.Errorf("%s has no value here", name)
		}
	}
	globals, err := e.program.Init(thread, values)
	if err != nil {
		return nil, &Error{Msg: Explain(thread, err).Msg, Cause: err}
	}
	return globals[Result], nil
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
