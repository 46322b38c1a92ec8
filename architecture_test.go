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

// layers says what each package may import, other than the standard library:
// packages of drun, and other modules. A name stands for the packages beneath
// it too, one after "=" for that package alone. The longest name that fits a package
// is its rule; a package without a rule is an error, so that nothing joins the layout
// by accident.
var layers = map[string][]string{
	// element is the vocabulary of all who handle tensors' memory.
	"kernel/element":       {},
	"kernel":               {"kernel/element"},
	"kernel/fft":           {},
	"tensor":               {"kernel/element", "kernel", "internal/memory"},
	"collective":           {"kernel/element", "internal/elapsed", "internal/exit", "golang.org/x/sys"},
	"collective/calls":     {"collective"},
	"collective/messages":  {"collective", "kernel/element"},
	"collective/sharedmem": {"collective", "golang.org/x/sys"},
	"collective/shm":       {"kernel/element", "collective", "kernel", "golang.org/x/sys"},
	"collective/disttest":  {"kernel/element", "collective", "internal/testlimit", "golang.org/x/sys"},
	"collective/reduction": {"kernel/element", "collective", "kernel"},
	"collective/hier":      {"kernel/element", "collective", "golang.org/x/sys"},

	"internal/terminal": {"golang.org/x/term", "github.com/rivo/uniseg"},

	"internal/sqldb":     {"internal/exit", sqlite, "internal/scratch", "golang.org/x/sys"},
	"internal/scratch":   {"golang.org/x/sys"},
	"internal/queue":     {},
	"internal/testlimit": {},
	"internal/memory":    {"internal/exit"},
	"internal/freeport":  {},
	"internal/programs":  {}, // for tests alone
	// testsummary runs the tests of others.
	"internal/testsummary": {},
	"internal/build":       {},
	"internal/secret":      {},
	"internal/spelling":    {},
	// exit is the one vocabulary of exit codes and hints, so that everything may use it.
	"internal/exit":       {},
	"internal/elapsed":    {},
	"history/records":     {},
	"history":             {"history/records", "internal/exit", "internal/spelling", "internal/sqldb", sqlite, "github.com/fxamacker/cbor", "golang.org/x/sys", "github.com/dustinkirkland/golang-petname"},
	"history/historytest": {"history"},
	"history/query":       {"history", "internal/exit", "internal/spelling", starlark},
	"checkpoints":         {"internal/exit", "internal/sqldb", sqlite, "golang.org/x/sys", "github.com/zeebo/xxh3"},

	// views asks engine/record which checkpoints the history has and the store has not.
	"runs/report": {"history", "checkpoints", "engine/record", "internal/exit", "internal/terminal", "starlib/checkpoint", "github.com/aymanbagabas/go-udiff"},
	// ui only reads; starlib/checkpoint writes tensors as a file.
	"runs/ui": {"history", "checkpoints", "runs/report", "internal/exit", "starlib/checkpoint"},

	"runs/backup":   {"history", "checkpoints", "internal/scratch"},
	"runs/exchange": {"history", "internal/exit", "internal/terminal", "github.com/parquet-go/parquet-go", sqlite, "google.golang.org/protobuf/encoding/protowire"},
	"runs/sweep":    {"engine/run", "history", "internal/exit"},
	"runs/replay":   {"=engine", "engine/record", "engine/run", "history", "checkpoints", "internal/elapsed", "internal/exit", "internal/scratch", "golang.org/x/sys"},

	// lang knows the language alone, not the modules of a recipe.
	"starlib/lang": {starlark, "starlib/lang", "internal/memory", "internal/spelling"},
	"starlib":      {"internal/exit", "internal/memory", starlark, "starlib", "internal/secret", "internal/spelling", "kernel/element", "tensor", "collective", "github.com/fxamacker/cbor/v2", "github.com/zeebo/xxh3"},

	"starlib/data": {starlark, "starlib", "kernel/element", "tensor", "github.com/klauspost/compress/zstd"},
	// table reads files for whoever wants columns; it knows no recipes.
	"starlib/data/table":     {"github.com/parquet-go/parquet-go", "github.com/apache/arrow-go/v18/arrow", "github.com/google/flatbuffers/go", "github.com/pierrec/lz4/v4"},
	"starlib/data/picture":   {},
	"starlib/data/tokenizer": {"github.com/rivo/uniseg", "golang.org/x/text/unicode/norm"},

	// repl is a rank in its own process, as engine/worker is in one of its own.
	"tools/repl": {"engine/recipe", "starlib", "tensor", "internal/exit", "internal/memory", "internal/terminal", starlark},
	// lsp sees recipes as drun check and drun fmt do.
	"tools/lsp":    {"tools/check", "engine/recipe", "tools/format", "starlib", starlark, "github.com/sourcegraph/jsonrpc2"},
	"tools/format": {"starlib/lang", starlark, "github.com/bazelbuild/buildtools/build"},
	"tools/check":  {"internal/spelling", "starlib", starlark},

	"engine":            {"history/records", "internal/exit", "engine", "github.com/fxamacker/cbor/v2", "golang.org/x/sys"},
	"engine/board":      {"kernel/element", "engine/board", "collective", "golang.org/x/sys"},
	"engine/recipe":     {"internal/exit", "engine", "starlib", starlark},
	"engine/rendezvous": {"internal/exit", "collective", "github.com/fxamacker/cbor/v2"},
	"engine/worker":     {"history/records", "kernel/element", "internal/exit", "internal/memory", "internal/queue", "engine", "starlib", "tensor", "collective", "kernel", starlark, "golang.org/x/sys", "github.com/zeebo/xxh3"},
	"engine/console":    {"history/records", "=engine", "internal/terminal", "github.com/schollz/progressbar/v3"},
	"engine/transfer":   {"internal/exit", "=engine", "collective/sharedmem"},
	"engine/cluster":    {"history/records", "internal/exit", "internal/queue", "=engine", "engine/board", "engine/rendezvous", "engine/transfer", "collective", "github.com/fxamacker/cbor/v2"},
	"engine/node":       {"history/records", "internal/exit", "internal/memory", "=engine", "engine/board", "engine/cluster", "engine/console", "engine/recipe", "engine/rendezvous", "engine/transfer", "collective", "plugins/host", "golang.org/x/sys"},
	// record is the engine's only way to the databases.
	"engine/record": {"internal/exit", "internal/queue", "internal/secret", "=engine", "engine/board", "engine/recipe", "engine/rendezvous", "engine/transfer", "history", "checkpoints", "collective", "plugins/host"},
	"engine/run":    {"history/records", "internal/build", "internal/exit", "internal/scratch", "internal/secret", "=engine", "engine/board", "engine/cluster", "engine/console", "engine/node", "engine/recipe", "engine/record", "engine/rendezvous", "engine/transfer", "collective", "plugins/host"},
	"engine/doctor": {"engine", "kernel", "internal/scratch"},
	// recipetest runs recipes on every backend, so it sees what the engine sees.
	"engine/recipetest": {"internal/testlimit", "internal/exit", "engine", "starlib", "collective", "plugins/host", "history", "checkpoints"},

	// bench measures drun as its users do; only the kernels are called directly.
	"bench": {"kernel/element", "kernel", "history/historytest", "internal/freeport"},
	// mutants runs the tests of others.
	"internal/mutants": {},

	"plugins/sdk":    {"kernel/element", "collective", "plugins/internal", goPlugin, "github.com/hashicorp/go-hclog", "golang.org/x/sys"},
	"plugins/host":   {"internal/exit", "golang.org/x/sys"},
	"plugins/client": {"kernel/element", "collective", "plugins/host", "plugins/internal/wire", "internal/exit", "internal/scratch", goPlugin, "github.com/hashicorp/go-hclog", "google.golang.org", "golang.org/x/sys"},
	"plugins":        {"kernel/element", "collective", "plugins/sdk"},
	"plugins/mpi":    {"kernel/element", "collective", "plugins/mpi", "plugins/sdk", "plugins/internal"},
	"plugins/gloo":   {"kernel/element", "collective", "plugins/gloo", "plugins/sdk", "plugins/internal", "golang.org/x/sys"},
	"plugins/nccl":   {"kernel/element", "collective", "plugins/nccl", "plugins/sdk", "plugins/internal"},

	"plugins/internal/wire":       {"kernel/element", "collective", "github.com/fxamacker/cbor/v2", goPlugin, "google.golang.org", "golang.org/x/sys"},
	"plugins/internal/blocking":   {"kernel/element", "collective"},
	"plugins/internal/ordered":    {"kernel/element", "collective"},
	"plugins/internal/meet":       {"collective"},
	"plugins/internal/mesh":       {"kernel/element", "collective", "plugins/internal/blocking", "plugins/internal/meet"},
	"plugins/internal/enginetest": {"kernel/element", "collective", "engine/rendezvous"}, // for tests alone

	// The only program that links gRPC on drun's side.
	"cmd/drun-plugin-host": {"internal/exit", "engine", "collective", "plugins/client", "plugins/host", "internal/scratch"},
	"cmd": {"kernel/element", "internal/build", "internal/elapsed", "internal/exit", "engine", "history", "checkpoints", "runs/backup", "runs/exchange", "runs/sweep", "runs/replay", "tools/format", "tools/repl", "tools/lsp", "starlib", "github.com/peterh/liner", "collective", "plugins/host", "internal/terminal", "internal/scratch", "tools/check", "runs/ui", "runs/report", sqlite, "golang.org/x/term", "github.com/BurntSushi/toml",
		"github.com/aymanbagabas/go-udiff", "github.com/guptarohit/asciigraph", "github.com/dustin/go-humanize", "github.com/schollz/progressbar/v3", "github.com/spf13"},
}

const (
	sqlite   = "github.com/mattn/go-sqlite3"
	starlark = "go.starlark.net"
	goPlugin = "github.com/hashicorp/go-plugin"
)

// cgo is where C may be called from; internal/sqldb calls functions of SQLite that its driver does not offer.
var cgo = []string{"kernel", "plugins", "internal/sqldb"}

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
	if first, _, _ := strings.Cut(name, "/"); !own && !strings.Contains(first, ".") {
		return true // the standard library
	}
	layer, ok := layerOf(pkg)
	return ok && slices.ContainsFunc(layers[layer], func(dir string) bool {
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
		{"kernel/element", "drun/kernel", false},
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
			t.Errorf("%s: the package %s has no rule in architecture_test.go", file, pkg)
			return
		}
		documented[pkg] = documented[pkg] || describes(tree)
		for _, spec := range tree.Imports {
			if imported, _ := strconv.Unquote(spec.Path.Value); !allowed(pkg, imported) {
				t.Errorf("%s: %s must not import %s", file, pkg, imported)
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

// The architecture page has a row for every package, and the paths that it names are there.
func TestArchitecturePage(t *testing.T) {
	raw, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, m := range regexp.MustCompile("`([a-z/]+){([a-z,]+)}/`").FindAllStringSubmatch(page, -1) {
		for name := range strings.SplitSeq(m[2], ",") {
			page += "`" + m[1] + name + "/`"
		}
	}
	packages := map[string]bool{}
	walk(t, func(file, pkg string, _ []byte) {
		packages[pkg] = packages[pkg] || !strings.HasSuffix(file, "_test.go")
	})
	for pkg, real := range packages {
		folder := path.Dir(pkg) // one row may stand for the packages of a folder
		if real && pkg != "." && !strings.Contains(page, "`"+pkg+"/`") && (packages[folder] || !strings.Contains(page, "`"+folder+"/`")) {
			t.Errorf("docs/architecture.md has no row for %s/", pkg)
		}
	}
	for _, m := range regexp.MustCompile("`((cmd|engine|starlib|check|tensor|kernel|collective|plugins|history|checkpoints|docs|internal)/[a-z0-9_./-]*)`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("docs/architecture.md names what is not there: %v", err)
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
