package debug

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/engine"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/universe"
)

// rank executes a file in this process, under an agent.
type rank struct {
	*Agent
	t    testing.TB
	said chan *engine.Debugged
	over chan error
}

func begin(t testing.TB, src string, marks bool) *rank {
	t.Helper()
	r := start(t, src, marks, true)
	r.stopped()
	return r
}

// start is begin, or has the thread wait for nothing.
func start(t testing.TB, src string, marks, entry bool) *rank {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &rank{t: t, said: make(chan *engine.Debugged, 1000), over: make(chan error, 1)}
	r.Agent = New(ctx, func(m *engine.Debugged) error {
		r.said <- m
		return nil
	})
	self := &starlib.Rank{WorldSize: 1, LocalSize: 1, NumNodes: 1, Stage: starlib.Running}
	u := universe.New(universe.Host{Rank: self, Context: ctx, Stop: func() bool { return false }})
	for name, v := range starlark.Universe {
		if !u.Env.Has(name) {
			u.Env[name] = v
		}
	}
	u.Env[lang.Mark] = starlark.None
	thread := &starlark.Thread{Name: "main"}
	lang.Watch(thread)
	self.At = func(thread *starlark.Thread) {
		if thread == r.Thread && r.Wanted.Load() {
			r.Called()
		}
	}
	lang.Observe(thread, self.At)
	file, err := lang.Parse("a.star", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	file.Marks = marks
	program, err := file.Compile(u.Env)
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(Recipe{Thread: thread, Rank: self, Tensors: u.Tensors, Env: u.Env, Entry: entry,
		Lines: func(string) *lang.Lines { return file.Lines(marks) }})
	go func() {
		_, err := program.Init(thread, u.Env)
		r.over <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-r.over
	})
	return r
}

// stopped waits until the thread stands still.
func (r *rank) stopped() *engine.Stopped {
	r.t.Helper()
	for {
		select {
		case m := <-r.said:
			if m.Stopped != nil {
				return m.Stopped
			}
		case err := <-r.over:
			r.over <- err
			r.t.Fatalf("the recipe has ended: %v", err)
		case <-time.After(30 * time.Second):
			r.t.Fatal("the thread does not stop")
		}
	}
}

// ask has the debugger ask, and returns the answer to a look.
func (r *rank) ask(m *engine.Debug) *engine.Seen {
	r.t.Helper()
	r.Deliver(m)
	if m.Look == nil {
		return nil
	}
	for {
		select {
		case a := <-r.said:
			if a.Seen != nil {
				return a.Seen
			}
		case <-time.After(30 * time.Second):
			r.t.Fatal("no answer")
		}
	}
}

// value evaluates an expression where the thread stands.
func (r *rank) value(expr string) string {
	a := r.ask(&engine.Debug{Look: &engine.Look{Expr: expr}})
	if a.Error != "" {
		return a.Error
	}
	return a.Values[0].Text
}

func (r *rank) run() error {
	r.t.Helper()
	r.Deliver(&engine.Debug{Go: &engine.Go{}})
	select {
	case err := <-r.over:
		r.over <- err
		return err
	case <-time.After(30 * time.Second):
		r.t.Fatal("the recipe does not end")
		return nil
	}
}

const summed = `def f(x):
    y = x + 1
    return y
def main():
    total = 0
    for i in range(3):
        total = total + f(i)
    t = tensor([1.0, float("nan"), 3.0, -float("inf"), 7.5, -2.0, 0.5])
    keep = lambda: total
    shelf, max = dist.store, keep
    return total
main()
`

// A moment is reached again, whatever the thread did before, and the statements before it are known.
func TestMoments(t *testing.T) {
	r := begin(t, summed, true)
	r.ask(&engine.Debug{Breaks: &[]engine.Breakpoint{{ID: 7, File: "a.star", Line: 3, Condition: "x == 1"}}, Go: &engine.Go{}})
	s := r.stopped()
	if s.Break != 7 || s.Frames[0].Line != 3 || s.Frames[1].Line != 7 || s.Back == nil {
		t.Fatalf("stopped at %+v", s)
	}
	at, back := s.Moment, *s.Back
	if got := r.value("y") + r.value("x"); got != "21" {
		t.Errorf("y and x are %s", got)
	}
	for _, m := range []engine.Moment{at, back} {
		again := begin(t, summed, true)
		again.Deliver(&engine.Debug{Go: &engine.Go{Until: &m}})
		s := again.stopped()
		if s.Why != engine.AtGoal || !s.Moment.Same(m) || s.Frames[0].Line != map[engine.Moment]int32{at: 3, back: 2}[m] || s.Back == nil {
			t.Errorf("%+v: stopped at %+v", m, s)
		}
		if err := again.run(); err != nil {
			t.Error(err)
		}
	}
	// Without marks the same statements have other numbers of steps.
	other := begin(t, summed, false)
	other.Deliver(&engine.Debug{Go: &engine.Go{Until: &at}})
	if s := other.stopped(); !s.Moment.Same(at) || s.Frames[0].Line == 3 && s.Frames[1].Line == 7 && other.value("x") == "1" {
		t.Errorf("without marks: %+v", s)
	}
}

// Values are summed up.
func TestValues(t *testing.T) {
	r := begin(t, summed, true)
	r.ask(&engine.Debug{Breaks: &[]engine.Breakpoint{{ID: 1, File: "a.star", Line: 11}}, Go: &engine.Go{}})
	r.stopped()
	a := r.ask(&engine.Debug{Look: &engine.Look{Scope: engine.Locals}})
	var names []string
	for _, v := range a.Values {
		names = append(names, v.Name+"="+v.Type)
	}
	if got := strings.Join(names, " "); got != "total=int i=int t=Tensor float32[7] keep=function shelf=store max=function" { // total is in a cell, since keep uses it
		t.Errorf("locals: %s", got)
	}
	x := r.ask(&engine.Debug{Look: &engine.Look{Expr: "t"}})
	if got, want := x.Values[0].Text, "Tensor float32[7] [1 NaN 3 -Inf 7.5 -2 …], min -Inf, max 7.5, 1 NaN, 1 infinite, digest "; !strings.HasPrefix(got, want) {
		t.Errorf("t is %s, want %s", got, want)
	}
	for expr, want := range map[string]string{
		"sorted([2, 1], key = f)": "a call of f may change", "sorted([2, 1], f)": "a call of f may change", "max(*[[1], f])": "may change something", "sorted([1, 2], key = lambda x: -x)": "[2, 1]",
		"set([1]).add(2)": "a call of .add of a set", "t.add(1).sum()": "Tensor float32[] [NaN]", "{1: 2}.get(1)": "2",
		"shelf.add('a', 1)": "may change something", "max()": "a call of lambda may change something", "f(1)": "a call of f may change something", "main": "<function main>", "total * 2": "12", "tensor.bernoulli(t)": "may change something",
		"[t.sum() for _ in range(3)]": "[tensor(nan)", "[x for x in range(100000000)]": "too many steps",
		"sum([1]) + len([2])": "2", "linalg.norm": "<built-in", "dist.store.add('a', 1)": "may change something", "{'a': 1}.update": "<built-in",
	} {
		if got := r.value(expr); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	if a := r.ask(&engine.Debug{Look: &engine.Look{Frame: 9, Expr: "1"}}); a.Error == "" {
		t.Error("there is no frame 9")
	}
	if a := r.ask(&engine.Debug{Look: &engine.Look{Of: 99}}); a.Error == "" {
		t.Error("there is no value 99")
	}
	if err := r.run(); err != nil {
		t.Error(err)
	}
}

// A debugger that goes away leaves nothing behind: the recipe goes on to its end.
func TestLeave(t *testing.T) {
	r := begin(t, summed, true)
	r.ask(&engine.Debug{Breaks: &[]engine.Breakpoint{{ID: 1, File: "a.star", Line: 7}}, Go: &engine.Go{To: engine.StepIn}})
	r.stopped()
	r.Deliver(&engine.Debug{Leave: true})
	select {
	case err := <-r.over:
		r.over <- err
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the recipe does not end")
	}
}

// What a statement takes in a loop of 1,000 steps: without a debugger, with one that asks for nothing, and undisturbed by a
// breakpoint at another line and by one with a condition.
func BenchmarkStatement(b *testing.B) {
	for _, c := range []struct {
		name string
		list []engine.Breakpoint
	}{
		{"without", nil}, {"none", []engine.Breakpoint{}}, {"elsewhere", []engine.Breakpoint{{ID: 1, File: "a.star", Line: 7}}},
		{"condition", []engine.Breakpoint{{ID: 1, File: "a.star", Line: 4, Condition: "i < 0"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := start(b, fmt.Sprintf("def main():\n    x = 0\n    for i in range(%d):\n        y = i + x\n        x = y - i\n    return x\n    x = 1\nmain()\n", b.N), true, c.list != nil)
			var err error
			if c.list == nil {
				err = <-r.over
				r.over <- err
			} else {
				r.stopped()
				r.ask(&engine.Debug{Breaks: &c.list})
				b.ResetTimer()
				err = r.run()
			}
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(3*b.N), "ns/statement")
		})
	}
}

// The end of a function or a loop is no statement, also where the compiler gives it the position of one that was not executed.
func TestEnds(t *testing.T) {
	const src = `def f(x):
    if x:
        a = len("x")
def g(x):
    if x:
        a = len("x")
    else:
        b = len("yy")
def h(x):
    for i in range(2):
        if i == x:
            a = len("x")
        else:
            b = len("yy")
def k(x):
    while x > 0:
        x = x - 1
def l(x):
    for i in range(9):
        for j in [y for y in range(2) if y]:
            if i + j == x:
                return i
            elif i == x:
                break
def main():
    f(1)
    g(1)
    g(0)
    h(1)
    k(2)
    l(1)
    l(2)
main()
last = len("z")
`
	want := "[4 9 15 18 25 33 26 2 3 27 5 6 28 5 8 29 10 11 14 10 11 12 10 30 16 17 16 17 16 31 19 20 21 22 32 19 20 21 23 20 19 20 21 22 34]"
	for _, marks := range []bool{true, false} {
		r := begin(t, src, marks)
		var got []int32
		for len(got) < 100 && (len(got) == 0 || got[len(got)-1] != 34) {
			r.Deliver(&engine.Debug{Go: &engine.Go{To: engine.StepIn}})
			got = append(got, r.stopped().Frames[0].Line)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("with marks %v, stepped through\n%v, want\n%s", marks, got, want)
		}
		if err := r.run(); err != nil {
			t.Error(err)
		}
	}
}

// Each statement is seen at its own line, in the order of execution, whichever expressions without a position it has.
func TestConstants(t *testing.T) {
	for _, expr := range []string{
		"1", "True", "-1", "not 1", `"a" + "b"`, "(1, 2)", "[1] + [2]", "{}", "{1: 2}", "1 < 2", "0 or r", "1 or r", "1 and 2", "r and 2", "r or 3", "r and 2 or 3", "not (r and 1)", "not r or 2",
		"1 if r else 2", "1 if not r else 2", "r if r else 2", "2 if r else r", "1 if 1 else 2", "1 if 0 else r", "1 if r else 2 if len(\"x\") else 3", "(1 if r else 2) if r else (3 if r else 4)",
		"1 if 0 < r and r < 2 else 3", "1 if r in [1] else 2", "1 if r not in (1, 2) else 2", "1 if r and 1 else 0", "1 if r or 0 else 0", "1 if [] else {}",
		"[1 for _ in range(2)]", "[1 if q else 2 for q in [0, 1]]", "[1 for q in [0, 1] if q]", "[1 for q in [] if 1]", "{1: 2 for _ in [1]}", "{1: 2 if r else 3 for q in [r] if q if 1}", "[[1 for _ in [r]] for _ in [1, 2]]",
		"max(1 if r else 2, 3)", "max(*[1 if r else 2, 3])", "[1 if r else 2, 3 if r else 4]", `{"a": 1 if r else 2}`, `{"a" if r else "b": 1}`, "(1 if r else 2,)", "[1, 2][0 if r else 1]", "[1, 2][0 if r else 1:]",
		"(1 if r else 2) + (3 if r else 4)", `"%d" % (1 if r else 2)`, "-(1 if r else 2)", "(1 if r else 2) == 2", "lambda k = 1 if r else 2: k", "lambda: 1 if r else 2",
		"(1 if r else\n 2)", "(1\n if r\n else\n 2)", "[\n 1 if r else 2,\n 3\n]", "max(\n 1 if r else 2,\n 3,\n)", "(r and\n 1 or\n 2)", "[\n 1\n for q in [0, 1]\n if q\n]", "{\n 1:\n 2 if r else\n 3,\n}",
	} {
		line, src := int32(1), ""
		var all []int32 // the first lines of the statements, in their order
		add := func(indent int, stmt string) {
			all = append(all, line)
			src += strings.Repeat("    ", indent) + stmt + "\n"
			line += int32(strings.Count(stmt, "\n")) + 1
		}
		add(0, "def f(r):")
		add(1, "a = "+expr)
		add(1, "b = 2")
		add(1, "if "+expr+":")
		add(2, "c = 3")
		add(1, "else:")
		add(2, "c = 4")
		add(1, "e = 5 if r else 6")
		add(1, "for _ in [1]:")
		add(2, "g, h = 7, "+expr)
		add(1, "while "+expr+":")
		add(2, "break")
		add(1, "def k(l = "+expr+"):")
		add(2, "return l")
		add(1, "k("+expr+")")
		add(1, expr)
		add(1, "i = 8 if r else 9")
		add(1, "return "+expr)
		add(0, "f(0)")
		add(0, "f(1)")
		add(0, `last = len("z")`)
		for _, marks := range []bool{true, false} {
			file, err := lang.Parse("a.star", []byte(src))
			if err != nil {
				t.Fatal(err)
			}
			lines := file.Lines(marks)
			r := begin(t, src, marks)
			var got, want []int32
			for len(got) < 100 && (len(got) == 0 || got[len(got)-1] != all[20]) {
				r.Deliver(&engine.Debug{Go: &engine.Go{To: engine.Over}})
				if got = append(got, r.stopped().Frames[0].Line); slices.Contains(all[18:20], got[len(got)-1]) {
					r.Deliver(&engine.Debug{Go: &engine.Go{To: engine.StepIn}})
					got = append(got, r.stopped().Frames[0].Line)
				}
			}
			for call := range 2 {
				want = append(want, all[18+call])
				is := fmt.Sprintf("(lambda r: %s)(%d)", expr, call)
				v, err := starlark.EvalOptions(&syntax.FileOptions{}, &starlark.Thread{}, "", strings.ReplaceAll(is, "\n", " "), starlark.Universe)
				if err != nil {
					t.Fatal(err)
				}
				path := []int{1, 2, 3, 6, 7, 8, 9, 8, 10, 12, 14, 15, 16, 17}
				if v.Truth() {
					path = []int{1, 2, 3, 4, 7, 8, 9, 8, 10, 11, 12, 14, 15, 16, 17}
				}
				for _, i := range path {
					if lines.Statement(all[i]) > 0 {
						want = append(want, all[i])
					}
				}
			}
			if want = append(want, all[20]); !slices.Equal(got, want) {
				t.Errorf("%q with marks %v: stepped through\n%v, want\n%v", expr, marks, got, want)
			}
			if err := r.run(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Digests cover what dicts, lists and structs hold that is not plain, and end with values that contain themselves.
func TestDigests(t *testing.T) {
	r := begin(t, `def main():
    w = tensor([1.0, 2.0])
    data_ = data.dataset(w)
    held = [{"w": w, "f": len}, [w, len], (len, [w]), struct(w = w, f = len), [data_, len], nn.linear(2, 2), {"m": [nn.linear(1, 1)]}]
    held[0]["self"] = held
    w[0] = 5.0
    held[5].bias.detach().fill_(7)
    held[6]["m"][0].weight.detach().fill_(7)
    return held
main()
`, true)
	digests := func() (list []uint64) {
		for i := range 7 {
			a := r.ask(&engine.Debug{Look: &engine.Look{Expr: fmt.Sprintf("held[%d]", i)}})
			if a.Error != "" {
				t.Fatal(a.Error)
			}
			list = append(list, a.Values[0].Digest)
		}
		return list
	}
	r.Deliver(&engine.Debug{Breaks: &[]engine.Breakpoint{{ID: 1, File: "a.star", Line: 6}, {ID: 2, File: "a.star", Line: 9}}, Go: &engine.Go{}})
	r.stopped()
	before := digests()
	if again := digests(); fmt.Sprint(again) != fmt.Sprint(before) {
		t.Errorf("digests are %v and then %v", before, again)
	}
	r.Deliver(&engine.Debug{Go: &engine.Go{}})
	r.stopped()
	for i, after := range digests() {
		if after == before[i] {
			t.Errorf("held[%d] has changed, its digest has not", i)
		}
	}
	if err := r.run(); err != nil {
		t.Error(err)
	}
}
