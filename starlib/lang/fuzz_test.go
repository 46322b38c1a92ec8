package lang_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/starlib/lang"
)

// Sources that may mean something different in plain Starlark, or that could use up the memory.
var elsewhere = regexp.MustCompile(`%[-+ #0-9.*hlLu(]|%=|float|\d[eE]|\d{7}|<<|\*|sum|round`)

// FuzzSame compares the rewritten program with the original one. Without NaN, tensors and formats that Starlark lacks,
// both must print the same and fail with the same message at the same position. No source may cause a panic.
func FuzzSame(f *testing.F) {
	files, err := filepath.Glob("testdata/*.star")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(src), "---\n") {
			f.Add(part)
			f.Add(strings.ReplaceAll(part, "eq(", "print("))
		}
	}
	for _, src := range []string{
		"x = [a for a in range(9) if a % 2 == 1 and not a > 6 or a in (0,)]\nprint(x)\n",
		"def f(n, k = 1 < 2):\n  while n > 0:\n    n -= 1\n    if n == 3: continue\n    elif n <= 1 and k: break\n  return n\nprint(f(9))\n",
		"d = {'a': 1}\nd['a' if 1 == 1 else 'b'] += 2\ns = 'v %s'\nprint(s % d, not d, d or 1)\n",
		"a, (b, [c]) = 1, (2, [3])\nprint((lambda x: x if x != 2 else -x)(b), {k: v < 2 for k, v in [(a, b)]}, [1, 2][a == 1:])\n",
		"def f(x):\n  return x < 'a' if x else f(1)\nf(0)\n",
		"print(1 < 2, x == 3)\n",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		got, err := printed(lang.Environment(nil), func(env starlark.StringDict) (*starlark.Program, error) {
			file, err := lang.Parse("r.star", []byte(src))
			if err != nil {
				return nil, err
			}
			return file.Compile(env)
		})
		e := lang.Explain(nil, err)
		if e != nil {
			if text := e.Render(func(string) []byte { return []byte(src) }); strings.Contains(text, "internal error") {
				t.Fatal(text)
			}
		}
		if elsewhere.MatchString(src) || !utf8.ValidString(src) {
			return
		}
		want, err := printed(starlark.StringDict{}, func(env starlark.StringDict) (*starlark.Program, error) {
			options := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}
			_, prog, err := starlark.SourceProgramOptions(options, "r.star", strings.TrimPrefix(src, "\ufeff"), env.Has)
			return prog, err
		})
		bare := lang.Explain(nil, err)
		if e == nil && bare == nil {
			if got != want {
				t.Errorf("prints %q, in plain Starlark %q", got, want)
			}
			return
		}
		if stopped(e) || stopped(bare) {
			return // the number of steps differs
		}
		if e != nil && strings.Contains(e.Msg, " is compared with the function ") {
			return // False in plain Starlark
		}
		if e == nil || bare == nil || got != want {
			t.Fatalf("prints %q, %v; in plain Starlark %q, %v", got, e, want, bare)
		}
		var eval *starlark.EvalError
		if errors.As(err, &eval) && (e.Msg != bare.Msg || e.Pos.String() != bare.Pos.String()) {
			t.Errorf("fails with %v, in plain Starlark with %v", e, bare)
		}
	})
}

func stopped(e *lang.Error) bool { return e != nil && strings.Contains(e.Msg, "too many steps") }

func printed(env starlark.StringDict, compile func(starlark.StringDict) (*starlark.Program, error)) (string, error) {
	prog, err := compile(env)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	thread := &starlark.Thread{Print: func(_ *starlark.Thread, msg string) { out.WriteString(msg + "\n") }}
	thread.SetMaxExecutionSteps(20_000)
	_, err = prog.Init(thread, env)
	return out.String(), err
}
