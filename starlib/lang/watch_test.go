package lang_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.starlark.net/starlark"

	"drun/starlib/lang"
)

func TestEndlessRecursion(t *testing.T) {
	// A tenth of a process's default: the limit on the depth leaves room.
	defer debug.SetMaxStack(debug.SetMaxStack(100 << 20))
	for _, c := range []struct{ name, src, who string }{
		{"pure", "def f(n):\n    return f(n + 1) + 1\ndef main(): f(0)", "f calls itself"},
		{"tail", "def f(): return f()\ndef main(): f()", "f calls itself"},
		{"mutual", "def f(): return g()\ndef g(): return f()\ndef main(): f()", "g, f call each other|f, g call each other"},
		{"lambda", "f = lambda: f()\ndef main(): f()", "lambda calls itself"},
		{"key", "def f(x): return sorted([1, 2], key = f)\ndef main(): f(0)", "f calls itself"},
		{"max", "def f(x): return max([1, 2], key = lambda y: f(y))\ndef main(): f(0)", "f, lambda|lambda, f"},
		{"builtin", "def f(): return called(f)\ndef main(): f()", "f calls itself"},
		{"star", "def f(*a, **k): return f(*a, **k)\ndef main(): f(1, b = 2)", "f calls itself"},
		{"comprehension", "def f(): return [f() for x in [1]]\ndef main(): f()", "f calls itself"},
		{"condition", "def f(): return 1 < f()\ndef main(): f()", "f calls itself"},
		{"top level", "def f(): f()\nf()", "f calls itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := fault(t, c.src)
			if !strings.Contains(e.Msg, "recursion is deeper than 5000 calls (") || !containsAny(e.Msg, c.who) || !strings.HasPrefix(e.Pos.String(), "r.star:") {
				t.Errorf("%.200s", e.Error())
			}
			if text := e.Render(nil); strings.Count(text, "\n") > 60 {
				t.Errorf("the backtrace has %d lines", strings.Count(text, "\n"))
			}
		})
	}
}

func containsAny(s, alternatives string) bool {
	for _, a := range strings.Split(alternatives, "|") {
		if strings.Contains(s, a) {
			return true
		}
	}
	return false
}

func TestDeepRecursionIsAllowed(t *testing.T) {
	if e := runRecipe("r.star", []byte("def f(n): return 0 if n == 0 else 1 + f(n - 1)\ndef main(): eq(f(4900), 4900)")); e != nil {
		t.Error(e)
	}
}

func TestCancel(t *testing.T) {
	cause := fmt.Errorf("rank 2 failed")
	thread := new(starlark.Thread)
	lang.Watch(thread)
	if lang.Cancelled(thread) != nil || lang.Cancelled(nil) != nil {
		t.Error("cancelled before Cancel")
	}
	time.AfterFunc(10*time.Millisecond, func() {
		lang.Cancel(thread, cause)
		lang.Cancel(thread, errors.New("a later one"))
	})
	e := lang.Explain(thread, execute(thread, "r.star", []byte("def main():\n    while True: x = 1 + 1")))
	if e == nil || !errors.Is(e, cause) || e.Msg != "rank 2 failed" || !e.Pos.IsValid() {
		t.Errorf("%v", e)
	}
	// An error that happened before the cancellation keeps its own message.
	err := execute(new(starlark.Thread), "r.star", []byte("def main():\n    fail('first')"))
	if e := lang.Explain(thread, err); errors.Is(e, cause) || !strings.Contains(e.Msg, "first") {
		t.Errorf("%v", e)
	}
}

// A thread can be stopped at any instruction, and some instructions have no position.
func TestStoppedInALoop(t *testing.T) {
	for _, loop := range []string{
		"while True:\n        x += [1]", "while True:\n        x = 2", "while (True):\n        pass\n", "while 1:\n        x = 2",
		"while x:\n        x = 2", "while x == 1 or True:\n        x = 2", "while not True == x:\n        x = 2",
		"for x in y:\n        x = 2", "for x in y:\n        pass", "for x in [0 for x in y]:\n        pass",
	} {
		src := "def main():\n    x = [1]\n    y = range(1000)\n    " + loop
		looping := false
		for n := range uint64(200) {
			thread := new(starlark.Thread)
			lang.Watch(thread)
			thread.OnMaxSteps = func(thread *starlark.Thread) { lang.Cancel(thread, errors.New("stopped")) }
			thread.SetMaxExecutionSteps(n + 1)
			e := lang.Explain(thread, execute(thread, "r.star", []byte(src)))
			if e == nil || e.Msg != "stopped" {
				t.Fatalf("%s: %v", loop, e)
			}
			looping = looping || e.Pos.Line >= 4
			if looping && e.Pos.Line < 4 {
				t.Errorf("%s: stopped at %v after %d instructions", loop, e.Pos, n)
			}
		}
		if !looping {
			t.Errorf("%s: never seen in the loop", loop)
		}
	}
}
