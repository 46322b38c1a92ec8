package lang

import "go.starlark.net/syntax"

// Moment is the predeclared name of a function without arguments. In a file that was compiled with Moments set,
// the recipe calls it wherever it decides whether to save: before each outermost if statement
// of a function in whose branches checkpoint.save is called.
const Moment = predeclared + moment

const moment = "save?" // no recipe can write it

// insertMoments adds the calls to a tree that has not been rewritten.
func insertMoments(stmts []syntax.Stmt) []syntax.Stmt {
	var out []syntax.Stmt
	for _, stmt := range stmts {
		switch s := stmt.(type) {
		case *syntax.DefStmt:
			s.Body = insertMoments(s.Body)
		case *syntax.ForStmt:
			s.Body = insertMoments(s.Body)
		case *syntax.WhileStmt:
			s.Body = insertMoments(s.Body)
		case *syntax.IfStmt:
			if saves(s) {
				id := &syntax.Ident{NamePos: s.If, Name: moment}
				out = append(out, &syntax.ExprStmt{X: &syntax.CallExpr{Fn: id, Lparen: s.If, Rparen: s.If}})
			} else {
				s.True, s.False = insertMoments(s.True), insertMoments(s.False)
			}
		}
		out = append(out, stmt)
	}
	return out
}

// saves tells whether checkpoint.save is called in a branch, and in no loop there: a loop has a decision
// of its own.
func saves(s *syntax.IfStmt) (found bool) {
	for _, branch := range [][]syntax.Stmt{s.True, s.False} {
		for _, stmt := range branch {
			syntax.Walk(stmt, func(n syntax.Node) bool {
				switch n := n.(type) {
				case *syntax.ForStmt, *syntax.WhileStmt, *syntax.DefStmt, *syntax.LambdaExpr:
					return false
				case *syntax.DotExpr:
					if id, is := n.X.(*syntax.Ident); is && id.Name == "checkpoint" && n.Name.Name == "save" {
						found = true
					}
				}
				return !found
			})
		}
	}
	return found
}
