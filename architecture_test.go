package drun_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers says what each package may import, other than the standard library: the table in docs/architecture.md. A name
// stands for the packages beneath it too, one after "=" for that package alone. The longest name that fits a package is
// its rule; a package without a rule is an error, so that nothing joins the layout by accident.
var layers = readLayers()

const architecturePage = "docs/architecture.md"

func readLayers() map[string][]string {
	page, err := os.ReadFile(architecturePage)
	if err != nil {
		panic(err)
	}
	rules := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)/`[^|]*\\|[^|]*\\|([^|]*)\\|([^|]*)\\|$").FindAllStringSubmatch(string(page), -1) {
		for _, pkg := range expand(row[1]) {
			rules[pkg] = slices.Concat(expand(row[2]), expand(row[3]))
		}
	}
	return rules
}

// expand returns the names of a list with commas, in which a/{b,c} stands for a/b and a/c.
func expand(list string) (names []string) {
	for _, item := range regexp.MustCompile(`[^,{ ]+(\{[^}]*\})?`).FindAllString(list, -1) {
		before, choices, _ := strings.Cut(strings.TrimSuffix(item, "}"), "{")
		for choice := range strings.SplitSeq(choices, ",") {
			names = append(names, before+choice)
		}
	}
	return names
}

// cgo is where C may be called from; internal/sqldb calls functions of SQLite that its driver does not offer.
var cgo = []string{"kernel", "plugins", "internal/sqldb"}

// outside are the packages of the standard library that the builtins of recipes may not use.
var outside = []string{"os/exec", "net", "database/sql"}

func beneath(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// layerOf returns the name of a package's rule.
func layerOf(pkg string) (string, bool) {
	for name := pkg; name != "."; name = path.Dir(name) {
		if _, ok := layers[name]; ok {
			return name, true
		}
	}
	return "", false
}

// allowed reports whether a package, named from the root, may import a path.
func allowed(pkg, imported string) bool {
	if imported == "C" {
		return slices.ContainsFunc(cgo, func(dir string) bool { return beneath(pkg, dir) })
	}
	name, own := strings.CutPrefix(imported, "drun/")
	if first, _, _ := strings.Cut(name, "/"); !own && !strings.Contains(first, ".") { // the standard library
		return !beneath(pkg, "starlib") || !slices.ContainsFunc(outside, func(dir string) bool { return beneath(name, dir) })
	}
	name = strings.TrimPrefix(name, "github.com/")
	layer, ok := layerOf(pkg)
	return name == "internal/each" || name == "internal/exit" || name == "internal/try" || ok && slices.ContainsFunc(layers[layer], func(dir string) bool {
		exactly, only := strings.CutPrefix(dir, "=")
		return only && name == exactly || beneath(name, dir)
	})
}

func TestLayers(t *testing.T) {
	for _, c := range []struct {
		pkg, imported string
		want          bool
	}{
		{"kernel", "C", true},
		{"kernel", "drun/collective", false},
		{"kernel", "unsafe", true},
		{"kernel/dtype", "drun/kernel", false},
		{"tensor", "drun/kernel", true},
		{"tensor", "C", false},
		{"tensor", "drun/starlib", false},
		{"tensor", "go.starlark.net/starlark", false},
		{"collective/shm", "drun/kernel", true},
		{"collective", "drun/kernel", false},
		{"collective", "drun/internal/exit", true},
		{"internal/exit", "drun/collective", false},
		{"collective/disttest", "drun/engine/board", false},
		{"starlib/distributed", "drun/tensor", true},
		{"starlib/distributed", "drun/history", false},
		{"starlib/distributed", "drun/engine", false},
		{"starlib/lang", "drun/tensor", false},
		{"starlib/run", "github.com/mattn/go-sqlite3", false},
		{"starlib/run", "database/sql/driver", false},
		{"starlib/nn", "drun/collective", false},
		{"history", "github.com/mattn/go-sqlite3", true},
		{"engine/node", "drun/engine/worker", false},
		{"engine/worker", "drun/history", false},
		{"engine/record", "drun/history", true},
		{"engine/run", "drun/history", false},
		{"engine/node", "drun/engine", true},
		{"engine/node", "drun/engine/run", false},
		{"plugins/gloo", "drun/engine", false},
		{"unheard/of", "drun/tensor", false},
		{"tensor", "drun/kernels", false},
	} {
		if got := allowed(c.pkg, c.imported); got != c.want {
			t.Errorf("may %s import %s: %v, want %v", c.pkg, c.imported, got, c.want)
		}
	}
}

func TestArchitecture(t *testing.T) {
	documented := make(map[string]bool)
	walk(t, func(file, pkg string, src []byte) {
		tree, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		if formatted, err := format.Source(src); err != nil || !bytes.Equal(formatted, src) {
			t.Errorf("%s is not formatted: run make fmt", file)
		}
		if pkg == "kernel" && tree.Name.Name == "kernel" && strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s must be of package kernel_test: a test within the package has all of its C compiled again", file)
		}
		if pkg == "." || strings.HasSuffix(file, "_test.go") {
			return
		}
		if _, ok := layerOf(pkg); !ok {
			t.Errorf("%s: the package %s has no row in docs/architecture.md", file, pkg)
			return
		}
		documented[pkg] = documented[pkg] || describes(tree)
		for _, spec := range tree.Imports {
			if imported, _ := strconv.Unquote(spec.Path.Value); !allowed(pkg, imported) {
				t.Errorf("%s: %s must not import %s", file, pkg, imported)
			} else if imported == "drun/starlib/data/table/columns" && !beneath(pkg, "cmd") {
				t.Errorf("%s: only programs import %s: what imports %s would have to compile its libraries for each test", file, imported, pkg)
			}
		}
	})
	if len(documented) == 0 {
		t.Fatal("no packages found")
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("%s: no file has a comment that says what the package is for and who calls it", pkg)
		}
	}
}

// The folders and files that the architecture page names are there.
func TestArchitecturePage(t *testing.T) {
	page, err := os.ReadFile(architecturePage)
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range layers {
		if _, err := os.Stat(pkg); err != nil {
			t.Errorf("%s has a row for what is not there: %v", architecturePage, err)
		}
	}
	for _, m := range regexp.MustCompile("`((cmd|engine|starlib|tools|runs|tensor|kernel|collective|plugins|history|checkpoints|docs|internal)/[a-z0-9_./-]*)`").FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("%s names what is not there: %v", architecturePage, err)
		}
	}
}

// describes reports whether a file has a package comment worth the name.
func describes(tree *ast.File) bool {
	text := tree.Doc.Text()
	if tree.Name.Name == "main" {
		return text != ""
	}
	return strings.HasPrefix(text, "Package "+tree.Name.Name+" ") && len(strings.Fields(text)) >= 10
}

// walk calls visit for every Go file of the repository.
func walk(t *testing.T, visit func(file, pkg string, src []byte)) {
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != "." && (name[0] == '.' || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".go" {
			return nil
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		visit(file, filepath.ToSlash(filepath.Dir(file)), src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
