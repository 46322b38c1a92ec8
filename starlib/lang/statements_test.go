package lang

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.starlark.net/starlark"
)

// A thread is stopped before the very step that was asked for, also where other checks fall between, and the checks come when
// they would.
func TestStep(t *testing.T) {
	env := Environment(starlark.StringDict{})
	run := func(step func(thread *starlark.Thread)) (steps uint64, checks []uint64) {
		file, err := Parse("a.star", []byte("def main():\n    for i in range(10000):\n        x = i + 1\nmain()\n"))
		if err != nil {
			t.Fatal(err)
		}
		program, err := file.Compile(env)
		if err != nil {
			t.Fatal(err)
		}
		thread := &starlark.Thread{Name: "main"}
		Watch(thread)
		Observe(thread, func(thread *starlark.Thread) { checks = append(checks, thread.ExecutionSteps()) })
		step(thread)
		if _, err := program.Init(thread, env); err != nil {
			t.Fatal(err)
		}
		return thread.ExecutionSteps(), checks
	}
	steps, checks := run(func(*starlark.Thread) {})
	var seen []uint64
	want := []uint64{1, 2, 100, stepsBetween, stepsBetween + 1, 30_000}
	left := want
	stepped, also := run(func(thread *starlark.Thread) {
		Step(thread, left[0], func(thread *starlark.Thread) uint64 {
			seen = append(seen, thread.ExecutionSteps())
			if left = left[1:]; len(left) == 0 {
				return Never
			}
			return left[0]
		})
	})
	if !slices.Equal(seen, want) || stepped != steps || !slices.Equal(also, checks) {
		t.Errorf("stopped at %v of %d steps, checked at %v; want %v of %d, checked at %v", seen, stepped, also, want, steps, checks)
	}
}

func TestLines(t *testing.T) {
	const src = `"""Doc."""
load("a.star", "b")
x = 0
def f(
    a,
    b = 1):
    """Doc."""

    # comment
    if a:
        pass
    elif b:
        return
    y = [
        1,
    ]; z = a
    return (
        y +
        b
    )
while False:
    break
`
	file, err := Parse("a.star", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	statements := func(marks bool) string {
		l := file.Lines(marks)
		var out []string
		for line := int32(1); line < 24; line++ {
			out = append(out, fmt.Sprintf("%d:%d>%d", line, l.Statement(line), l.Near(line)))
		}
		return strings.Join(out, " ")
	}
	for marks, want := range map[bool]string{
		true:  "1:0>3 2:0>3 3:3>3 4:4>4 5:4>4 6:4>4 7:0>10 8:0>10 9:0>10 10:10>10 11:11>11 12:12>12 13:13>13 14:14>14 15:14>14 16:14>14 17:17>17 18:17>17 19:17>17 20:17>17 21:21>21 22:22>22 23:0>0",
		false: "1:0>4 2:0>4 3:0>4 4:4>4 5:4>4 6:4>4 7:0>10 8:0>10 9:0>10 10:10>10 11:0>12 12:12>12 13:0>16 14:0>16 15:0>16 16:16>16 17:17>17 18:17>17 19:17>17 20:17>17 21:21>21 22:0>0 23:0>0",
	} {
		if got := statements(marks); got != want {
			t.Errorf("marks %v:\n%s, want\n%s", marks, got, want)
		}
	}
	if l := file.Lines(true); !slices.Equal(l.Names, []string{"b", "x", "f", "a", "y", "z", "False"}) {
		t.Errorf("names %v", l.Names)
	}
}

func TestExpressions(t *testing.T) {
	env := Environment(starlark.StringDict{})
	values := map[string]starlark.Value{"x": starlark.MakeInt(3), "xs": starlark.NewList([]starlark.Value{starlark.MakeInt(1), starlark.MakeInt(5)}),
		"nan": starlark.Float(0), "len": starlark.Universe["len"], "max": starlark.Universe["max"], "print": starlark.Universe["print"]}
	pure := purity{}
	for src, want := range map[string]string{
		"x + 1": "4", "x > 2 and x < 4": "True", "[y * x for y in xs if y > 1]": "[15]", "(lambda y, z = x: y)": "<function lambda>",
		"len(xs)": "2", "len([y for y in xs])": "2", "'%.1f' % x": `"3.0"`, "xs[0]": "1", "x if xs else 0": "3", "{a: b for a, b in [(1, x)]}": "{1: 3}",
		"len(x = xs)":                  "!len: unexpected keyword arguments",
		"x.count(1)":                   "!int has no .count field or method",
		"xs.index":                     "<built-in method index of list value>",
		"x.append(1)":                  "!a call of .append may change something",
		"[len(xs) for len in [print]]": "!a call of print may change something",
		"[y.count(1) for y in [\"\"]]": "!a call of .count of a string may change something",
		"max(xs, key = lambda y: -y)":  "1",
		"max(xs, key = print)":         "!a call of print may change something",
		"f(x)":                         "!a call of f may change something",
		"[len(xs) for len in xs]":      "!invalid call of non-function",
		"(lambda: 1)()":                "!a call of a value may change something",
		"[f(1) for y in xs]":           "!a call of f may change something",
		"x +":                          "!got end of file",
		"x = 1":                        "!got '='",
		"y":                            "!y has no value here",
		"x // 0":                       "!division by zero",
	} {
		got := ""
		e, err := ParseExpression("e", src, env, pure)
		if err == nil {
			var v starlark.Value
			if v, err = e.Value(&starlark.Thread{}, func(name string) starlark.Value { return values[name] }); err == nil {
				got = v.String()
			}
		}
		if err != nil {
			got = "!" + err.Error()
		}
		if wrong, ok := strings.CutPrefix(want, "!"); ok && !(strings.HasPrefix(got, "!") && strings.Contains(got, wrong)) || !ok && got != want {
			t.Errorf("%s: %s, want %s", src, got, want)
		}
	}
}

// purity allows calls of len and max, and of count on lists.
type purity struct{}

func (purity) Call(fn starlark.Callable) bool {
	b, ok := fn.(*starlark.Builtin)
	if !ok {
		return false
	}
	if _, list := b.Receiver().(*starlark.List); list {
		return b.Name() == "count"
	}
	return b.Receiver() == nil && (b.Name() == "len" || b.Name() == "max")
}

func (purity) Method(name string) bool { return name == "count" }
