package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"drun/history/records"
	"drun/starlib"
	"drun/starlib/run"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// recorder is a Recorder that remembers.
type recorder struct{ lines []string }

func (r *recorder) Log(p records.Point) {
	r.lines = append(r.lines, fmt.Sprintf("%s@%d=%v exact=%v", p.Name, p.Step, p.Value, p.Exact))
}
func (r *recorder) Tag(names []string)  { r.lines = append(r.lines, "tag "+strings.Join(names, ",")) }
func (r *recorder) Note(n records.Note) { r.lines = append(r.lines, "note "+n.Text) }
func (r *recorder) Artifact(a records.Artifact) {
	step := int64(-1)
	if a.Step != nil {
		step = *a.Step
	}
	r.lines = append(r.lines, fmt.Sprintf("artifact %q@%d %s %s", a.Name, step, a.Kind, a.Data))
}
func (r *recorder) Progress(p records.Progress) {
	r.lines = append(r.lines, fmt.Sprintf("%s %d/%d %v", p.Label, p.Current, p.Total, p.Finished))
}

// exec runs a recipe's statements with the run module and returns what it kept.
func exec(t *testing.T, rank int, given map[string]string, source string) (*run.Run, *recorder, error) {
	t.Helper()
	return execAt(t, starlib.Loading, rank, given, source)
}

func execAt(t *testing.T, stage starlib.Stage, rank int, given map[string]string, source string) (*run.Run, *recorder, error) {
	t.Helper()
	rec := &recorder{}
	r, module := run.New(&starlib.Rank{Rank: rank, WorldSize: 2, Stage: stage}, run.Info{ID: 7, Name: "calm-otter"}, rec, given,
		func(*starlib.Call) (bool, error) { return true, nil })
	env := starlark.StringDict{"run": module.Build(&starlib.Rank{Rank: rank, Stage: starlib.Running}),
		"struct": starlark.NewBuiltin("struct", starlarkstruct.Make)}
	options := &syntax.FileOptions{TopLevelControl: true, GlobalReassign: true}
	_, err := starlark.ExecFileOptions(options, new(starlark.Thread), "x.star", source, env)
	return r, rec, err
}

func TestParametersAreReadAsTheirDefaults(t *testing.T) {
	for _, c := range []struct{ fallback, text, want string }{
		{"0.1", "1e-3", "0.001"}, {"0.1", "3", "3.0"}, {"0.1", "inf", "+inf"}, {"0.1", "nan", "nan"},
		{"3", "7", "7"}, {"3", "-7", "-7"}, {"3", "0x10", "16"}, {"3", "123456789012345678901234567890", "123456789012345678901234567890"},
		{"False", "true", "True"}, {"True", "off", "False"}, {"False", "1", "True"},
		{`"x"`, "", `""`}, {`"x"`, "3", `"3"`}, {`"x"`, "a=b", `"a=b"`},
		{"None", "3", "3"}, {"None", "2.5", "2.5"}, {"None", "True", "True"}, {"None", "abc", `"abc"`}, {"None", "[1]", "[1]"}, {"None", "[1", `"[1"`}, {"None", "[x]", `"[x]"`},
		{"[1]", "[]", "[]"}, {"[1]", " [ -2, 0x10 ] ", "[-2, 16]"}, {"[0.5]", "[1, -2.5]", "[1.0, -2.5]"}, {"[]", `[1, 2.0, "a", true, null, [True]]`, `[1, 2.0, "a", True, None, [True]]`},
		{"[[1, 2]]", "[[3], []]", "[[3], []]"}, {`["a"]`, `["b,]", 'c']`, `["b,]", "c"]`}, {"None", "", `""`},
	} {
		r, _, err := exec(t, 0, map[string]string{"p": c.text}, "run.params(p = "+c.fallback+")")
		if err != nil {
			t.Errorf("-p p=%s for %s: %v", c.text, c.fallback, err)
			continue
		}
		d := r.Params.Declared()[0]
		if d.Value.String() != c.want || d.Default.String() != c.fallback {
			t.Errorf("-p p=%s for %s: got %s (default %s), want %s", c.text, c.fallback, d.Value, d.Default, c.want)
		}
	}
}

func TestBadParameters(t *testing.T) {
	for _, c := range []struct{ source, text, want string }{
		{"run.params(p = 3)", "1.5", "-p p=1.5: want an int (the default is 3)"},
		{"run.params(p = 3)", "x", "-p p=x: want an int"},
		{"run.params(p = 3)", "True", "want an int"},
		{"run.params(p = 3)", "", "want an int"},
		{"run.params(p = 0.5)", "fast", "-p p=fast: want a float (the default is 0.5)"},
		{"run.params(p = True)", "maybe", "want a bool (true or false)"},
		{"run.params(p = [1])", "2", "-p p=2: want a list, such as '[1]'"},
		{"run.params(p = [1])", "[1, 2.5]", "an element is 2.5, of type float: want int"},
		{"run.params(p = [[1]])", "[1]", "an element is 1, of type int: want a list"},
		{"run.params(p = [1])", "[len([])]", "a list holds numbers"},
		{"run.params(p = [1])", "[x]", "x in a list is not a number"},
		{"run.params(p = [1])", "[" + strings.Repeat("[", 20) + strings.Repeat("]", 21), "nested deeper than 16"},
		{"run.params(p = [0.5])", "[1e308, 1" + strings.Repeat("0", 400) + "]", "want float"},
		{"run.params(p = [{}])", "[]", "element 0 of the list is a dict"},
		{"run.params(p = {})", "1", "parameter p: a default must be a number, bool, string, list or None, not a dict"},
		{"run.params(p = run.choice(1, [1, 2]))", "3", "-p p=3: the choices are 1, 2"},
		{"run.params(p = run.choice(1, [1, 2.5]))", "1", "option 1 is 2.5: want the default's type, int"},
		{"run.params(p = run.choice([1], [[2]]))", "[2]", "the default [1] is not one of the options"},
		{"run.params(p = run.param(1, 'x' * 2001))", "1", "the help has 2001 bytes"},
		{"run.params(p = 1); run.params(p = 2)", "2", "parameter p is declared twice"},
	} {
		_, _, err := exec(t, 0, map[string]string{"p": c.text}, c.source)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with -p p=%s: got error %v, want %s", c.source, c.text, err, c.want)
		}
	}
}

func TestUnknownParametersAreNamed(t *testing.T) {
	r, _, err := exec(t, 0, map[string]string{"q": "1"}, "run.params(b = 1, a = 2)")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Params.Unknown(); err == nil || err.Error() != "-p q: no such parameter; the recipe's are b, a" {
		t.Errorf("got error %v", err)
	}
	r, _, _ = exec(t, 0, map[string]string{"q": "1"}, "")
	if err := r.Params.Unknown(); err == nil || err.Error() != "-p q: the recipe declares no parameters" {
		t.Errorf("got error %v", err)
	}
	r, _, _ = exec(t, 0, map[string]string{"b": "1"}, "run.params(b = 1)")
	if err := r.Params.Unknown(); err != nil {
		t.Error(err)
	}
}

func TestLogCountsStepsByName(t *testing.T) {
	const source = `
for i in range(2):
    run.log(loss = i)
run.log({"acc": 0.5, "loss": 7}, step = 3, exact = False)
run.log(acc = True if False else 1)
run.log(loss = float("nan"))
run.tag("a", "b")
run.note("a remark")
`
	want := []string{"loss@0=0 exact=true", "loss@1=1 exact=true", "acc@3=0.5 exact=false", "loss@3=7 exact=false",
		"acc@0=1 exact=true", "loss@2=NaN exact=true", "tag a,b", "note a remark"}
	r, rec, err := exec(t, 0, nil, source)
	if err != nil || strings.Join(rec.lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v, recorded\n%s", err, strings.Join(rec.lines, "\n"))
	}
	// Other ranks count, but record only what they are asked to.
	other, rec, err := exec(t, 1, nil, source+"run.log(mine = 1, all_ranks = True)")
	if err != nil || strings.Join(rec.lines, "\n") != "mine@0=1 exact=true" {
		t.Errorf("%v, rank 1 recorded\n%s", err, strings.Join(rec.lines, "\n"))
	}
	// The counters survive a checkpoint.
	if err := other.SetState(r.State()); err != nil || other.State()[0].Value.String() != `{"acc": 1, "loss": 3}` {
		t.Errorf("%v, counters %v", err, other.State()[0].Value)
	}
	if err := r.SetState([]starlib.Entry{{Name: "steps", Value: starlark.None}}); err == nil {
		t.Error("a damaged state was taken")
	}
}

func TestProgressReportsTheEnd(t *testing.T) {
	for source, want := range map[string]string{
		"for x in run.progress([1, 2, 3], 'three'): pass":             "three 3/3 true",
		"for x in run.progress([1, 2, 3], 'three'):\n  break":         "three 1/3 true",
		"n = len(list(run.progress(range(4), 'four')))":               "four 4/4 true",
		"for i, x in enumerate(run.progress({'a': 1}, 'd')): pass":    "d 1/1 true",
		"for x in run.progress([], 'none'): pass":                     "none 0/0 true",
		"x = [y for y in run.progress(struct(a = 1) and (1, 2), '')]": " 2/2 true",
		"for i in run.progress(range(3), 'outer'):\n  for j in run.progress([1, 2], 'inner'):\n    if i == 1:\n      break\n  if i == 1:\n    break": "outer 2/3 inner 1/2 true",
	} {
		_, rec, err := exec(t, 0, nil, source)
		if err != nil || len(rec.lines) == 0 || !slices.Contains(rec.lines, want) {
			t.Errorf("%s: %v, %v", source, rec.lines, err)
		}
		if _, rec, err = exec(t, 1, nil, source); err != nil || len(rec.lines) > 0 {
			t.Errorf("%s on rank 1: %v, %v", source, rec.lines, err)
		}
	}
}

func TestParametersBelongToTheTopLevel(t *testing.T) {
	if _, _, err := execAt(t, starlib.Running, 0, nil, "run.params(p = 1)"); err == nil || !strings.Contains(err.Error(), "top level") {
		t.Errorf("within main: %v", err)
	}
}

func TestLongNames(t *testing.T) {
	for source, what := range map[string]string{
		`run.log({"x" * %d: 1})`:      "a metric's name has 201 bytes: at most 200",
		`run.tag("x" * %d)`:           "a tag has 201 bytes",
		`run.params(**{"x" * %d: 1})`: "a parameter's name has 201 bytes",
	} {
		if _, _, err := exec(t, 0, nil, fmt.Sprintf(source, 200)); err != nil {
			t.Errorf("%s with 200: %v", source, err)
		}
		if _, _, err := exec(t, 0, nil, fmt.Sprintf(source, 201)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s with 201: %v", source, err)
		}
	}
	if _, _, err := exec(t, 0, nil, `run.note("x" * (1 << 20))`); err != nil {
		t.Error(err)
	}
	if _, _, err := exec(t, 0, nil, `run.note("x" * ((1 << 20) + 1))`); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("a long note: %v", err)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	_, _, err := exec(t, 0, map[string]string{"api_key": "hunter2"}, "run.params(api_key = 3)")
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "-p api_key=[redacted]: want an int") {
		t.Errorf("%v", err)
	}
}
