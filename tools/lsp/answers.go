package lsp

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/engine/recipe"
	"drun/starlib/lang"
	"drun/starlib/universe"
	"drun/tools/check"
)

// Item is a completion.
type Item struct {
	Label         string `json:"label"`
	Kind          int    `json:"kind"` // 2 method, 3 function, 5 field, 6 variable, 7 class, 9 module, 14 keyword
	Detail        string `json:"detail,omitempty"`
	Documentation string `json:"documentation,omitempty"`
	InsertText    string `json:"insertText,omitempty"`
}

var kinds = map[universe.Kind]int{universe.KindModule: 9, universe.KindType: 7, universe.KindBuiltin: 3, universe.KindAttribute: 5}

var keywords = strings.Fields("and break continue def elif else for if in lambda load not or pass return while True False None")

var (
	defining = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*(?:def[ \t]+([\pL_][\pL\pN_]*)|for[ \t]+([\pL_][\pL\pN_, \t]*?)[ \t]+in\b|([\pL_][\pL\pN_]*(?:[ \t]*,[ \t]*[\pL_][\pL\pN_]*)*)[ \t]*=[^=])`)
	})
	separator = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[ \t]*,[ \t]*`) })
)

// completion offers the names that can follow at a position: attributes after a dot, else names and, within a
// call, the callee's parameters.
func (s *Server) completion(d *document, p Position) (any, error) {
	before, _ := d.around(p)
	if _, inText := unclosed(before); inText {
		return []Item{}, nil
	}
	name := before[len(strings.TrimRightFunc(before, func(r rune) bool { return isName(r) || r == '.' })):]
	dot := strings.LastIndexByte(name, '.')
	items := []Item{}
	if dot >= 0 {
		return append(items, s.members(d, p, name[:dot], name[dot+1:])...), nil
	}
	seen := map[string]bool{}
	add := func(i Item) {
		if strings.HasPrefix(i.Label, name) && !seen[i.Label] {
			seen[i.Label] = true
			items = append(items, i)
		}
	}
	if c := d.call(p); c != nil {
		signature, _ := s.signature(d, c)
		list, _ := parameters(signature)
		for _, declared := range list {
			if param := parameterName(declared); param != "" && declared[0] != '*' {
				add(Item{Label: param, Kind: 6, Detail: "parameter of " + c.callee, InsertText: param + " = "})
			}
		}
	}
	for _, m := range defining().FindAllStringSubmatch(d.text, -1) {
		if m[1] != "" {
			add(Item{Label: m[1], Kind: 3})
		}
		for _, own := range separator().Split(m[2]+m[3], -1) {
			if own != "" {
				add(Item{Label: own, Kind: 6})
			}
		}
	}
	for _, load := range d.loads() {
		for _, own := range load.To {
			add(Item{Label: own.Name, Kind: 3, Detail: "from " + load.ModuleName()})
		}
	}
	for _, e := range s.entries {
		if e.Owner == "" && e.Kind != universe.KindType {
			add(itemOf(e))
		}
	}
	for _, word := range keywords {
		add(Item{Label: word, Kind: 14})
	}
	return items, nil
}

func itemOf(e universe.Entry) Item {
	return Item{Label: e.Name, Kind: kinds[e.Kind], Detail: e.Signature, Documentation: e.Doc}
}

// members returns the attributes of what is before a dot.
func (s *Server) members(d *document, p Position, owner, prefix string) (items []Item) {
	for _, name := range d.params(owner) {
		if strings.HasPrefix(name, prefix) {
			items = append(items, Item{Label: name, Kind: 5, Detail: "parameter"})
		}
	}
	if items != nil {
		return items
	}
	types := []string{owner}
	if !slices.ContainsFunc(s.entries, func(e universe.Entry) bool { return e.Owner == owner && e.Owner != "" }) {
		if types = s.typeOf(d, p, owner); types == nil {
			types = []string{"Tensor", "Module", "Optimizer", "Loader"}
		}
	}
	for _, e := range s.entries {
		if slices.Contains(types, e.Owner) && strings.HasPrefix(e.Name, prefix) {
			i := itemOf(e)
			if e.Kind == universe.KindBuiltin && e.Owner != owner {
				i.Kind = 2
			}
			items = append(items, i)
		}
	}
	return items
}

var result = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`->\s*(.+)$`) })

// typeOf returns the type of a variable, inferred from the last call that was assigned to it before the position; nil: unknown.
func (s *Server) typeOf(d *document, p Position, name string) []string {
	assigned := regexp.MustCompile(`^\s*(?:[\pL_][\pL\pN_]*\s*,\s*)*` + regexp.QuoteMeta(name) + `\s*(?:,[^=]*)?=\s*([\pL_][\pL\pN_.]*)\(`)
	for n := min(p.Line, len(d.lines)-1); n >= 0; n-- {
		m := assigned.FindStringSubmatch(d.line(n))
		if m == nil {
			continue
		}
		if m[1] == "tensor" {
			return []string{"Tensor"}
		}
		for _, e := range s.entries.Find(m[1]) {
			if types := result().FindStringSubmatch(e.Signature); types != nil && e.Owner+"."+e.Name == m[1] {
				return regexp.MustCompile(`[\pL_]\w*`).FindAllString(types[1], -1)
			}
		}
		return nil
	}
	return nil
}

var declaring = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)([\pL_][\pL\pN_]*)\s*=\s*run\.params\((.*?)\n?\)\s*\n`)
})

// params returns the names declared by the run.params that is assigned to this variable.
func (d *document) params(owner string) (names []string) {
	for _, m := range declaring().FindAllStringSubmatch(d.text, -1) {
		if m[1] == owner {
			for _, name := range regexp.MustCompile(`([\pL_][\pL\pN_]*)\s*=[^=]`).FindAllStringSubmatch(m[2], -1) {
				names = append(names, name[1])
			}
		}
	}
	return names
}

func (s *Server) hover(d *document, p Position) (any, error) {
	name := d.named(p)
	if name == "" {
		return nil, nil
	}
	text := ""
	if def, _ := s.find(d, p); def != nil {
		text = code(def.head()) + def.doc
	} else if e := s.entry(d, p, name); e != nil {
		text = code(e.Declaration()) + e.Doc
	}
	if shape := s.shapeAt(d, p); shape != "" {
		text = code(shape) + text
	}
	if text == "" {
		return nil, nil
	}
	return map[string]any{"contents": map[string]string{"kind": "markdown", "value": text}}, nil
}

// shapeAt returns the shape of the tensor that the name at a position stands for, "" if unknown.
func (s *Server) shapeAt(d *document, p Position) string {
	_, shapes := s.inspect(d)
	if len(shapes) == 0 {
		return ""
	}
	before, _ := d.around(p)
	start := strings.TrimRightFunc(before, isName)
	return shapes[check.Position{File: d.path, Line: p.Line + 1, Col: utf8.RuneCountInString(start) + 1}]
}

func code(text string) string { return "```python\n" + text + "\n```\n\n" }

// entry returns the reference entry for a dotted name; for an attribute of a variable, that of its type.
func (s *Server) entry(d *document, p Position, name string) *universe.Entry {
	owner, member := "", name
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		owner, member = name[:dot], name[dot+1:]
	}
	owners := append([]string{owner}, s.typeOf(d, p, owner)...)
	if owner != "" {
		owners = append(owners, "Tensor", "Module", "Optimizer", "Loader")
	}
	for _, o := range owners {
		for i, e := range s.entries {
			if e.Name == member && e.Owner == o {
				return &s.entries[i]
			}
		}
	}
	return nil
}

// defined is where a name of the recipe is bound.
type defined struct {
	file string // path
	def  *syntax.DefStmt
	text string
	at   syntax.Position
	name string
	doc  string
}

// head returns the line that defines it.
func (d *defined) head() string {
	lines := strings.Split(d.text, "\n")
	if n := int(d.at.Line); n >= 1 && n <= len(lines) {
		return strings.TrimSuffix(strings.TrimSpace(lines[n-1]), ":")
	}
	return d.name
}

// definition returns where the name at a position is bound, also in a loaded file; for the name of a file, its beginning.
func (s *Server) definition(d *document, p Position) (any, error) {
	def, file := s.find(d, p)
	if file != "" {
		return Location{URI: uriOf(file)}, nil
	}
	if def == nil {
		return nil, nil
	}
	at := newDocument(uriOf(def.file), def.text)
	return Location{at.uri, at.word(int(def.at.Line), int(def.at.Col))}, nil
}

// find resolves the name at a position; for the name of a file in a load statement it returns the file.
func (s *Server) find(d *document, p Position) (*defined, string) {
	tree, names := parsed(d.path, d.text)
	if tree == nil {
		return nil, ""
	}
	var id *syntax.Ident
	var from *syntax.LoadStmt
	inModule := false
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Ident:
			if d.contains(n, p) {
				id = n
			}
		case *syntax.LoadStmt:
			inModule = inModule || d.contains(n.Module, p)
			if d.contains(n, p) {
				from = n
			}
		case *syntax.DotExpr:
			if d.contains(n.Name, p) {
				id = nil
				return false // an attribute
			}
		}
		return true
	})
	if inModule {
		_, path := s.loaded(d, from)
		return nil, path
	}
	if id == nil {
		return nil, ""
	}
	if from != nil { // the names of a load statement have no bindings
		for i := range from.To {
			if d.contains(from.To[i], p) || d.contains(from.From[i], p) {
				return s.over(d, from, from.From[i].Name), ""
			}
		}
	}
	b, ok := id.Binding.(*resolve.Binding)
	if !ok || b.First == nil {
		return nil, ""
	}
	for _, load := range names {
		for i := range load.To {
			if load.To[i] == b.First {
				return s.over(d, load, load.From[i].Name), ""
			}
		}
	}
	return describe(d.path, d.text, tree, b.First), ""
}

// over finds a name in the file that a load statement names.
func (s *Server) over(d *document, load *syntax.LoadStmt, name string) *defined {
	text, path := s.loaded(d, load)
	tree, _ := parsed(path, text)
	if tree == nil {
		return nil
	}
	module, _ := tree.Module.(*resolve.Module)
	for _, b := range module.Globals {
		if b.First != nil && b.First.Name == name {
			return describe(path, text, tree, b.First)
		}
	}
	return nil
}

// loaded returns the file that a load statement names.
func (s *Server) loaded(d *document, load *syntax.LoadStmt) (text, path string) {
	bundle, _ := recipe.ReadAll(d.path, s.reader(d))
	if bundle == nil {
		return "", ""
	}
	target, err := bundle.Project.Resolve(bundle.Main, load.ModuleName())
	if err != nil {
		return "", ""
	}
	src := bundle.Source(target)
	if src == nil {
		return "", ""
	}
	return string(src.Content), filepath.Join(bundle.Dir, filepath.FromSlash(target))
}

// describe returns a binding with its docstring.
func describe(path, text string, tree *syntax.File, first *syntax.Ident) *defined {
	out := &defined{file: path, text: text, at: first.NamePos, name: first.Name}
	syntax.Walk(tree, func(n syntax.Node) bool {
		if def, ok := n.(*syntax.DefStmt); ok && def.Name == first {
			out.def = def
			if stmt, ok := def.Body[0].(*syntax.ExprStmt); ok {
				if lit, ok := stmt.X.(*syntax.Literal); ok && lit.Token == syntax.STRING {
					out.doc = strings.TrimSpace(lit.Value.(string))
				}
			}
		}
		return true
	})
	return out
}

// parsed returns a document's tree with its names resolved, and its load statements; nil if it has a syntax error.
func parsed(path, text string) (*syntax.File, []*syntax.LoadStmt) {
	file, err := lang.Parse(path, []byte(text))
	if err != nil {
		return nil, nil
	}
	known := func(string) bool { return true }
	_ = resolve.File(file.Syntax, known, starlark.Universe.Has) // despite errors it resolves the names that it can
	var loads []*syntax.LoadStmt
	for _, stmt := range file.Syntax.Stmts {
		if load, ok := stmt.(*syntax.LoadStmt); ok {
			loads = append(loads, load)
		}
	}
	return file.Syntax, loads
}

// loads returns the load statements of a document, if it can be parsed.
func (d *document) loads() []*syntax.LoadStmt {
	_, list := parsed(d.path, d.text)
	return list
}
