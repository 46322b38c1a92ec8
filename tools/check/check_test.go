package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/lang/chunk"
	module "drun/starlib/testing"
	"drun/starlib/universe"
	"drun/tools/check"
)

// reference is what recipes find.
func reference() *check.Reference {
	return check.NewReference(universe.Modules(), universe.Names())
}

// examine checks a source whose load statements name files of testdata/lib.
func examine(t testing.TB, ref *check.Reference, name string, source []byte) []check.Finding {
	t.Helper()
	files := []check.File{}
	added := map[string]bool{}
	var add func(path, display string, source []byte) []check.Finding
	add = func(path, display string, source []byte) []check.Finding {
		parsed, err := lang.Parse(display, source)
		if err != nil {
			return check.FromError(lang.Explain(nil, err))
		}
		files = append(files, check.File{Path: path, File: parsed})
		var found []check.Finding
		for _, l := range parsed.Loads {
			if text, err := os.ReadFile(filepath.Join("testdata/lib", l.Module)); err == nil && !added[l.Module] {
				added[l.Module] = true
				found = append(found, add(l.Module, l.Module, text)...)
			}
		}
		return found
	}
	found := add("main of the test", name, source)
	resolve := func(_, module string) (string, error) { return module, nil }
	more, _ := check.Inspect(ref, files, resolve)
	return append(found, more...)
}

func corpus(t testing.TB, name string) []chunk.Chunk {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := chunk.Read(name, source)
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

// Faulty recipes: a finding on every line marked, and on no other.
func TestFaulty(t *testing.T) {
	ref := reference()
	total := 0
	for _, name := range []string{"testdata/shape.star", "testdata/sizes.star", "testdata/collective.star"} {
		for _, c := range corpus(t, name) {
			total++
			t.Run(c.Name, func(t *testing.T) {
				var faults []chunk.Fault
				for _, f := range examine(t, ref, c.File, c.Source) {
					if f.File != c.File {
						t.Errorf("%s:%d: %s", f.File, f.Line, f.Message)
						continue
					}
					faults = append(faults, chunk.Fault{Line: f.Line, Msg: string(f.Severity) + ": " + f.Message})
				}
				if len(c.Want) == 0 {
					t.Error("the chunk expects nothing: it belongs to clean.star")
				}
				for _, wrong := range c.Check(faults) {
					t.Error(wrong)
				}
			})
		}
	}
	if total < 20 {
		t.Errorf("only %d faulty recipes", total)
	}
}

func TestClean(t *testing.T) {
	ref := reference()
	chunks := corpus(t, "testdata/clean.star")
	if len(chunks) < 20 {
		t.Errorf("only %d clean recipes", len(chunks))
	}
	for _, c := range chunks {
		t.Run(c.Name, func(t *testing.T) {
			for _, f := range examine(t, ref, c.File, c.Source) {
				t.Errorf("%s:%d:%d: %s", f.File, f.Line, f.Col, f.Message)
			}
		})
	}
}

// The examples, and the recipes of the documentation, are clean.
func TestExamples(t *testing.T) {
	ref := reference()
	names, err := filepath.Glob("../../examples/*.star")
	more, _ := filepath.Glob("../../examples/cookbook/*.star")
	names = append(names, more...)
	if err != nil || len(names) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range examine(t, ref, name, source) {
			t.Errorf("%s:%d:%d: %s", f.File, f.Line, f.Col, f.Message)
		}
	}
	fenced := regexp.MustCompile("(?s)```python\n(.*?)```")
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(docs, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range fenced.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "def main(") {
				continue
			}
			for _, f := range examine(t, ref, fmt.Sprintf("%s recipe %d", name, i+1), []byte(m[1])) {
				if strings.HasPrefix(f.Message, "undefined: ") {
					continue // a text may leave out what is beside the point
				}
				t.Errorf("%s:%d:%d: %s", f.File, f.Line, f.Col, f.Message)
			}
		}
	}
}

// The recipes of the tests of builtins that run well have no finding, but what
// they do on purpose: what is expected of them is in their comments.
func TestRecipesThatRunWell(t *testing.T) {
	module := module.Module("")
	names := universe.Names()
	names["testing"] = module.Build(&starlib.Rank{WorldSize: 1})
	ref := check.NewReference(append(universe.Modules(), module), names)
	files, err := filepath.Glob("../../engine/recipetest/testdata/*.star")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recipes: %v", err)
	}
	more, err := filepath.Glob("../../engine/recipetest/testdata/*/*.star")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, name := range append(files, more...) {
		for _, c := range corpus(t, name) {
			if len(c.Want) > 0 || c.Header["exit"] != "" {
				continue
			}
			count++
			for _, f := range examine(t, ref, c.File, c.Source) {
				t.Errorf("%s: %s:%d:%d: %s", c.Name, f.File, f.Line, f.Col, f.Message)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d recipes", count)
	}
}

// The same recipe gives the same findings, in order.
func TestSteady(t *testing.T) {
	ref := reference()
	source, err := os.ReadFile("testdata/collective.star")
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.ReplaceAll(string(source), "\n---\n", "\n\n"))
	first := fmt.Sprint(examine(t, ref, "all.star", text))
	if len(first) < 1000 {
		t.Fatalf("found only %s", first)
	}
	for range 3 {
		if again := fmt.Sprint(examine(t, ref, "all.star", text)); again != first {
			t.Fatalf("first %s\nthen %s", first, again)
		}
	}
}

// A long recipe is interpreted to its end: each branch costs what changes in it, not all that is known.
func TestLongRecipe(t *testing.T) {
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, `def step%d(model, opt, x, y):
    total = 0.0
    for k in range(3):
        loss = nn.cross_entropy(model(x), y)
        if k %% 2 == 0 and loss.item() > 0.5:
            loss = loss * 0.5
        loss.backward()
        opt.step()
        opt.zero_grad()
        total += loss.item()
    return total

`, i)
	}
	b.WriteString("def main():\n    model = nn.sequential(nn.linear(8, 8), nn.relu(), nn.linear(8, 2))\n    opt = optim.sgd(model.parameters(), lr = 0.1)\n    x, y = tensor.randn(4, 8), tensor.zeros(4, dtype = \"int64\")\n")
	for i := range 400 {
		fmt.Fprintf(&b, "    run.log(loss = step%d(model, opt, x, y))\n", i)
	}
	b.WriteString("    model(tensor.zeros(4, 9))\n")
	found := examine(t, reference(), "long.star", []byte(b.String()))
	if len(found) != 1 || !strings.Contains(found[0].Message, "(4, 9)") {
		t.Errorf("found %+v", found)
	}
}

// A run is kept from starting only by what every run comes to.
func TestCertain(t *testing.T) {
	ref := reference()
	for _, test := range []struct {
		source  string
		certain bool
	}{
		{"def main():\n    nn.linear(1)", true},
		{"def main():\n    for i in range(3):\n        pass\n    nn.linear(1)", true},
		{"def f(n):\n    return nn.linear(n)\ndef main():\n    f(1)", true},
		{"def f(n):\n    if n:\n        return 1\n    return 2\ndef main():\n    f(1)\n    nn.linear(1)", true},
		{"def main():\n    optim.adam(nn.linear(1, 1).parameters())", true},
		{"p = run.params(x = 1)\ndef main():\n    print(p.y)", true},
		{"def main():\n    for i in range(3):\n        nn.linear(1)", false},
		{"def main():\n    if run.seed:\n        nn.linear(1)", false},
		{"def main():\n    if run.seed:\n        return\n    nn.linear(1)", false},
		{"def main():\n    if run.seed:\n        fail('no')\n    nn.linear(1)", false},
		{"def f():\n    if run.seed:\n        fail('no')\ndef main():\n    f()\n    nn.linear(1)", false},
		{"def main():\n    for i in range(3):\n        if i == run.seed:\n            return\n    nn.linear(1)", false},
		{"def main():\n    print(run.seed and nn.linear(1))", false},
		{"def main():\n    print(nn.linear(1) if run.seed else 0)", false},
		{"def main():\n    print([nn.linear(1) for i in range(run.seed)])", false},
		{"def main():\n    map = data.map(data.dataset([1]), lambda x: nn.linear(1))", false},
		{"def f():\n    nn.linear(1)\ndef main():\n    pass", false},
		{"def f(x):\n    nn.linear(x)\ndef main():\n    if run.seed:\n        f(1)", false},
		{"def main():\n    optim.adam([{\"params\": nn.linear(1, 1).parameters(), \"lr\": 1}])", false},
	} {
		found := examine(t, ref, "certain.star", []byte(test.source))
		if got := len(found) > 0 && found[0].Certain; got != test.certain {
			t.Errorf("%s\ncertain %v: %v", test.source, got, found)
		}
	}
}
