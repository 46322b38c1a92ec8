package lang

import (
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

// An Expression is compiled once and evaluated many times, with the names that it uses as they are then.
type Expression struct {
	Names  []string // that it uses, each once
	called []string // of these, those that it calls
	fn     starlark.Callable
}

// Purity says which calls leave everything as it is.
type Purity interface {
	// Callee is asked when the expression is compiled: about a name, or names with dots between them. If the callee is an
	// attribute of something else, the name begins with a dot.
	Callee(name string) bool
	// Receiver is asked when it is evaluated: about the value of which a method is called.
	Receiver(v starlark.Value, method string) error
}

// ParseExpression compiles an expression with the meaning that it would have in a recipe whose environment is env, made by
// Environment. It refuses one that may change something, see Purity. The error is an *Error.
func ParseExpression(name, src string, env starlark.StringDict, pure Purity) (_ *Expression, err error) {
	defer try.Caught(&err)
	body, err := dialect.ParseExpr(name, src, 0)
	if err != nil {
		return nil, Explain(nil, err)
	}
	e := &Expression{}
	pos := syntax.MakePosition(&name, 1, 1)
	id := func(name string) *syntax.Ident { return &syntax.Ident{NamePos: pos, Name: name} }
	try.Ok(e.names(body, nil, pure))
	lambda := &syntax.LambdaExpr{Lambda: pos, Body: body}
	for _, name := range e.Names {
		lambda.Params = append(lambda.Params, id(name))
	}
	tree := &syntax.File{Path: name, Options: &dialect, Stmts: []syntax.Stmt{&syntax.AssignStmt{OpPos: pos, Op: syntax.EQ, LHS: id(Result), RHS: lambda}}}
	try.Ok(checkTree(tree))
	guardMethods(body)
	env = maps.Clone(env)
	env[predeclared+methodGuard] = guard{pure: pure}
	rewrite(tree)
	program, err := starlark.FileProgram(tree, env.Has)
	if err != nil {
		return nil, Explain(nil, err)
	}
	globals := try.To(program.Init(&starlark.Thread{Name: name}, env))
	e.fn = globals[Result].(starlark.Callable)
	return e, nil
}

// Value evaluates the expression on a thread. lookup returns nil for a name without a value.
func (e *Expression) Value(thread *starlark.Thread, lookup func(name string) starlark.Value) (starlark.Value, error) {
	args := make(starlark.Tuple, len(e.Names))
	for i, name := range e.Names {
		if args[i] = lookup(name); args[i] == nil {
			return nil, fmt.Errorf("%s has no value here", name)
		}
		if fn, ok := args[i].(*starlark.Function); ok && slices.Contains(e.called, name) {
			return nil, fmt.Errorf("a call of %s may change something: here it is a function of %s", name, fn.Position().Filename())
		}
	}
	v, err := starlark.Call(thread, e.fn, args, nil)
	if err != nil {
		return nil, &Error{Msg: Explain(thread, err).Msg, Cause: err}
	}
	return v, nil
}

// names collects the names that an expression uses, except those that it binds itself, and checks its calls.
func (e *Expression) names(x syntax.Node, bound []string, pure Purity) (err error) {
	syntax.Walk(x, func(n syntax.Node) bool {
		if err != nil {
			return false
		}
		switch n := n.(type) {
		case *syntax.Ident:
			if !slices.Contains(bound, n.Name) && !slices.Contains(e.Names, n.Name) {
				e.Names = append(e.Names, n.Name)
			}
		case *syntax.DotExpr:
			err = e.names(n.X, bound, pure)
			return false
		case *syntax.LambdaExpr, *syntax.Comprehension:
			err = e.inner(n, bound, pure)
			return false
		case *syntax.CallExpr:
			name := callee(n.Fn, bound)
			if !pure.Callee(name) {
				err = errorAt(position(n), "a call of %s may change something: only what leaves the run as it is can be evaluated", calleeShown(n.Fn))
				return false
			}
			err = e.names(n.Fn, bound, pure)
			if id, ok := unparen(n.Fn).(*syntax.Ident); ok {
				e.called = append(e.called, id.Name)
			}
			if err = callsBack(n, name); err != nil {
				return false
			}
			for _, arg := range n.Args {
				if named, ok := arg.(*syntax.BinaryExpr); ok && named.Op == syntax.EQ {
					arg = named.Y
				}
				if err == nil {
					err = e.names(arg, bound, pure)
				}
			}
			return false
		}
		return true
	})
	return err
}

// inner is names for an expression that binds names of its own.
func (e *Expression) inner(n syntax.Node, bound []string, pure Purity) error {
	own := slices.Clone(bound)
	var parts []syntax.Node
	bind := func(x syntax.Node) {
		syntax.Walk(x, func(n syntax.Node) bool {
			if id, ok := n.(*syntax.Ident); ok {
				own = append(own, id.Name)
			}
			return true
		})
	}
	switch n := n.(type) {
	case *syntax.LambdaExpr:
		for _, p := range n.Params {
			if def, ok := p.(*syntax.BinaryExpr); ok {
				if err := e.names(def.Y, bound, pure); err != nil {
					return err
				}
				p = def.X
			}
			bind(p)
		}
		parts = append(parts, n.Body)
	case *syntax.Comprehension:
		for i, c := range n.Clauses {
			switch c := c.(type) {
			case *syntax.ForClause:
				if i == 0 { // evaluated outside
					if err := e.names(c.X, bound, pure); err != nil {
						return err
					}
				} else {
					parts = append(parts, c.X)
				}
				bind(c.Vars)
			case *syntax.IfClause:
				parts = append(parts, c.Cond)
			}
		}
		parts = append(parts, n.Body)
	}
	for _, part := range parts {
		if err := e.names(part, own, pure); err != nil {
			return err
		}
	}
	return nil
}

// callee is the name that pure is asked about, "" for a callee without one.
func callee(fn syntax.Expr, bound []string) string {
	switch fn := unparen(fn).(type) {
	case *syntax.Ident:
		if !slices.Contains(bound, fn.Name) {
			return fn.Name
		}
	case *syntax.DotExpr:
		return path(fn.X, bound) + "." + fn.Name.Name
	}
	return ""
}

func calleeShown(fn syntax.Expr) string {
	switch fn := unparen(fn).(type) {
	case *syntax.Ident:
		return fn.Name
	case *syntax.DotExpr:
		return "." + fn.Name.Name
	}
	return "a value"
}

// path is a name and attributes of it, with dots between them; "" for another expression.
func path(e syntax.Expr, bound []string) string {
	switch e := unparen(e).(type) {
	case *syntax.Ident:
		if !slices.Contains(bound, e.Name) {
			return e.Name
		}
	case *syntax.DotExpr:
		if of := path(e.X, bound); of != "" {
			return of + "." + e.Name.Name
		}
	}
	return ""
}

// methodGuard is the name of the guard: x.method(y) becomes guard["method"][x].method(y).
const methodGuard = "(x.method)"

// guardMethods has the receiver of each method that an expression calls checked.
func guardMethods(e syntax.Expr) {
	syntax.Walk(e, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		if dot, ok := unparen(call.Fn).(*syntax.DotExpr); ok {
			name := &syntax.Literal{Token: syntax.STRING, TokenPos: dot.Dot, Value: dot.Name.Name, Raw: fmt.Sprintf("%q", dot.Name.Name)}
			_, end := dot.X.Span()
			dot.X = &syntax.IndexExpr{X: index(methodGuard, dot.Dot, name), Lbrack: dot.Dot, Y: dot.X, Rbrack: end}
		}
		return true
	})
}

// guard, indexed by the name of a method, gives the guard of its receivers; indexed by a receiver, that gives the receiver.
type guard struct {
	internal
	pure   Purity
	method string // "": not known yet
}

func (g guard) Get(v starlark.Value) (starlark.Value, bool, error) {
	if g.method == "" {
		name, _ := starlark.AsString(v)
		return guard{pure: g.pure, method: name}, true, nil
	}
	return v, true, g.pure.Receiver(v, g.method)
}

// callsBack refuses a call of a builtin that would call a function which the expression does not write itself.
func callsBack(call *syntax.CallExpr, name string) error {
	if name != "sorted" && name != "min" && name != "max" {
		return nil
	}
	for i, arg := range call.Args {
		switch arg := arg.(type) {
		case *syntax.UnaryExpr:
			if arg.Op != syntax.STAR && arg.Op != syntax.STARSTAR {
				continue
			}
		case *syntax.BinaryExpr:
			if _, lambda := arg.Y.(*syntax.LambdaExpr); arg.Op != syntax.EQ || lambda || arg.X.(*syntax.Ident).Name != "key" {
				continue
			}
		default:
			if i == 0 || name != "sorted" {
				continue
			}
		}
		return errorAt(syntax.Start(arg), "%s may call a function that changes something: only a lambda can be its key", name)
	}
	return nil
}
