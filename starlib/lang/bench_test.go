package lang_test

import (
	"fmt"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/starlib/lang"
)

// Each case runs a loop with and without the rewriting. The difference in time, divided by the iterations, is the cost
// of a rewritten expression.
func BenchmarkRewritten(b *testing.B) {
	const passes = 10_000
	for _, c := range []struct{ name, setup, body string }{
		{"empty", "x, y = 1, 2", "pass"},
		{"compare-int", "x, y = 1, 2", "x < y"},
		{"compare-float", "x, y = 1.5, 2.5", "x < y"},
		{"compare-mixed", "x, y = 1.5, 2", "x < y"},
		{"compare-string", `x, y = "ab", "cd"`, "x == y"},
		{"compare-list", "x, y = [1, 2], [1, 3]", "x == y"},
		{"if-compare", "x, y = 1.5, 2.5", "if x > y: pass"},
		{"if-name", "x, y = True, 0", "if x: pass"},
		{"modulo", "x, y = 7, 3", "x % y"},
		{"format", `x, y = "epoch %d", 3`, "x % y"},
	} {
		src := fmt.Sprintf("def main():\n    %s\n    for i in range(%d):\n        %s\n", c.setup, passes, c.body)
		b.Run(c.name+"/bare", func(b *testing.B) {
			options := &syntax.FileOptions{While: true}
			_, prog, err := starlark.SourceProgramOptions(options, "b.star", src, starlark.StringDict{}.Has)
			if err != nil {
				b.Fatal(err)
			}
			benchmark(b, prog, nil, passes)
		})
		b.Run(c.name+"/drun", func(b *testing.B) {
			env := lang.Environment(nil)
			file, err := lang.Parse("b.star", []byte(src))
			if err != nil {
				b.Fatal(err)
			}
			prog, err := file.Compile(env)
			if err != nil {
				b.Fatal(err)
			}
			benchmark(b, prog, env, passes)
		})
	}
}

func benchmark(b *testing.B, prog *starlark.Program, env starlark.StringDict, passes int) {
	thread := new(starlark.Thread)
	lang.Watch(thread)
	globals, err := prog.Init(thread, env)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for b.Loop() {
		if _, err := starlark.Call(thread, globals["main"], nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*passes), "ns/pass")
}
