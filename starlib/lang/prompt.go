package lang

import (
	"errors"
	"io"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Result is the name under which a prompt keeps the value of the last expression.
const Result = "_"

// ReadStatement reads the lines of one statement, as they are typed at a prompt: a block ends with an empty line. Run
// reports its syntax errors. The error is readline's; at the end of the input, src may still be a statement.
func ReadStatement(name string, readline func() ([]byte, error)) (src []byte, err error) {
	_, _ = dialect.ParseCompoundStmt(name, func() ([]byte, error) {
		line, failed := readline()
		if failed != nil {
			err = failed
			return nil, failed
		}
		src = append(src, line...)
		return line, nil
	})
	if errors.Is(err, io.EOF) && len(src) > 0 {
		err = nil
	}
	return src, err
}

// Run executes what was typed at a prompt. globals holds what has been defined so far; at first it is an environment made by Environment.
// If the file is a single expression, Run returns its value, else nil. The error is an *Error.
func (f *File) Run(thread *starlark.Thread, globals starlark.StringDict) (starlark.Value, error) {
	tree, err := parseTree(f.Name, f.Source)
	if err != nil {
		return nil, err
	}
	tree.Options.LoadBindsGlobally = true
	valued := false
	if len(tree.Stmts) == 1 {
		if expr, ok := tree.Stmts[0].(*syntax.ExprStmt); ok {
			start, _ := expr.Span()
			valued = true
			tree.Stmts[0] = &syntax.AssignStmt{OpPos: start, Op: syntax.EQ, LHS: &syntax.Ident{NamePos: start, Name: Result}, RHS: expr.X}
		}
	}
	rewrite(tree)
	if err := starlark.ExecREPLChunk(tree, thread, globals); err != nil {
		return nil, suggestNames(Explain(thread, err), tree, globals)
	}
	if valued {
		return globals[Result], nil
	}
	return nil, nil
}
