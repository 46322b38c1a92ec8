package lang

import "go.starlark.net/syntax"

// SavePoint is the predeclared name of a function without arguments. A file compiled with SavePoints calls it wherever the
// recipe decides whether to save: before each if statement in whose branches checkpoint.save is called, before a statement
// with such a call, and where a loop's iteration or a function that has such a statement is left early.
const SavePoint = predeclared + savePoint

const savePoint = "save?" // no recipe can write it

// insertSavePoints adds the calls to a tree that has not been rewritten.
func insertSavePoints(stmts []syntax.Stmt) []syntax.Stmt { return savePoints{}.insert(stmts) }

// savePoints says which statements leave a body that saves.
type savePoints struct{ iteration, function bool }

func (m savePoints) insert(stmts []syntax.Stmt) []syntax.Stmt {
	var out []syntax.Stmt
	for _, stmt := range stmts {
		decides := false
		switch s := stmt.(type) {
		case *syntax.DefStmt:
			s.Body = savePoints{function: saves(s.Body, false)}.insert(s.Body)
		case *syntax.ForStmt:
			s.Body = savePoints{saves(s.Body, false), m.function}.insert(s.Body)
		case *syntax.WhileStmt:
			s.Body = savePoints{saves(s.Body, false), m.function}.insert(s.Body)
		case *syntax.IfStmt:
			decides = saves(s.True, true) || saves(s.False, true)
			s.True, s.False = m.insert(s.True), m.insert(s.False)
		case *syntax.BranchStmt:
			decides = m.iteration && s.Token != syntax.PASS
		case *syntax.ReturnStmt:
			decides = m.function || m.iteration
		default:
			decides = saves([]syntax.Stmt{stmt}, false)
		}
		if decides {
			at, _ := stmt.Span()
			id := &syntax.Ident{NamePos: at, Name: savePoint}
			out = append(out, &syntax.ExprStmt{X: &syntax.CallExpr{Fn: id, Lparen: at, Rparen: at}})
		}
		out = append(out, stmt)
	}
	return out
}

// saves reports whether statements call checkpoint.save outside nested loops and functions, which have save points
// of their own. With within, the branches of if statements count too.
func saves(stmts []syntax.Stmt, within bool) (found bool) {
	for _, stmt := range stmts {
		syntax.Walk(stmt, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.ForStmt, *syntax.WhileStmt, *syntax.DefStmt, *syntax.LambdaExpr:
				return false
			case *syntax.IfStmt:
				if !within {
					return false
				}
			case *syntax.DotExpr:
				if id, is := n.X.(*syntax.Ident); is && id.Name == "checkpoint" && n.Name.Name == "save" {
					found = true
				}
			}
			return !found
		})
	}
	return found
}
