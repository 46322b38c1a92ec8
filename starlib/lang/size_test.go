package lang_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.starlark.net/starlark"

	"drun/internal/memory"
	"drun/starlib/lang"
)

// limited runs main's body in a process that may use 1 GiB of memory.
func limited(t *testing.T, body string) *lang.Error {
	t.Helper()
	memory.Share(1, 1<<30/9*10)
	defer memory.Share(1, 0)
	thread := &starlark.Thread{Print: func(*starlark.Thread, string) {}}
	lang.Watch(thread)
	return lang.Explain(thread, executeIn(thread, lang.Environment(testNames), "r.star", []byte("def main():\n    "+body+"\n")))
}

// Memory that one step asks for is refused at its position, before it is allocated.
func TestSizes(t *testing.T) {
	const deep = "x = []\n    for _ in range(2000): x = [x]\n    "
	const long = "a list of the 1099511627776 numbers of a range takes 16.0 TiB, and this rank may use 1024.0 MiB"
	for _, c := range []struct{ body, want string }{
		{"list@(range(1 << 40))", "list: " + long},
		{"sorted@(range(1 << 40))", "sorted: " + long},
		{"sorted@(iterable = range(1 << 40))", "sorted: " + long},
		{"tuple@(range(1 << 40))", "tuple: " + long},
		{"set@(range(1 << 40))", "set: " + long},
		{"dict@(range(1 << 40))", "dict: " + long},
		{"enumerate@(range(1 << 40))", "enumerate: " + long},
		{"enumerate@(range(1 << 40), 1)", "enumerate: " + long},
		{"reversed@(range(1 << 40))", "reversed: " + long},
		{"zip@(range(1 << 40), range(1 << 41))", "zip: " + long},
		{"bytes@(range(1 << 40))", "bytes: " + long},
		{"max@(range(1 << 40))", "max: " + long},
		{"min@(range(1 << 40))", "min: " + long},
		{"sum@(range(1 << 40))", "sum: " + long},
		{"sum@(range(1 << 40), 1)", "sum: " + long},
		{"print(@*range(1 << 40))", long},
		{"s = 'x' @* 5000000000", "a string of 1 repeated 5000000000 times takes 4.7 GiB"},
		{"s = 5000000000 @* 'x'", "a string of 1 repeated 5000000000 times takes 4.7 GiB"},
		{"s = 'x'; s @*= 5000000000", "a string of 1 repeated 5000000000 times"},
		{"d = {'a': [0]}; d['a'] @*= 1 << 30", "a list of 1 repeated 1073741824 times takes 16.0 GiB"},
		{"b = bytes('xy') @* 5000000000", "a bytes of 2 repeated 5000000000 times takes 9.3 GiB"},
		{"x = [0] @* (1 << 62)", "a list of 1 repeated 4611686018427387904 times takes"},
		{"x = (0, 1) @* (1 << 29)", "a tuple of 2 repeated 536870912 times takes 16.0 GiB"},
		{"x = 3\n    for _ in range(60): x = x @* x", "a product of 6647816 bits: integers have at most 4194304"},
		{"x = 3\n    for _ in range(60): x @*= x", "a product of 6647816 bits"},
		{"x = 1 @<< (1 << 30)", "shift count too large"},
		{"int@('7' * 2000000)", "int: a string of 2000000 bytes: at most 1200000"},
		{"'%999999999d' @% 1", "a width or precision above 10000"},
		{"'%.*f' @% (999999999, 1.0)", "a width or precision above 10000"},
		{deep + "str@(x)", "str: a list is nested more than 1000 deep"},
		{deep + "repr@(x)", "repr: a list is nested more than 1000 deep"},
		{deep + "print@(1, x)", "print: a list is nested more than 1000 deep"},
		{deep + "fail@(x)", "fail: a list is nested more than 1000 deep"},
		{deep + "'%s' @% x", "a list is nested more than 1000 deep"},
	} {
		start := time.Now()
		// @ marks the position of the error.
		before, after, _ := strings.Cut("def main():\n    "+c.body, "@")
		lines := strings.Split(before, "\n")
		at := fmt.Sprintf("r.star:%d:%d", len(lines), len(lines[len(lines)-1])+1)
		e := limited(t, strings.TrimPrefix(before+after, "def main():\n    "))
		if e == nil || !strings.HasPrefix(e.Msg, c.want) || e.Pos.String() != at {
			t.Errorf("%s: got %.200v\nwant %s: %s", c.body, e, at, c.want)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: it took %s", c.body, took)
		}
	}
}

func TestUsualSizes(t *testing.T) {
	for _, body := range []string{
		"eq(list(range(3)), [0, 1, 2])",
		"eq(zip(range(2), range(1 << 40)), [(0, 0), (1, 1)])",
		"eq(sorted(iterable = range(200000), reverse = True)[0], 199999)",
		"eq(max(range(200000)), 199999); eq(min([3, 1]), 1); eq(max([1], [2]), [2]); eq(sum(range(200000)), 19999900000); eq(any(range(1 << 40)), True)",
		"eq(len(dict(zip(range(200000), range(200000)))), 200000)",
		"x = {'a': 1}; x.update(b = 2); x.update([('c', 3)]); eq(x, {'a': 1, 'b': 2, 'c': 3})",
		"d = dict({'a': 1}, b = 2); eq(d, {'a': 1, 'b': 2})",
		"x = [1]; x += (2,); x.extend({3: 4}); eq(x, [1, 2, 3])",
		"x = {'a': [1]}; x['a'] *= 2; eq(x, {'a': [1, 1]}); x['a'] += [5]; eq(x, {'a': [1, 1, 5]})",
		"x = {'a': '%d'}; x['a'] %= 3; eq(x, {'a': '3'})",
		"x, y = 3, 2.5; x *= y; eq(x, 7.5); eq(2 * 'ab', 'abab'); eq([1] * 0, []); eq('' * (1 << 60), '')",
		"i = [0]\n    def next(): i[0] += 1; return i[0]\n    x = [0, 1, 2]; x[next()] *= 5; eq((x, i), ([0, 5, 2], [1]))",
		"eq((1 << 500) * (1 << 500) // (1 << 500) == 1 << 500, True)",
		"eq('a,b'.split(','), ['a', 'b']); eq('a b c'.split(None, 1), ['a', 'b c']); eq('abc'.replace('b', 'xyz', 1), 'axyzc')",
		"eq(type('a'.replace), 'builtin_function_or_method'); eq(str('a'.replace), '<built-in method replace of string value>')",
		"x = [1]; y = [x, x, x]; eq(str(y), '[[1], [1], [1]]'); eq('%s %s' % (x, y), '[1] [[1], [1], [1]]')",
		"x = []; x.append(x); eq(str(x), '[[...]]')",
		"eq(hasattr('', 'replace'), True); eq(getattr('aXa', 'replace')('X', 'b'), 'aba'); eq(getattr(1, 'f', 2), 2)",
		"def f(*a): return a\n    eq(f(*[1, 2]), (1, 2)); eq(f(*range(2)), (0, 1))",
		"eq(len('x' * 30000000), 30000000)",
		"s = 'x' * 20000000; eq(len(s.replace('x', 'xxxx', 1)), 20000003); eq(len(s.split('x', 1)), 2)",
	} {
		if e := limited(t, body); e != nil {
			t.Errorf("%s: %v", body, e)
		}
	}
	for body, want := range map[string]string{
		"''.replace(1)":       "replace: got 1 arguments, want at least 2",
		"','.join(1)":         "join: for parameter 1: got int, want iterable",
		"[].extend(1)":        "extend: for parameter 1: got int, want iterable",
		"list(1)":             "list: for parameter 1: got int, want iterable",
		"zip(1)":              "zip: argument #1 is not iterable: int",
		"max()":               "max requires at least one positional argument",
		"max(1)":              "max: int value is not iterable",
		"[1] * 'a'":           "unknown binary op: list * string",
		"'a' + 1":             "unknown binary op: string + int",
		"'a'.repalce()":       "string has no .repalce field or method (did you mean .replace?)",
		"[0].replace('', '')": "list has no .replace field or method",
		"'ab' * (1 << 70)":    "repeat count 1180591620717411303424 too large",
	} {
		if e := limited(t, body); e == nil || e.Msg != want {
			t.Errorf("%s: got %v, want %s", body, e, want)
		}
	}
}
