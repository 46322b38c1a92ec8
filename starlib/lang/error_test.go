package lang_test

import (
	"errors"
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/starlib/lang"
)

// fault runs a recipe that must fail.
func fault(t *testing.T, src string) *lang.Error {
	t.Helper()
	e := runRecipe("r.star", []byte(src))
	if e == nil {
		t.Fatalf("no error of\n%s", src)
	}
	return e
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"x = f\"a\"", `r.star:1:6: got string literal, want newline: there are no f-strings`},
		{"with a as b:\n  pass", "r.star:1:1: got with, want primary expression: there is no with"},
		{"y = 1\nx = 2 ** 3", "r.star:2:7: got '**', want newline: there is no **"},
		{"x = y[:, 0]", "a subscript of several dimensions is written as a string"},
		{"x = y[1:2, 0]", "r.star:1:10: got ',', want ']': a subscript of several"},
		{"x = (1,, 2)", "r.star:1:8: got ',', want primary expression"},
		{"a is None", "r.star:1:3: got is, want newline: there is no is: use == None"},
		{"import os", "there is no import"},
		{"try:\n  pass", "there are no exceptions"},
		{"def f():\n  assert x", "r.star:2:10: got identifier, want newline: there is no assert"},
		{"def f(x: int):\n  pass", "r.star:1:8: got ':', want ')': there are no type annotations"},
		{"x: int = 1", "got ':', want newline: there are no type annotations: write x = 1"},
		{"x = 1_000", "numbers have no _ between digits: write 1000"},
		{"x = [1, *y]", "lists are joined with +: [1] + list(x)"},
		{"x = {1, 2}", "a set is set([1, 2])"},
		{"x = {1: 2, 3}", "got '}', want ':'"},
		{"def f(x) -> int:\n  pass", "there are no type annotations"},
		{"@jit\ndef f(): pass", "r.star:1:1: unexpected input character '@': there is no @"},
		{"if x\n  pass", "r.star:1:5: got newline, want ':'"},
		{"if x # why\n\n  pass", "r.star:1:11: got newline, want ':'"},
		{"x = 1 2.5", "r.star:1:7: got float literal, want newline"},
		{"x = 'a' 'b'", "r.star:1:9: got string literal, want newline"},
		{"x = [1, 2", "r.star:1:"},
		{"x = 'abc", "r.star:1:"},
		{"if x:\n\tpass\n  pass", "r.star:3:"},
		{"\ufeffx = \xff", `r.star:1:5: byte 0xff is not UTF-8`},
		{"é = 1\nx = \"\xc3\"", `r.star:2:6: byte 0xc3 is not UTF-8`},
		{strings.Repeat("#", 1<<20+1), "r.star:1:1: the file has 1048577 bytes"},
	} {
		e := fault(t, c.src)
		if got := e.Error(); !strings.Contains(got, c.want) || !strings.HasPrefix(got, "r.star:") {
			t.Errorf("%.60q: %s\n\twant %s", c.src, got, c.want)
		}
	}
}

// Any nesting in a file gives an error, and quickly.
func TestNesting(t *testing.T) {
	const n = 200_000
	for name, src := range map[string]string{
		"brackets": "x = " + strings.Repeat("(", n),
		"lists":    "x = " + strings.Repeat("[", n) + strings.Repeat("]", n),
		"calls":    "x = f" + strings.Repeat("(f", n) + strings.Repeat(")", n),
		"minus":    "x = " + strings.Repeat("-", n) + "1",
		"not":      "x = " + strings.Repeat("not ", n) + "1",
		"else":     "x = " + strings.Repeat("1 if 1 else ", n/12) + "1",
		"lambda":   "x = " + strings.Repeat("lambda: ", n/8) + "1",
		"sum":      "x = 1" + strings.Repeat("+1", n),
		"less":     "x = 1" + strings.Repeat("-1", n),
		"and":      "x = 1" + strings.Repeat(" and 1", n/6),
		"results":  "x = f" + strings.Repeat("()", n),
		"fields":   "x = f" + strings.Repeat(".a", n),
		"elif":     "if 1: pass\n" + strings.Repeat("elif 1: pass\n", n/12),
		"clauses":  "x = [1 for y in []" + strings.Repeat(" if 1", n/5) + "]",
		"indents":  indents(1000),
	} {
		e := fault(t, src)
		if !e.Pos.IsValid() || !regexpNesting(e.Msg) {
			t.Errorf("%s: %v", name, e)
		}
	}
	// What a program that generates recipes may reasonably write is allowed.
	for _, src := range []string{"x = 1" + strings.Repeat("+1", 5000), "x = [" + strings.Repeat("[1], ", 50_000) + "]"} {
		if e := runRecipe("r.star", []byte(src)); e != nil {
			t.Errorf("%.20s…: %v", src, e)
		}
	}
}

func regexpNesting(msg string) bool {
	return strings.Contains(msg, "excessive nesting") || strings.Contains(msg, "a chain or nesting of more than") || strings.Contains(msg, "clauses: at most")
}

func indents(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "if 1:\n")
	}
	return b.String() + strings.Repeat(" ", n) + "pass\n"
}

func TestUnknownNames(t *testing.T) {
	e := fault(t, "width_of = 1\ndef main():\n    prnt(widht_of, called_by, vce(1), frobnicate, isinstance)\n")
	want := `r.star:3:5: undefined: prnt (did you mean print?)
r.star:3:10: undefined: widht_of (did you mean width_of?)
r.star:3:20: undefined: called_by (did you mean called?)
r.star:3:31: undefined: vce (did you mean vec?)
r.star:3:39: undefined: frobnicate
r.star:3:51: undefined: isinstance: compare type(x) with a name, as in type(x) == "list"`
	if e.Error() != want {
		t.Errorf("got\n%s\nwant\n%s", e, want)
	}
	var many strings.Builder
	for range 100 {
		many.WriteString("zzz\n")
	}
	if got := strings.Count(fault(t, many.String()).Error(), "\n"); got != 11 {
		t.Errorf("100 faults are told in %d lines", got+1)
	}
}

func TestRender(t *testing.T) {
	const src = `def step(v, é):
	s = "é" + str(v == vec(1, 2))
	return s

def main():
    for i in range(3):
        called(lambda: step(vec(1, 2, 3), i))
`
	const want = `r.star:2:18: called: rank 0: vec of 3 and vec do not fit
Traceback (most recent call last):
  r.star:7:15: in main
    called(lambda: step(vec(1, 2, 3), i))
          ^
  r.star:7:28: in lambda
    called(lambda: step(vec(1, 2, 3), i))
                       ^
  r.star:2:18: in step
    s = "é" + str(v == vec(1, 2))
                    ^
`
	e := fault(t, src)
	if got := e.Render(func(string) []byte { return []byte(src) }); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := e.Render(nil); strings.Contains(got, "str(v") || strings.Count(got, "\n") != 5 {
		t.Errorf("without sources:\n%s", got)
	}
	var eval *starlark.EvalError
	if !errors.As(e, &eval) && e.Cause == nil {
		t.Error("the error has lost its cause")
	}
}

// Arguments that do not fit are reported at the call.
func TestWrongArguments(t *testing.T) {
	const src = "def f(x):\n    return x\ndef main():\n    "
	for call, want := range map[string]string{
		"f()":      "r.star:4:6: function f missing 1 argument (x)",
		"f(1, 2)":  "r.star:4:6: function f accepts 1 positional argument (2 given)",
		"f(y = 1)": "r.star:4:6: function f got an unexpected keyword argument",
	} {
		if e := fault(t, src+call); !strings.HasPrefix(e.Error(), want) || len(e.Frames) != 1 {
			t.Errorf("%s: %v in %v, want %s", call, e, e.Frames, want)
		}
	}
}

// An error in a loaded file is reported where it is, with the loads that led there.
func TestExplainLoad(t *testing.T) {
	files := map[string]string{
		"a.star": `load("b.star", "f")`,
		"b.star": "load('c.star', f = 'g')",
		"c.star": "def g():\n  return 1 < ''\ng()\n",
		"d.star": `load("e.star", "x")`,
		"e.star": "x = (\n",
	}
	var load func(thread *starlark.Thread, name string) (starlark.StringDict, error)
	load = func(_ *starlark.Thread, name string) (starlark.StringDict, error) {
		env := lang.Environment(nil)
		file, err := lang.Parse(name, []byte(files[name]))
		if err != nil {
			return nil, err
		}
		prog, err := file.Compile(env)
		if err != nil {
			return nil, err
		}
		return prog.Init(&starlark.Thread{Load: load}, env)
	}
	_, err := load(nil, "a.star")
	e := lang.Explain(nil, err)
	if got := e.Error(); got != "c.star:2:12: int < string not implemented" {
		t.Error(got)
	}
	var at []string
	for _, f := range e.Frames {
		at = append(at, f.Pos.String())
	}
	if got := strings.Join(at, " "); got != "a.star:1:1 b.star:1:1 c.star:3:2 c.star:2:12" {
		t.Errorf("frames: %s", got)
	}
	_, err = load(nil, "d.star")
	if got := lang.Explain(nil, err).Error(); !strings.HasPrefix(got, "e.star:2:1: got end of file") && !strings.HasPrefix(got, "e.star:1:") {
		t.Error(got)
	}
}

func TestExplainOthers(t *testing.T) {
	if lang.Explain(nil, nil) != nil {
		t.Error("Explain(nil) is an error")
	}
	plain := errors.New("no file")
	if e := lang.Explain(nil, plain); e.Error() != "no file" || !errors.Is(e, plain) {
		t.Errorf("%v", e)
	}
	file := "x.star"
	once := &lang.Error{Pos: syntax.MakePosition(&file, 1, 2), Msg: "m"}
	if lang.Explain(nil, once) != once {
		t.Error("an *Error is explained anew")
	}
}

func TestFile(t *testing.T) {
	src := "'''What it is.'''\nload('a/b.star', 'x', z = 'y')\nload('c.star', 'd')\n"
	f, err := lang.Parse("r.star", []byte("\ufeff"+src))
	if err != nil {
		t.Fatal(err)
	}
	if f.Doc != "What it is." || string(f.Source) != src || len(f.Loads) != 2 {
		t.Errorf("%+v", f)
	}
	if l := f.Loads[0]; l.Module != "a/b.star" || l.Pos.String() != "r.star:2:6" || strings.Join(l.Names, " ") != "x y" {
		t.Errorf("%+v", l)
	}
	// A file can be compiled more than once, for different environments.
	for _, env := range []starlark.StringDict{lang.Environment(nil), lang.Environment(testNames)} {
		if _, err := f.Compile(env); err != nil {
			t.Error(err)
		}
	}
}
