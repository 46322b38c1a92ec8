package lang

import (
	"maps"
	"slices"

	"go.starlark.net/syntax"
)

// The rewriting replaces
//
//	x < y              by  "<"[x][y]
//	x, as a condition  by  "if"[x]
//	x < y, as such     by  "if <"[x][y]
//	s % y              by  "%"[s][y]
//	s * y              by  "*"[s][y]
//	f(*x, **y)         by  f(*"f(*)"[x], **"f(*)"[y])
//	f(x).backward(y)   by  "f()"[f](x).backward(y)
//
// where "<" stands for a global of that name, which no recipe can name or shadow. The file's first statements set the
// globals that it uses to predeclared values: a global is read by its index, a predeclared name by a search. An index
// expression costs half as much as a call, and puts no frame of its own between the recipe's frames in a backtrace;
// it fails at its bracket, so the bracket takes the operator's place.

// rewrite changes a tree that has not been resolved, in place.
func rewrite(file *syntax.File) {
	statements(file.Stmts)
	used := map[string]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok && (id.Name == "if" || !identifier(id.Name)) {
			used[id.Name] = true
		}
		return true
	})
	var set []syntax.Stmt
	pos := syntax.MakePosition(&file.Path, 1, 1)
	for _, name := range slices.Sorted(maps.Keys(used)) {
		set = append(set, &syntax.AssignStmt{
			OpPos: pos,
			Op:    syntax.EQ,
			LHS:   &syntax.Ident{NamePos: pos, Name: name},
			RHS:   &syntax.Ident{NamePos: pos, Name: predeclared + name},
		})
	}
	file.Stmts = append(set, file.Stmts...)
}

// predeclared begins the names of operators in the environment.
const predeclared = "operator "

func statements(stmts []syntax.Stmt) {
	for _, stmt := range stmts {
		switch s := stmt.(type) {
		case *syntax.AssignStmt:
			assignment(s)
		case *syntax.DefStmt:
			parameters(s.Params, expr)
			statements(s.Body)
		case *syntax.ExprStmt:
			s.X = expr(s.X)
		case *syntax.ForStmt:
			target(s.Vars)
			s.X = expr(s.X)
			statements(s.Body)
		case *syntax.WhileStmt:
			if s.Cond = condition(s.Cond); unplaced(s.Cond) {
				s.Cond = index("if", s.While, s.Cond)
			}
			statements(s.Body)
		case *syntax.IfStmt:
			s.Cond = condition(s.Cond)
			statements(s.True)
			statements(s.False)
		case *syntax.ReturnStmt:
			if s.Result != nil {
				s.Result = expr(s.Result)
			}
		}
	}
}

func assignment(s *syntax.AssignStmt) {
	name := map[syntax.Token]string{syntax.PERCENT_EQ: "%", syntax.STAR_EQ: "*"}[s.Op]
	left := again(s.LHS)
	target(s.LHS)
	s.RHS = expr(s.RHS)
	if name != "" && left != nil {
		// s %= y becomes s = s % y. Where this would evaluate a call twice, it keeps Starlark's own %.
		s.Op = syntax.EQ
		s.RHS = operation(name, expr(left), s.OpPos, s.RHS)
	}
}

// again copies an expression that can be evaluated twice; it returns nil if that is unsafe because of a call.
func again(e syntax.Expr) syntax.Expr {
	switch e := unparen(e).(type) {
	case *syntax.Ident:
		return &syntax.Ident{NamePos: e.NamePos, Name: e.Name}
	case *syntax.Literal:
		return e
	case *syntax.DotExpr:
		if x := again(e.X); x != nil {
			return &syntax.DotExpr{X: x, Dot: e.Dot, NamePos: e.NamePos, Name: &syntax.Ident{NamePos: e.Name.NamePos, Name: e.Name.Name}}
		}
	case *syntax.IndexExpr:
		x, y := again(e.X), again(e.Y)
		if x != nil && y != nil {
			return &syntax.IndexExpr{X: x, Lbrack: e.Lbrack, Y: y, Rbrack: e.Rbrack}
		}
	}
	return nil
}

// target rewrites the expressions within the left side of an assignment. What
// cannot be assigned to stays as it is, for the resolver to refuse.
func target(e syntax.Expr) {
	switch e := e.(type) {
	case *syntax.ParenExpr:
		target(e.X)
	case *syntax.TupleExpr:
		targets(e.List)
	case *syntax.ListExpr:
		targets(e.List)
	case *syntax.IndexExpr, *syntax.DotExpr:
		expr(e)
	}
}

func targets(list []syntax.Expr) {
	for _, e := range list {
		target(e)
	}
}

// parameters replaces the defaults.
func parameters(params []syntax.Expr, fn func(syntax.Expr) syntax.Expr) {
	for _, p := range params {
		if p, ok := p.(*syntax.BinaryExpr); ok { // name = default
			p.Y = fn(p.Y)
		}
	}
}

func expr(e syntax.Expr) syntax.Expr {
	switch e := e.(type) {
	case *syntax.BinaryExpr:
		return binary(e, expr, "")
	case *syntax.CallExpr:
		operands(e, expr)
		if dot, ok := e.Fn.(*syntax.DotExpr); ok && dot.Name.Name == "backward" {
			if made, ok := unparen(dot.X).(*syntax.CallExpr); ok {
				made.Fn = index("f()", made.Lparen, made.Fn)
			}
		}
	case *syntax.Comprehension:
		e.Body = expr(e.Body)
		for _, clause := range e.Clauses {
			switch c := clause.(type) {
			case *syntax.ForClause:
				target(c.Vars)
				c.X = expr(c.X)
			case *syntax.IfClause:
				c.Cond = condition(c.Cond)
			}
		}
	case *syntax.CondExpr:
		e.Cond, e.True, e.False = condition(e.Cond), expr(e.True), expr(e.False)
	case *syntax.UnaryExpr:
		if e.Op == syntax.NOT {
			e.X = condition(e.X)
		} else if e.X != nil {
			e.X = expr(e.X)
			if e.Op == syntax.STAR || e.Op == syntax.STARSTAR { // f(*x, **y)
				e.X = index("f(*)", e.OpPos, e.X)
			}
		}
	default:
		operands(e, expr)
	}
	return e
}

// operands replaces each expression directly within e by what fn returns for it.
func operands(e syntax.Expr, fn func(syntax.Expr) syntax.Expr) {
	each := func(list []syntax.Expr) {
		for i := range list {
			list[i] = fn(list[i])
		}
	}
	switch e := e.(type) {
	case *syntax.BinaryExpr:
		e.X, e.Y = fn(e.X), fn(e.Y)
	case *syntax.CallExpr:
		e.Fn = fn(e.Fn)
		each(e.Args)
	case *syntax.Comprehension:
		e.Body = fn(e.Body)
		for _, clause := range e.Clauses {
			switch c := clause.(type) {
			case *syntax.ForClause:
				c.X = fn(c.X)
			case *syntax.IfClause:
				c.Cond = fn(c.Cond)
			}
		}
	case *syntax.CondExpr:
		e.Cond, e.True, e.False = fn(e.Cond), fn(e.True), fn(e.False)
	case *syntax.DictEntry:
		e.Key, e.Value = fn(e.Key), fn(e.Value)
	case *syntax.DictExpr:
		each(e.List)
	case *syntax.DotExpr:
		e.X = fn(e.X)
	case *syntax.IndexExpr:
		e.X, e.Y = fn(e.X), fn(e.Y)
	case *syntax.LambdaExpr:
		parameters(e.Params, fn)
		e.Body = fn(e.Body)
	case *syntax.ListExpr:
		each(e.List)
	case *syntax.ParenExpr:
		e.X = fn(e.X)
	case *syntax.SliceExpr:
		e.X = fn(e.X)
		for _, part := range []*syntax.Expr{&e.Lo, &e.Hi, &e.Step} {
			if *part != nil {
				*part = fn(*part)
			}
		}
	case *syntax.TupleExpr:
		each(e.List)
	case *syntax.UnaryExpr:
		if e.X != nil {
			e.X = fn(e.X)
		}
	}
}

// binary rewrites x op y. The value of and/or may be its right operand,
// which is therefore rewritten as the whole is: by expr or by condition.
func binary(e *syntax.BinaryExpr, right func(syntax.Expr) syntax.Expr, prefix string) syntax.Expr {
	switch e.Op {
	case syntax.AND, syntax.OR:
		e.X, e.Y = condition(e.X), right(e.Y)
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		return operation(prefix+e.Op.String(), expr(e.X), e.OpPos, expr(e.Y))
	case syntax.PERCENT:
		e.X, e.Y = expr(e.X), expr(e.Y)
		if mayFormat(e.X) {
			return operation("%", e.X, e.OpPos, e.Y)
		}
	case syntax.STAR:
		fractions := fraction(e.X) || fraction(e.Y)
		e.X, e.Y = expr(e.X), expr(e.Y)
		if !fractions {
			return operation("*", e.X, e.OpPos, e.Y)
		}
	default: // also name = value, in a call
		e.X, e.Y = expr(e.X), expr(e.Y)
	}
	return e
}

// condition rewrites an expression that is used as a condition.
func condition(e syntax.Expr) syntax.Expr {
	switch x := e.(type) {
	case *syntax.ParenExpr:
		x.X = condition(x.X)
		return x
	case *syntax.CondExpr:
		x.Cond, x.True, x.False = condition(x.Cond), condition(x.True), condition(x.False)
		return x
	case *syntax.UnaryExpr:
		if x.Op == syntax.NOT {
			return expr(x)
		}
	case *syntax.BinaryExpr:
		switch x.Op {
		case syntax.IN, syntax.NOT_IN:
			return expr(x) // a bool, whatever the operands
		case syntax.AND, syntax.OR, syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
			return binary(x, condition, "if ")
		}
	case *syntax.Literal, *syntax.ListExpr, *syntax.TupleExpr, *syntax.DictExpr, *syntax.Comprehension, *syntax.LambdaExpr:
		return expr(e)
	case *syntax.Ident:
		if x.Name == "True" || x.Name == "False" || x.Name == "None" {
			return x
		}
	}
	start, _ := e.Span()
	return index("if", start, expr(e))
}

// unplaced reports whether a condition, as in while True, compiles to an instruction without a position: a thread
// stopped there would seem to be at the last position before the loop, such as the function's def.
func unplaced(e syntax.Expr) bool {
	switch e := unparen(e).(type) {
	case *syntax.Ident:
		return e.Name == "True"
	case *syntax.Literal:
		return true
	}
	return false
}

func operation(name string, x syntax.Expr, pos syntax.Position, y syntax.Expr) syntax.Expr {
	return &syntax.IndexExpr{X: index(name, pos, x), Lbrack: pos, Y: y, Rbrack: syntax.End(y)}
}

// index is "name"[e], which fails at pos.
func index(name string, pos syntax.Position, e syntax.Expr) syntax.Expr {
	start, end := e.Span()
	return &syntax.IndexExpr{
		X:      &syntax.Ident{NamePos: start, Name: name},
		Lbrack: pos,
		Y:      e,
		Rbrack: end,
	}
}

// fraction reports whether an expression cannot be an integer, a string or a list,
// so that a product with it repeats nothing.
func fraction(e syntax.Expr) bool {
	switch e := unparen(e).(type) {
	case *syntax.Literal:
		return e.Token == syntax.FLOAT
	case *syntax.UnaryExpr:
		return e.Op == syntax.MINUS && fraction(e.X)
	case *syntax.BinaryExpr:
		return e.Op == syntax.SLASH || e.Op == syntax.STAR && (fraction(e.X) || fraction(e.Y))
	}
	return false
}

// mayFormat reports whether, judging by x, x % y may format a string.
func mayFormat(x syntax.Expr) bool {
	lit, ok := unparen(x).(*syntax.Literal)
	return !ok || lit.Token == syntax.STRING
}

func unparen(e syntax.Expr) syntax.Expr {
	for {
		p, ok := e.(*syntax.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
}
