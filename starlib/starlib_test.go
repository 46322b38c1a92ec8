package starlib

import (
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

func eval(t *testing.T, r *Rank, expr string, defs ...*Def) (starlark.Value, error) {
	t.Helper()
	m := &Module{Name: "m", Defs: defs}
	return starlark.EvalOptions(&syntax.FileOptions{}, new(starlark.Thread), "test.star", expr, starlark.StringDict{"m": m.Build(r)})
}

func echo(sig string) *Def {
	return &Def{Sig: sig, Fn: func(c *Call) (starlark.Value, error) {
		out := starlark.Tuple(append([]starlark.Value(nil), c.args...))
		out = append(out, c.Rest...)
		for _, kv := range c.Named {
			out = append(out, kv)
		}
		return out, nil
	}}
}

func TestArgumentsAreBound(t *testing.T) {
	for _, c := range []struct{ sig, expr, want string }{
		{`f(a, b = 2)`, `m.f(1)`, `(1, 2)`},
		{`f(a, b = 2)`, `m.f(b = 3, a = 1)`, `(1, 3)`},
		{`f(a: int | string, op: string = "x, y")`, `m.f("s")`, `("s", "x, y")`},
		{`f(a, *rest, key = None, **kw)`, `m.f(1, 2, 3, key = 4, z = 5)`, `(1, 4, 2, 3, ("z", 5))`},
		{`f(a: float = None)`, `m.f(None)`, `(None,)`},
		{`f(pair: tuple = (0.9, 0.999))`, `m.f()`, `((0.9, 0.999),)`},
		{`f(a, *, b = 1)`, `m.f(0, b = 2)`, `(0, 2)`},
	} {
		got, err := eval(t, &Rank{Stage: Running}, c.expr, echo(c.sig))
		if err != nil || got.String() != c.want {
			t.Errorf("%s with %s: got %v, %v; want %s", c.expr, c.sig, got, err, c.want)
		}
	}
}

func TestBadArgumentsAreNamed(t *testing.T) {
	for _, c := range []struct{ sig, expr, want string }{
		{`f(a, b = 2)`, `m.f()`, `m.f: missing argument a: f(a, b = 2)`},
		{`f(a)`, `m.f(1, 2)`, `m.f: got 2 arguments, want at most 1: f(a)`},
		{`f(a)`, `m.f(1, a = 2)`, `m.f: argument a is given twice`},
		{`f(a)`, `m.f(1, c = 2)`, `m.f: unexpected argument c: f(a)`},
		{`f(a: int)`, `m.f("x")`, `m.f: argument a: want int, got string "x"`},
		{`f(a: int)`, `m.f(None)`, `m.f: argument a: want int, got NoneType`},
		{`f(a, *, b = 1)`, `m.f(0, 2)`, `m.f: got 2 arguments, want at most 1`},
	} {
		_, err := eval(t, &Rank{Stage: Running}, c.expr, echo(c.sig))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: got error %v, want %s", c.expr, c.sig, err, c.want)
		}
	}
}

func TestTopLevelIsForDeclarations(t *testing.T) {
	free := echo(`g()`)
	free.TopLevel = true
	if _, err := eval(t, &Rank{}, `m.f()`, echo(`f()`)); err == nil || !strings.Contains(err.Error(), "call it in main()") {
		t.Errorf("at top level: got error %v", err)
	}
	if _, err := eval(t, &Rank{}, `m.g()`, free); err != nil {
		t.Errorf("allowed at top level: got error %v", err)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	bad := &Def{Sig: `f()`, Fn: func(*Call) (starlark.Value, error) { panic("boom") }}
	_, err := eval(t, &Rank{Stage: Running}, `m.f()`, bad)
	if err == nil || !strings.Contains(err.Error(), "internal error: boom") {
		t.Errorf("got error %v", err)
	}
}

func TestPositionIsTheRecipes(t *testing.T) {
	var got syntax.Position
	where := &Def{Sig: `f(x = None)`, Fn: func(c *Call) (starlark.Value, error) {
		got = c.Position()
		return nil, nil
	}}
	if _, err := eval(t, &Rank{Stage: Running}, "[m.f(x) for x in [1]]", where); err != nil {
		t.Fatal(err)
	}
	if got.String() != "test.star:1:5" {
		t.Errorf("position %v, want test.star:1:5", got)
	}
}

func BenchmarkCall(b *testing.B) {
	f := (&Module{Name: "m", Defs: []*Def{{Sig: `f(t, op: string = "sum", group = None)`, Fn: func(c *Call) (starlark.Value, error) { return c.Arg("t"), nil }}}}).Build(&Rank{Stage: Running})
	fn, _ := f.(starlark.HasAttrs).Attr("f")
	thread, args := new(starlark.Thread), starlark.Tuple{starlark.MakeInt(1)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := starlark.Call(thread, fn, args, nil); err != nil {
			b.Fatal(err)
		}
	}
}
