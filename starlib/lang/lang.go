// Package lang is the language of recipes: go.starlark.net's Starlark, with a
// small rewriting of the syntax tree that gives comparisons, conditions and
// "%.4f" % x the meaning that numeric users expect.
//
// The engine calls it for every recipe file: Parse, Compile, then the
// program's Init with an environment made by Environment, on a thread under
// Watch. Tensors take part through the interfaces Elementwise and Truther;
// the package itself knows nothing of tensors, ranks and file systems.
//
// Where the meaning differs from plain Starlark:
//   - == != < <= > >= are elementwise when an operand is Elementwise, and a NaN
//     float equals nothing and is ordered with nothing. Floats inside lists,
//     tuples and dicts compare as in Starlark, as do max, min and sorted.
//   - a Truther used as a condition is asked for its truth value, and may refuse.
//   - s % x knows flags, width and precision; conversions without any of them
//     print as in Starlark.
package lang

import (
	"bytes"
	"fmt"
	"maps"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

const (
	maxSource = 1 << 20 // bytes
	// Resolver and compiler recurse over the tree, and a Go stack overflow cannot be recovered from. The parser
	// bounds brackets and indentation itself (at about 75 levels), but not what it reads in a loop: a+b+c, f()()(),
	// x.y.z, elif after elif, for and if clauses of a comprehension. For the last two the resolver and compiler also
	// take quadratic time.
	maxTreeDepth = 10_000
	maxClauses   = 1_000
)

var dialect = syntax.FileOptions{
	Set:             true,
	While:           true,
	TopLevelControl: true,
	GlobalReassign:  true,
	Recursion:       true,
}

// A File is a recipe file that has been parsed.
type File struct {
	Name   string
	Source []byte       // as given, without a byte order mark
	Syntax *syntax.File // as written; Compile works on its own tree
	Doc    string       // the docstring, "" without
	Loads  []Load       // in the order of the file
	// SavePoints makes Compile add calls of SavePoint.
	SavePoints bool
	// Tracer, if set, gets the values that the file computes.
	Tracer *Tracer
	// Marks makes Compile add a Mark to statements that have no position otherwise.
	Marks bool
}

// A Load is a load statement.
type Load struct {
	Module string          // as written
	Pos    syntax.Position // of the module's string
	Names  []string        // the names loaded from the module
}

// Parse parses a recipe file. Its errors are *Error, with a position.
func Parse(filename string, src []byte) (_ *File, err error) {
	defer try.Caught(&err)
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	try.Ok(checkSource(filename, src))
	tree := try.To(parseTree(filename, src))
	f := &File{Name: filename, Source: src, Syntax: tree, Doc: docstring(tree.Stmts)}
	for _, stmt := range tree.Stmts {
		load, ok := stmt.(*syntax.LoadStmt)
		if !ok {
			continue
		}
		l := Load{Module: load.ModuleName(), Pos: load.Module.TokenPos}
		for _, id := range load.From {
			l.Names = append(l.Names, id.Name)
		}
		f.Loads = append(f.Loads, l)
	}
	return f, nil
}

// Compile resolves and compiles the file for an environment made by Environment; the program's Init must be given the
// same one. Its error is an *Error that lists every unknown name and other fault of the file.
func (f *File) Compile(env starlark.StringDict) (*starlark.Program, error) {
	// Resolving annotates the tree, so every compilation parses its own.
	tree, err := parseTree(f.Name, f.Source)
	if err != nil {
		return nil, err
	}
	if f.Tracer != nil {
		tree.Stmts = f.Tracer.statements(tree.Stmts)
	}
	if f.SavePoints {
		tree.Stmts = insertSavePoints(tree.Stmts)
	}
	if f.Marks {
		tree.Stmts = marks(tree.Stmts)
	}
	rewrite(tree)
	prog, err := starlark.FileProgram(tree, env.Has)
	if err != nil {
		return nil, suggestNames(Explain(nil, err), tree, env)
	}
	return prog, nil
}

// Environment returns the predeclared names of a recipe: the given ones, the language's own builtins (see Builtins),
// and the operators, under names that a recipe can neither write nor shadow.
func Environment(names starlark.StringDict) starlark.StringDict {
	env := make(starlark.StringDict)
	for _, dict := range []starlark.StringDict{operators(), Builtins(), names} {
		maps.Copy(env, dict)
	}
	return env
}

func checkSource(filename string, src []byte) error {
	if len(src) > maxSource {
		return errorAt(syntax.MakePosition(&filename, 1, 1),
			"the file has %d bytes, a recipe at most %d: put data into files that the recipe reads", len(src), maxSource)
	}
	if utf8.Valid(src) {
		return nil
	}
	line, col := int32(1), int32(1)
	for i := 0; ; {
		r, size := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return errorAt(syntax.MakePosition(&filename, line, col),
				"byte 0x%02x is not UTF-8: save the file as UTF-8", src[i])
		case r == '\n':
			line, col = line+1, 1
		default:
			col++
		}
		i += size
	}
}

func parseTree(filename string, src []byte) (*syntax.File, error) {
	tree, err := dialect.Parse(filename, src, 0)
	if err != nil {
		return nil, explainSyntax(Explain(nil, err), src)
	}
	return tree, checkTree(tree)
}

// checkTree refuses trees that would overflow the stack of the passes that
// follow. Walk stops where the function returns false, so it is safe too.
func checkTree(tree *syntax.File) error {
	var fault error
	refuse := func(n syntax.Node, format string, args ...any) bool {
		if fault == nil {
			fault = errorAt(position(n), format, args...)
		}
		return false
	}
	depth := 0
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil:
			depth--
			return true
		case *syntax.Comprehension:
			if len(n.Clauses) > maxClauses {
				return refuse(n, "a comprehension of %d clauses: at most %d are allowed", len(n.Clauses), maxClauses)
			}
		}
		if fault != nil {
			return false
		}
		if depth >= maxTreeDepth {
			return refuse(n, "a chain or nesting of more than %d parts: split it into several statements", maxTreeDepth)
		}
		depth++
		return true
	})
	return fault
}

// position returns where errors about a node are reported: at its operator if it has one. Unlike
// syntax.Start it does not descend into the node.
func position(n syntax.Node) syntax.Position {
	switch n := n.(type) {
	case *syntax.BinaryExpr:
		return n.OpPos
	case *syntax.DotExpr:
		return n.Dot
	case *syntax.CallExpr:
		return n.Lparen
	case *syntax.IndexExpr:
		return n.Lbrack
	case *syntax.SliceExpr:
		return n.Lbrack
	case *syntax.CondExpr:
		return n.If
	}
	return syntax.Start(n)
}

func docstring(stmts []syntax.Stmt) string {
	if len(stmts) == 0 {
		return ""
	}
	if stmt, ok := stmts[0].(*syntax.ExprStmt); ok {
		if lit, ok := stmt.X.(*syntax.Literal); ok && lit.Token == syntax.STRING {
			return lit.Value.(string)
		}
	}
	return ""
}

func errorAt(pos syntax.Position, format string, args ...any) *Error {
	return &Error{Pos: pos, Msg: fmt.Sprintf(format, args...)}
}
