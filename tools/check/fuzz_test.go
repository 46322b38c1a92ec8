package check_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/starlib/lang"
	"drun/tools/check"
)

// A recipe that would be interpreted for ever: calls that double in number, loops
// in loops, lists that hold themselves, functions that make functions.
var endless = []string{
	"def f0(x):\n    return dist.all_reduce(x)\n" + func() string {
		var b strings.Builder
		for i := 1; i < 40; i++ {
			n, m := string(rune('a'+i/26))+string(rune('a'+i%26)), string(rune('a'+(i-1)/26))+string(rune('a'+(i-1)%26))
			if i == 1 {
				m = "f0"
			}
			b.WriteString("def " + n + "(x):\n    return " + m + "(x) + " + m + "(x + 1)\n")
		}
		return b.String() + "def main():\n    bn(dist.rank())\n"
	}(),
	"def main():\n" + func() string {
		var b strings.Builder
		for i := range 30 {
			b.WriteString(strings.Repeat(" ", i+1) + "for x in range(dist.rank()):\n")
		}
		return b.String() + strings.Repeat(" ", 40) + "dist.barrier()\n"
	}(),
	"def main():\n    x = []\n    while x:\n        x.append(x)\n        x = [x, {1: x}]\n        x[0] = struct(x = x)\n",
	"def main():\n    f = lambda g: (lambda h: g(h(g)))\n    while True:\n        f = f(f)\n        f(f)\n",
	"def main(*main, **k):\n    main(main, *main, **k)\n    k['a'](k)\nmain(main)\n",
	"def main():\n    x = " + strings.Repeat("dist.rank() and ", 3000) + "1\n    x = " + strings.Repeat("x.y", 1) + strings.Repeat(".y", 3000) + "\n",
	"a = [b for b in a for a in a if a]\nload('x.star', 'y')\nx, (y, [z]) = y\nx.y[z] += {}[1:2]\n",
	"def main():\n    dist.all_reduce()\n    tensor.no_grad()\n    data.loader()\n    nn.module()\n    dist.master_first()\n    run.params(1)\n    zip()\n    dict(1)\n    [].append()\n    {}.get()\n    [].insert()\n",
	"def main():\n    " + strings.Repeat("tensor.no_grad(main, ", 60) + strings.Repeat(")", 60) + "\n",
}

// busy is the time that this process has computed: others may have the machine meanwhile.
func busy() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// FuzzCheck: whatever the source, a check ends, soon, and does not panic.
func FuzzCheck(f *testing.F) {
	for _, name := range []string{"testdata/shape.star", "testdata/sizes.star", "testdata/collective.star", "testdata/clean.star"} {
		for _, c := range corpus(f, name) {
			f.Add(string(c.Source))
		}
	}
	for _, source := range endless {
		f.Add(source)
	}
	ref := reference()
	f.Fuzz(func(t *testing.T, source string) {
		begin := busy()
		found := examine(t, ref, "fuzz.star", []byte(source))
		if took := busy() - begin; took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		for _, x := range found {
			if x.Message == "" || x.Line < 0 || strings.Contains(x.Message, "\n") && x.Severity == check.Warning {
				t.Errorf("a finding without meaning: %+v", x)
			}
		}
		if _, err := lang.Parse("fuzz.star", []byte(source)); err != nil && len(found) == 0 {
			t.Errorf("nothing found, although %v", err)
		}
	})
}
