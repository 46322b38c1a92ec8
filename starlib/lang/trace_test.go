package lang_test

import (
	"fmt"
	"strings"
	"testing"

	"go.starlark.net/starlark"

	"drun/starlib/lang"
	"drun/starlib/lang/chunk"
)

// traced runs a recipe with a tracer and returns what the recipe computed.
func traced(name string, src []byte, point func()) (list []string, err error) {
	tracer := &lang.Tracer{Values: func(s lang.Site, v starlark.Value) {
		list = append(list, fmt.Sprintf("%d:%d %s %s", s.Pos.Line, s.Pos.Col, s.Op, v))
	}}
	env := lang.Environment(testNames)
	env[lang.Trace] = tracer.Value()
	env[lang.SavePoint] = starlark.NewBuiltin("save point", func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
		point()
		return starlark.None, nil
	})
	thread := &starlark.Thread{Print: func(*starlark.Thread, string) {}}
	lang.Watch(thread)
	f, err := lang.Parse(name, src)
	if err != nil {
		return nil, err
	}
	f.Tracer, f.SavePoints = tracer, true
	program, err := f.Compile(env)
	if err != nil {
		return nil, err
	}
	globals, err := program.Init(thread, env)
	if err == nil && globals["main"] != nil {
		_, err = starlark.Call(thread, globals["main"], nil, nil)
	}
	if e := lang.Explain(thread, err); e != nil {
		return list, e
	}
	return list, nil
}

// TestTracedRecipesMeanTheSame runs the chunks of testdata with a tracer: they pass and fail as they do without it.
func TestTracedRecipesMeanTheSame(t *testing.T) {
	values := 0
	eachChunk(t, func(name string, c chunk.Chunk) {
		plain := runRecipe(c.File, c.Source)
		list, err := traced(c.File, c.Source, func() {})
		values += len(list)
		if (plain == nil) != (err == nil) || plain != nil && err.Error() != plain.Error() {
			t.Errorf("%s/%s: traced %v, else %v", name, c.Name, err, plain)
		}
	})
	if values < 1000 {
		t.Errorf("only %d values were traced", values)
	}
}

func TestTrace(t *testing.T) {
	points := 0
	list, err := traced("t.star", []byte(`def f(a, *args, b = 1 + 1, **kw):
    return (lambda x: -x)(a) + b

checkpoint = 0
def main():
    total = 0
    for i, (j, k) in [(1, (2, 3))]:
        total += f(i, b = k, *[j], **{"c": 4})
    x = [n * n for n in range(3) if n > 0][1:]
    while total < 0:
        total = 0
    if total > 100:
        checkpoint.save({}, step = 1)
    for _ in range(2):
        if total > 200:
            if total > 300:
                checkpoint.save({}, step = 2)
    if total > 300:
        print()
`), func() { points++ })
	want := strings.Split(`1:23 + 2
7:5 for (1, (2, 3))
2:23 - -1
2:26 call -1
2:30 + 2
8:19 f 2
8:15 += 2
9:30 range range(3)
9:12 * 1
9:12 * 4
9:43 [] [4]
14:19 range range(2)
14:5 for 0
14:5 for 1`, "\n")
	if err != nil || fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("traced %v\n%s\nwant\n%s", err, strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
	if points != 3 {
		t.Errorf("there were %d decisions, want 1, and 1 in each round of a loop", points)
	}
}
