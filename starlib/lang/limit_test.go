package lang_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.starlark.net/starlark"

	"drun/starlib/lang"
)

// within runs a test in a process of its own that may have 3 GB of addresses, so
// that what is not refused fails there. It reports whether this is that process.
func within(t *testing.T) bool {
	t.Helper()
	const mark = "DRUN_TEST_BOUNDED"
	if os.Getenv(mark) != "" {
		return true
	}
	bound := "ulimit -v 3000000; "
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				bound = "" // the detector maps terabytes
			}
		}
	}
	cmd := exec.Command("sh", "-c", bound+`exec "$0" "$@"`, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%.3000s", err, out)
	}
	return false
}

// limited runs main's body where plain values may take 64 MB together.
func limited(t *testing.T, body string) *lang.Error {
	t.Helper()
	thread := &starlark.Thread{Print: func(*starlark.Thread, string) {}}
	lang.Watch(thread)
	env := lang.Environment(testNames, 64<<20)
	return lang.Explain(thread, executeIn(thread, env, "r.star", []byte("def main():\n    "+body+"\n")))
}

func TestValueLimit(t *testing.T) {
	if !within(t) {
		return
	}
	const s, l = "s = 'x' * 20000000; ", "l = [0] * 1500000; "
	const nest = "x = [1]\n    for _ in range(60): x = [x, x]\n    "
	for _, c := range []struct{ body, want string }{
		// Sequences of a known length.
		{"list@(range(1 << 40))", "list: 1099511627776 elements take at least 16777216 MB, and one value may take 32 MB"},
		{"sorted@(range(1 << 40))", "sorted: 1099511627776 elements"},
		{"sorted@(iterable = range(1 << 40))", "sorted: 1099511627776 elements"},
		{"tuple@(range(1 << 40))", "tuple: 1099511627776 elements"},
		{"set@(range(1 << 40))", "set: 1099511627776 elements"},
		{"dict@(range(1 << 40))", "dict: 1099511627776 elements"},
		{"enumerate@(range(1 << 40))", "enumerate: 1099511627776 elements"},
		{"reversed@(range(1 << 40))", "reversed: 1099511627776 elements"},
		{"zip@(range(1 << 40), range(1 << 41))", "zip: 1099511627776 elements"},
		{"bytes@(range(1 << 40))", "bytes: 1099511627776 elements"},
		{"list@(range(1 << 62))", "list: 4611686018427387904 elements take at least more bytes than can be counted"},
		{"list@(forever())", "list: more than"},
		{"set().union@(forever())", "union: more than"},
		{"[].extend@(range(1 << 40))", "extend: 1099511627776 elements"},
		{"set().union@(range(1 << 40))", "union: 1099511627776 elements"},
		{"set().update@(range(1 << 40))", "update: 1099511627776 elements"},
		{"getattr([], 'extend')@(range(1 << 40))", "extend: 1099511627776 elements"},
		{"x = []; x @+= range(1 << 40)", "the 1099511627776 numbers of a range take"},
		{"print(@*range(1 << 40))", "the 1099511627776 numbers of a range take"},
		// Sums and products.
		{s + "s = s + s; s = s @+ s", "a sum with this string takes more than 38 MB, and one value may take 32 MB"},
		{s + "s += s; s @+= s", "a sum with this string"},
		{s + "d = {'a': s}; d['a'] += s; d['a'] @+= d['a']", "a sum with this string"},
		{l + "l = l + l; l = l @+ l", "a sum with this list takes more than 45 MB"},
		{l + "l = tuple(l); l = l + l; l = l @+ l", "a sum with this tuple"},
		{"b = bytes('x' * 20000000); b = b + b; b @+ b", "a sum with these bytes"},
		{"s = 'x' @* 50000000", "a string of 1 repeated 50000000 times takes 47 MB"},
		{"s = 50000000 @* 'x'", "a string of 1 repeated 50000000 times takes 47 MB"},
		{"s = 'x'; s @*= 50000000", "a string of 1 repeated 50000000 times"},
		{"d = {'a': [0]}; d['a'] @*= 1 << 28", "a list of 1 repeated 268435456 times takes 4096 MB"},
		{"b = bytes('xy') @* 50000000", "a bytes of 2 repeated 50000000 times"},
		{"x = [0] @* (1 << 30)", "a list of 1 repeated 1073741824 times takes 16384 MB"},
		{"x = (0, 1) @* (1 << 29)", "a tuple of 2 repeated 536870912 times takes 16384 MB"},
		{"sum@([[0] * 1000000] * 10, [])", "sum: element 3: a sum with this list"},
		// Texts.
		{s + "s.replace@('x', 'xxxx')", "replace: the result takes up to 76 MB"},
		{s + "s.replace@('', 'abc')", "replace: the result takes up to 76 MB"},
		{s + "r = s.replace; r@('x', 'xxxx')", "replace: the result takes up to 76 MB"},
		{s + "','.join@([s] * 1000)", "join: the result takes up to 19073 MB"},
		{s + "','.join@({s: 1, s + 'y': 2})", "join: the result takes up to 38 MB"},
		{s + "'{0}{0}{0}'.format@(s)", "format: the result takes up to 57 MB"},
		{s + "'%s %s' @% (s, s)", "the text takes up to 38 MB"},
		{s + "'%(a)s %(a)s' @% {'a': s}", "the text takes up to 38 MB"},
		{s + "x = '%s %s'; x @%= (s, s)", "the text takes up to 38 MB"},
		{"s = ',' * 20000000; s.split@(',')", "split: the result takes up to 915 MB"},
		{"s = 'a ' * 10000000; s.split@()", "split: the result takes up to 457 MB"},
		{"s = 'a\\n' * 10000000; s.splitlines@()", "splitlines: the result takes up to 457 MB"},
		{"'%999999999d' @% 1", "a width or precision of more than 10000"},
		{"'%.*f' @% (999999999, 1.0)", "a width or precision of more than 10000"},
		// What is shared is small, and long when it is printed.
		{nest + "str@(x)", "str: the text takes up to"},
		{nest + "repr@(x)", "repr: the text takes up to"},
		{nest + "print@(1, x)", "print: the text takes up to"},
		{nest + "fail@(x)", "fail: the text takes up to"},
		{nest + "'%s' @% x", "the text takes up to"},
		{nest + "'%r' @% (x,)", "the text takes up to"},
		{nest + "'{}'.format@(x)", "format: the result takes up to"},
		{"print@(sep = 'y' * 1000000, *['x'] * 1000)", "print: the text takes up to 955 MB"},
		// Integers.
		{"x = 3\n    for _ in range(60): x = x @* x", "a product of 6647816 bits: integers here have at most 4194304"},
		{"x = 3\n    for _ in range(60): x @*= x", "a product of 6647816 bits"},
		{"x = 1 @<< (1 << 30)", "shift count too large"},
		{"int@('7' * 2000000)", "int: a text of 2000000 bytes: at most 1200000"},
	} {
		start := time.Now()
		// @ marks where the fault is.
		before, after, _ := strings.Cut("def main():\n    "+c.body, "@")
		lines := strings.Split(before, "\n")
		at := fmt.Sprintf("r.star:%d:%d", len(lines), len(lines[len(lines)-1])+1)
		e := limited(t, strings.TrimPrefix(before+after, "def main():\n    "))
		if e == nil || !strings.HasPrefix(e.Msg, c.want) || e.Pos.String() != at {
			t.Errorf("%s: got %.200s\nwant %s: %s", c.body, e, at, c.want)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: it took %s", c.body, took)
		}
	}
}

func TestBelowTheLimit(t *testing.T) {
	for _, body := range []string{
		"eq(list(range(3)), [0, 1, 2])",
		"eq(zip(range(2), range(1 << 40)), [(0, 0), (1, 1)])",
		"eq(sorted(iterable = range(200000), reverse = True)[0], 199999)",
		"eq(max(range(200000)), 199999); eq(min([3, 1]), 1); eq(max([1], [2]), [2]); eq(sum(range(200000)), 19999900000)",
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

// What only goes through a long sequence takes no memory, but can be cancelled.
func TestCancelLongLoops(t *testing.T) {
	for _, body := range []string{"max(range(1 << 40))", "min(range(1 << 40))", "sum(range(1 << 40))", "any(zeros())",
		"all(range(1, 1 << 40))", "set([-1]).difference(range(1 << 40))"} {
		thread := new(starlark.Thread)
		lang.Watch(thread)
		time.AfterFunc(20*time.Millisecond, func() { lang.Cancel(thread, errStop) })
		start := time.Now()
		e := lang.Explain(thread, executeIn(thread, lang.Environment(testNames, 64<<20), "r.star", []byte("def main():\n    "+body+"\n    x = 1\n")))
		if e == nil || e.Msg != errStop.Error() {
			t.Errorf("%s: %v", body, e)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: it took %s", body, took)
		}
	}
}
