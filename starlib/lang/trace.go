package lang

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/each"
)

// A Site is a place in a file where the recipe computes a value.
type Site struct {
	Op  string // the callee's name, an operator, [] for an index, or "for" for a loop's variables
	Pos syntax.Position
}

// A Tracer receives each value that a file compiled for it computes. The environment has it under the name Trace.
type Tracer struct {
	Values func(site Site, v starlark.Value)
	sites  []Site
}

// Trace is the predeclared name of Tracer.Value.
const Trace = predeclared + trace

const trace = "trace?" // no recipe can write it

// Value returns the value that the environment must have for the name Trace.
func (t *Tracer) Value() starlark.Value { return tracing{Tracer: t, site: -1} }

// tracing is the tracer as a value: indexed by a number, it gives that site; the site, indexed by a value, passes the value
// to the tracer and returns it.
type tracing struct {
	internal
	*Tracer
	site int
}

func (t tracing) Get(v starlark.Value) (starlark.Value, bool, error) {
	if t.site < 0 {
		site, err := starlark.AsInt32(v)
		return tracing{Tracer: t.Tracer, site: site}, err == nil, err
	}
	t.Values(t.sites[t.site], v)
	return v, true, nil
}

// Sites lists the sites of a file.
func Sites(f *File) ([]Site, error) {
	tree, err := parseTree(f.Name, f.Source)
	if err != nil {
		return nil, err
	}
	t := &Tracer{}
	t.statements(tree.Stmts)
	return t.sites, nil
}

// site wraps an expression.
func (t *Tracer) site(op string, pos syntax.Position, e syntax.Expr) syntax.Expr {
	start, end := e.Span()
	number := &syntax.Literal{Token: syntax.INT, TokenPos: start, Raw: fmt.Sprint(len(t.sites)), Value: int64(len(t.sites))}
	t.sites = append(t.sites, Site{op, pos})
	of := &syntax.IndexExpr{X: &syntax.Ident{NamePos: start, Name: trace}, Lbrack: pos, Y: number, Rbrack: end}
	return &syntax.IndexExpr{X: of, Lbrack: pos, Y: e, Rbrack: end}
}

// statements adds the sites to a tree that has not been rewritten.
func (t *Tracer) statements(stmts []syntax.Stmt) []syntax.Stmt {
	var out []syntax.Stmt
	for _, stmt := range stmts {
		out = append(out, stmt)
		switch s := stmt.(type) {
		case *syntax.AssignStmt:
			s.RHS = t.expr(s.RHS)
			if id, is := s.LHS.(*syntax.Ident); is && s.Op != syntax.EQ {
				out = append(out, &syntax.ExprStmt{X: t.site(s.Op.String(), s.OpPos, &syntax.Ident{NamePos: id.NamePos, Name: id.Name})})
			}
		case *syntax.DefStmt:
			parameters(s.Params, t.expr)
			s.Body = t.statements(s.Body)
		case *syntax.ExprStmt:
			s.X = t.expr(s.X)
		case *syntax.ForStmt:
			s.X = t.expr(s.X)
			first := &syntax.ExprStmt{X: t.site("for", s.For, variables(s.Vars))}
			s.Body = append([]syntax.Stmt{first}, t.statements(s.Body)...)
		case *syntax.WhileStmt:
			s.Cond = t.expr(s.Cond)
			s.Body = t.statements(s.Body)
		case *syntax.IfStmt:
			s.Cond = t.expr(s.Cond)
			s.True, s.False = t.statements(s.True), t.statements(s.False)
		case *syntax.ReturnStmt:
			s.Result = t.expr(s.Result)
		}
	}
	return out
}

// variables makes an expression that reads the variables of a loop.
func variables(e syntax.Expr) syntax.Expr {
	switch e := unparen(e).(type) {
	case *syntax.TupleExpr:
		list := each.Of(e.List, variables)
		start, end := e.Span()
		return &syntax.ParenExpr{Lparen: start, X: &syntax.TupleExpr{List: list}, Rparen: end}
	case *syntax.Ident:
		return &syntax.Ident{NamePos: e.NamePos, Name: e.Name}
	default:
		start, _ := e.Span()
		return &syntax.Ident{NamePos: start, Name: "None"} // a list or an index
	}
}

func (t *Tracer) expr(e syntax.Expr) syntax.Expr {
	operands(e, t.expr)
	switch e := e.(type) {
	case *syntax.BinaryExpr:
		switch e.Op {
		case syntax.PLUS, syntax.MINUS, syntax.STAR, syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT, syntax.AMP, syntax.PIPE, syntax.CIRCUMFLEX:
			return t.site(e.Op.String(), e.OpPos, e)
		}
	case *syntax.CallExpr:
		name := "call"
		switch fn := unparen(e.Fn).(type) {
		case *syntax.DotExpr:
			name = fn.Name.Name
		case *syntax.Ident:
			name = fn.Name
		}
		return t.site(name, e.Lparen, e)
	case *syntax.IndexExpr:
		return t.site("[]", e.Lbrack, e)
	case *syntax.SliceExpr:
		return t.site("[]", e.Lbrack, e)
	case *syntax.UnaryExpr:
		if e.Op == syntax.MINUS || e.Op == syntax.TILDE {
			return t.site(e.Op.String(), e.OpPos, e)
		}
	}
	return e
}
