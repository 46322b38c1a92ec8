package lang

import (
	"cmp"
	"math"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Never is a number of steps that no thread reaches.
const Never = math.MaxUint64

// Step makes a thread under Watch call fn on its goroutine once ExecutionSteps has reached at, before it carries that step
// out, and then at each number that fn returns. Never ends this. It is called before the thread executes, or on its goroutine.
func Step(thread *starlark.Thread, at uint64, fn func(*starlark.Thread) (next uint64)) {
	w := thread.Local(watchKey).(*watch)
	w.step, w.at = fn, at
	thread.SetMaxExecutionSteps(min(w.due, w.at))
}

// Mark is the predeclared name of a value that a file compiled with Marks reads where a statement begins at which a thread
// could not be seen otherwise.
const Mark = predeclared + mark

const mark = "here?" // no recipe can write it

// marks gives every statement a position in the compiled program: one such as x = 0 has none.
func marks(stmts []syntax.Stmt) []syntax.Stmt {
	var out []syntax.Stmt
	for _, stmt := range stmts {
		switch s := stmt.(type) {
		case *syntax.DefStmt:
			s.Body = marks(s.Body)
		case *syntax.ForStmt:
			s.Body = marks(s.Body)
		case *syntax.WhileStmt:
			s.Body = marks(s.Body)
		case *syntax.IfStmt:
			s.True, s.False = marks(s.True), marks(s.False)
		}
		if start, _ := stmt.Span(); !literal(stmt) && silent(stmt) {
			out = append(out, &syntax.ExprStmt{X: &syntax.Ident{NamePos: start, Name: mark}})
		}
		out = append(out, stmt)
	}
	return out
}

// literal reports whether a statement is only a literal, for which nothing is compiled.
func literal(stmt syntax.Stmt) bool {
	s, ok := stmt.(*syntax.ExprStmt)
	if !ok {
		return false
	}
	_, ok = s.X.(*syntax.Literal)
	return ok
}

// silent reports whether a statement may do all its work at steps that have no position of their own.
func silent(stmt syntax.Stmt) bool {
	switch s := stmt.(type) {
	case *syntax.AssignStmt:
		_, name := unparen(s.LHS).(*syntax.Ident)
		return s.Op == syntax.EQ && name && !placed(s.RHS)
	case *syntax.BranchStmt:
		return true
	case *syntax.ExprStmt:
		return !placed(s.X)
	case *syntax.ReturnStmt:
		return s.Result == nil || !placed(s.Result)
	case *syntax.IfStmt:
		return !placed(s.Cond)
	case *syntax.WhileStmt:
		return !placed(s.Cond)
	}
	return false
}

// placed reports whether each evaluation of an expression has a step with a position, in or outside a condition.
func placed(e syntax.Expr) bool {
	switch e := e.(type) {
	case *syntax.Literal:
		return false
	case *syntax.ParenExpr:
		return placed(e.X)
	case *syntax.ListExpr:
		return slices.ContainsFunc(e.List, placed)
	case *syntax.TupleExpr:
		return slices.ContainsFunc(e.List, placed)
	case *syntax.DictExpr:
		return len(e.List) > 0
	case *syntax.CondExpr:
		return placed(e.Cond) || placed(e.True) && placed(e.False)
	case *syntax.UnaryExpr:
		return e.Op != syntax.NOT || placed(e.X)
	case *syntax.BinaryExpr:
		switch e.Op {
		case syntax.AND, syntax.OR:
			return placed(e.X)
		case syntax.PLUS: // of literals, it may have been folded
			return placed(e.X) || placed(e.Y)
		}
	}
	return true
}

// Lines says at which statements of a file a thread can be stopped.
type Lines struct {
	File  string   // as positions show it
	first []int32  // by line: the first line of the statement that it belongs to, 0 without one
	Names []string // all that occur in the file
}

// Lines lists the lines of the file's statements. marks says whether it is compiled with Marks.
func (f *File) Lines(marks bool) *Lines {
	l := &Lines{File: f.Syntax.Path}
	syntax.Walk(f.Syntax, func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok && !slices.Contains(l.Names, id.Name) {
			l.Names = append(l.Names, id.Name)
		}
		stmt, ok := n.(syntax.Stmt)
		if !ok {
			return true
		}
		start, end := stmt.Span()
		switch s := stmt.(type) {
		case *syntax.DefStmt:
			end = before(s.Body, start)
		case *syntax.ForStmt:
			_, end = s.X.Span()
		case *syntax.WhileStmt:
			_, end = s.Cond.Span()
		case *syntax.IfStmt:
			_, end = s.Cond.Span()
		case *syntax.LoadStmt:
			for _, id := range s.To {
				l.Names = append(l.Names, id.Name)
			}
			return false // it has been carried out by the time it is seen
		}
		if literal(stmt) || !marks && silent(stmt) {
			return true
		}
		l.first = append(l.first, make([]int32, max(0, int(end.Line)+1-len(l.first)))...)
		for line := start.Line; line <= end.Line; line++ {
			l.first[line] = cmp.Or(l.first[line], start.Line)
		}
		return true
	})
	return l
}

// before is the end of a function's head, as far as its body tells.
func before(body []syntax.Stmt, start syntax.Position) syntax.Position {
	if first, _ := body[0].Span(); first.Line > start.Line {
		first.Line--
		return first
	}
	return start
}

// Statement is the first line of the statement that a line belongs to, 0 if there is none.
func (l *Lines) Statement(line int32) int32 {
	if line < 0 || int(line) >= len(l.first) {
		return 0
	}
	return l.first[line]
}

// Near is the first line of the statement at a line or, where none is, of the next one; 0 after the last.
func (l *Lines) Near(line int32) (at int32) {
	for ; at == 0 && int(line) < len(l.first); line++ {
		at = l.Statement(line)
	}
	return at
}
