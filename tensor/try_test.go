package tensor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Functions that return an error and use try.To, try.Ok or a builder must defer try.Caught, or what failed would pass by
// their callers. Backward functions need not.
func TestTryIsCaught(t *testing.T) {
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"linalg", "fft"} {
		more, err := filepath.Glob(folder + "/*.go")
		if err != nil || more == nil {
			t.Fatal(folder, err)
		}
		names = append(names, more...)
	}
	ends := []string{"To", "To2", "To3", "Ok"}
	check := func(f *ast.FuncType, body *ast.BlockStmt) {
		if body == nil || !returnsError(f) || backwardFunction(f) {
			return
		}
		caught, tries := false, false
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.CallExpr:
				switch f := n.Fun.(type) {
				case *ast.Ident:
					tries = tries || f.Name == "build"
				case *ast.SelectorExpr:
					if id, ok := f.X.(*ast.Ident); ok && id.Name == "try" {
						caught = caught || strings.HasPrefix(f.Sel.Name, "Caught")
						tries = tries || slices.Contains(ends, f.Sel.Name)
					}
				}
			}
			return true
		})
		if tries && !caught {
			t.Errorf("%s: the function uses try.To, try.Ok or a builder and does not defer try.Caught", files.Position(body.Pos()))
		}
	}
	seen := 0
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
				check(n.Type, n.Body)
				seen++
			case *ast.FuncLit:
				check(n.Type, n.Body)
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("no functions were found")
	}
}

func returnsError(f *ast.FuncType) bool {
	if f.Results == nil {
		return false
	}
	id, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	return ok && id.Name == "error"
}

// backwardFunction reports whether f takes a node and a list of gradients.
func backwardFunction(f *ast.FuncType) bool {
	node, list := false, false
	for _, p := range f.Params.List {
		switch x := p.Type.(type) {
		case *ast.StarExpr:
			id, ok := x.X.(*ast.Ident)
			node = node || ok && id.Name == "node"
		case *ast.ArrayType:
			list = true
		}
	}
	return node && list
}
