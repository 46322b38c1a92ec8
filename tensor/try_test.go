package tensor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Functions that return an error and use try.To or its like, or a function that does and returns none, must defer try.Caught,
// or what failed would pass by their callers.
func TestTryIsCaught(t *testing.T) {
	for _, folder := range []string{".", "linalg", "fft", "optim"} {
		names, err := filepath.Glob(folder + "/*.go")
		if err != nil || names == nil {
			t.Fatal(folder, err)
		}
		files := token.NewFileSet()
		var functions []parsed
		inline := map[*ast.FuncLit]bool{} // steps of a chain, which are part of the function around them
		ends := map[string]bool{}         // functions without an error that end their caller, by their names
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(files, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					name := n.Name.Name
					if n.Recv != nil {
						name = "." + name
					}
					functions = append(functions, parsed{name, n.Type, n.Body, inline})
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "then" {
						if lit, ok := n.Args[0].(*ast.FuncLit); ok {
							inline[lit] = true
						}
					}
				case *ast.FuncLit:
					if !inline[n] {
						functions = append(functions, parsed{"", n.Type, n.Body, inline})
					}
				}
				return true
			})
		}
		for before := -1; before != len(ends); {
			before = len(ends)
			for _, f := range functions {
				if tries, _ := f.uses(ends); tries && f.name != "" && !f.returnsError() {
					ends[f.name] = true
				}
			}
		}
		for _, f := range functions {
			if tries, caught := f.uses(ends); tries && !caught && f.returnsError() {
				t.Errorf("%s: %s uses try.To or its like and does not defer try.Caught", files.Position(f.body.Pos()), f.name)
			}
		}
	}
}

type parsed struct {
	name   string // of a method with a dot before it
	typ    *ast.FuncType
	body   *ast.BlockStmt
	inline map[*ast.FuncLit]bool
}

// uses reports whether f, without the functions in it, may end as try.To does, and whether it defers try.Caught.
func (f parsed) uses(ends map[string]bool) (tries, caught bool) {
	if f.body == nil {
		return false, false
	}
	ast.Inspect(f.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return f.inline[n]
		case *ast.CallExpr:
			switch f := n.Fun.(type) {
			case *ast.Ident:
				tries = tries || ends[f.Name]
			case *ast.SelectorExpr:
				id, _ := f.X.(*ast.Ident)
				switch inTry := id != nil && id.Name == "try"; {
				case inTry && strings.HasPrefix(f.Sel.Name, "Caught"):
					caught = true
				case inTry && f.Sel.Name != "As":
					tries = true
				case id == nil || id.Name != "kernel":
					tries = tries || ends["."+f.Sel.Name]
				}
			}
		}
		return true
	})
	return tries, caught
}

func (f parsed) returnsError() bool {
	if f.typ.Results == nil {
		return false
	}
	id, ok := f.typ.Results.List[len(f.typ.Results.List)-1].Type.(*ast.Ident)
	return ok && id.Name == "error"
}
