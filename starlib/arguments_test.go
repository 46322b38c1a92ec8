package starlib

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestArgumentsAreParameters reads drun's own source and checks that every argument that a builtin's function reads by
// name is a parameter of the builtin's signature. It follows a Call, which is always named c, through the functions of
// a package.
func TestArgumentsAreParameters(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*/*.go", "../engine/worker/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	packages := map[string]*readers{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		dir := filepath.Dir(name)
		if packages[dir] == nil {
			packages[dir] = &readers{T: t, set: token.NewFileSet(), named: map[string][]function{}, strings: map[string]bool{}, consts: map[string]ast.Expr{}, sigs: map[ast.Node][]*signature{}, read: map[ast.Node]bool{}}
		}
		p := packages[dir]
		f, err := parser.ParseFile(p.set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, f)
	}
	reads := 0
	for _, p := range packages {
		reads += p.check()
	}
	if reads < 250 {
		t.Errorf("found only %d reads of arguments", reads)
	}
}

// readers are a package's functions that read arguments.
type readers struct {
	*testing.T
	set     *token.FileSet
	files   []*ast.File
	named   map[string][]function     // by their names; one name may be that of several
	strings map[string]bool           // parameters of functions, of type string
	consts  map[string]ast.Expr       // values of constants
	sigs    map[ast.Node][]*signature // the builtins that run a function's body
	read    map[ast.Node]bool         // names that were compared with a signature
}

type function struct {
	typ  *ast.FuncType
	body *ast.BlockStmt
}

// accessors are the methods of a Call that take an argument's name.
var accessors = []string{"Arg", "IsNone", "String", "Bool", "Callable", "Int", "Float"}

func (p *readers) check() int {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				p.named[n.Name.Name] = append(p.named[n.Name.Name], function{n.Type, n.Body})
			case *ast.FuncType:
				for _, field := range n.Params.List {
					for _, name := range field.Names {
						if typ, ok := field.Type.(*ast.Ident); ok && typ.Name == "string" {
							p.strings[name.Name] = true
						}
					}
				}
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.CONST && len(v.Values) == len(v.Names) {
						for i, name := range v.Names {
							p.consts[name.Name] = v.Values[i]
						}
					}
				}
			case *ast.AssignStmt:
				if name, ok := n.Lhs[0].(*ast.Ident); ok {
					if fn, ok := n.Rhs[0].(*ast.FuncLit); ok {
						p.named[name.Name] = append(p.named[name.Name], function{fn.Type, fn.Body})
					}
				}
			}
			return true
		})
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit: // Def{Sig: …, Fn: …}
				var sig *signature
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Sig" {
							sig = p.signature(kv.Value)
						} else if ok && key.Name == "Fn" && sig != nil {
							p.runs(kv.Value, sig)
						}
					}
				}
			case *ast.CallExpr: // method("size(dim: int = None)", …, fn)
				if len(n.Args) > 0 {
					if sig := p.signature(n.Args[0]); sig != nil {
						p.runs(n, sig)
					}
				}
				if sig, fn := p.ofModule(n); sig != nil {
					p.in(fn.Body, sig)
				}
			}
			return true
		})
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if name := argument(n); name != nil && !p.read[name] {
				p.Errorf("%s: no signature is known for what is read here", p.set.Position(name.Pos()))
			}
			return true
		})
	}
	return len(p.read)
}

// signature returns the signature in an expression that begins like one; nil for other expressions.
func (p *readers) signature(e ast.Expr) *signature {
	text, ok := p.constant(e)
	name, _, call := strings.Cut(text, "(")
	if !ok || !call || !isIdent(name) || !strings.Contains(text, ")") {
		return nil
	}
	sig, err := parseSignature(text)
	if err != nil {
		p.Errorf("%s: %v", p.set.Position(e.Pos()), err)
	}
	return sig
}

// ofModule returns the signature of a module that a recipe may call, "(x: Tensor) -> tuple", and the function behind
// it, if a call makes such a module; else nil.
func (p *readers) ofModule(call *ast.CallExpr) (sig *signature, fn *ast.FuncLit) {
	for _, a := range call.Args {
		if text, ok := p.constant(a); ok && sig == nil && strings.HasPrefix(text, "(") && strings.Contains(text, ": Tensor") {
			sig, _ = parseSignature("module" + text)
		}
		if lit, ok := a.(*ast.FuncLit); ok {
			fn = lit
		}
	}
	if fn == nil {
		return nil, nil
	}
	return sig, fn
}

// constant evaluates a string expression; a variable in it counts as a name.
func (p *readers) constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		if value := p.consts[e.Name]; value != nil {
			return p.constant(value)
		}
		return e.Name, true
	case *ast.BinaryExpr:
		a, ok := p.constant(e.X)
		b, also := p.constant(e.Y)
		return a + b, ok && also && e.Op == token.ADD
	}
	return "", false
}

// runs records that a builtin runs the function e, or the function that a call e returns.
func (p *readers) runs(e ast.Expr, sig *signature) {
	switch e := e.(type) {
	case *ast.FuncLit:
		p.in(e.Body, sig)
	case *ast.Ident:
		for _, fn := range p.named[e.Name] {
			p.in(fn.body, sig)
		}
	case *ast.SelectorExpr:
		p.runs(e.Sel, sig)
	case *ast.CallExpr:
		p.follow(e, sig)
		for _, a := range e.Args {
			p.runs(a, sig)
		}
	}
}

// follow continues in the called function, and checks the names that it is given to read.
func (p *readers) follow(call *ast.CallExpr, sig *signature) {
	var callee string
	switch e := call.Fun.(type) {
	case *ast.Ident:
		callee = e.Name
	case *ast.SelectorExpr:
		callee = e.Sel.Name
	}
	for i, a := range call.Args {
		if lit, ok := a.(*ast.BasicLit); ok && p.isName(callee, call, i) {
			p.name(lit, sig)
		}
	}
	p.runs(call.Fun, sig)
}

// isName records that the function reads an argument by the name that it gets as its i-th value. A function of another
// package does so with the value after c.
func (p *readers) isName(callee string, call *ast.CallExpr, i int) (is bool) {
	for _, fn := range p.named[callee] {
		var params []string
		for _, field := range fn.typ.Params.List {
			for _, name := range field.Names {
				params = append(params, name.Name)
			}
		}
		ast.Inspect(fn.body, func(n ast.Node) bool {
			name, ok := argument(n).(*ast.Ident)
			is = is || ok && i < len(params) && name.Name == params[i]
			return true
		})
	}
	return is || p.named[callee] == nil && i == 1 && isCall(call.Args[0])
}

// in checks what a function reads.
func (p *readers) in(body *ast.BlockStmt, sig *signature) {
	if slices.Contains(p.sigs[body], sig) {
		return
	}
	p.sigs[body] = append(p.sigs[body], sig)
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if module, _ := p.ofModule(call); module != nil { // it has other arguments than what makes it
				return false
			}
		}
		if name := argument(n); name != nil {
			p.name(name, sig)
		} else if call, ok := n.(*ast.CallExpr); ok && slices.ContainsFunc(call.Args, isCall) {
			p.follow(call, sig)
		}
		return true
	})
}

// name checks that the name that is read is a parameter of sig. A variable is checked where it gets its value.
func (p *readers) name(name ast.Expr, sig *signature) {
	p.read[name] = true
	switch e := name.(type) {
	case *ast.BasicLit:
		if text, _ := strconv.Unquote(e.Value); sig.index(text) < 0 {
			p.Errorf("%s: %s is no parameter of %s", p.set.Position(name.Pos()), e.Value, sig.text)
		}
	case *ast.Ident:
		if !p.strings[e.Name] {
			p.Errorf("%s: %s is neither a literal nor a parameter", p.set.Position(name.Pos()), e.Name)
		}
	default:
		p.Errorf("%s: want a literal", p.set.Position(name.Pos()))
	}
}

// argument returns the name in c.Int("name"), or in a helper's f(c, "name"); else nil.
func argument(n ast.Node) ast.Expr {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && isCall(sel.X) && slices.Contains(accessors, sel.Sel.Name) {
		return call.Args[0]
	}
	return nil
}

func isCall(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "c"
}

func isIdent(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
