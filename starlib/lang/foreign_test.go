package lang_test

import (
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"drun/starlib/lang"
)

// Errors that surprise users of Python or PyTorch say what to write instead.
func TestSurprises(t *testing.T) {
	module := func(name string, members ...string) *starlarkstruct.Module {
		m := &starlarkstruct.Module{Name: name, Members: starlark.StringDict{}}
		for _, member := range members {
			m.Members[member] = starlark.None
		}
		return m
	}
	frozen := starlark.NewList(nil)
	frozen.Freeze()
	env := lang.Environment(starlark.StringDict{"tensor": module("tensor", "zeros"), "dist": module("dist", "rank"), "frozen": frozen})
	for _, c := range []struct{ src, want string }{
		{"x = sum(i for i in [1])", "1:11: got for, want ',': there are no generator expressions"},
		{"x = 0 < 1 < 2", "comparisons do not chain"},
		{"x = [1]\nx[0:1] = [2]", `x["1:3"] = v sets those elements`},
		{"a, *b = [1, 2]", "a starred name cannot be assigned to"},
		{"*a, b = [1, 2]", "a starred name cannot be assigned to"},
		{"a = 'x' 'y'", "write + between them"},
		{"a = ('x'\n     'y')", "got string literal"},
		{"set('abc')", "s.elems() gives its characters"},
		{"for c in 'abc': pass", "s.elems() gives its characters"},
		{"f = max\nf(*[1], 2)", "positional argument may not follow *args: put it into the list: f(*(a + [b]))"},
		{"n = 0\ndef f():\n    n += 1\nf()", "local variable n referenced before assignment: a function that assigns a name has its own variable"},
		{"frozen.append(1)", "cannot append to frozen list: what the top level makes"},
		{"'{:.3f}'.format(1.0)", `write "%.3f" % x`},
		{"x = f'{1}'", `"%.3f" % x`},
		{"d = {}\nd.a = 1", `an entry of a dict is d["name"]`},
		{"get_world_size()", "undefined: get_world_size: it is dist.world_size()"},
		{"tensor.utils", "has no .utils field or method: gradients are clipped by optim.clip_grad_norm"},
		{"[].add(1)", "list has no .add field or method|"},
		{"dist.get_rank()", "has no .get_rank field or method: it is dist.rank()"},
		{"TCPStore()", "it is dist.store"},
		{"torch.zeros(3)", "undefined: torch: it is tensor.zeros here"},
		{"torch.tensor(3)", "undefined: torch: it is tensor here"},
		{"x = torch", "undefined: torch: tensors are in tensor"},
		{"np.float99(3)", "undefined: np: tensors are in tensor"},
		{"tensor.amin(1)", "module has no .amin field or method"},
		{"torch.rsqrt(1)", "undefined: torch: tensors are in tensor, layers and their functions in nn, optimizers in optim"},
		// A missing attribute of another type gets no hint about PyTorch.
		{"[].amin()", "list has no .amin field or method|"},
		{"amin(1)", "undefined: amin (did you mean min?)|"},
		// A recipe's own message stays as it is.
		{"fail('cannot append to frozen list')", "fail: cannot append to frozen list|"},
		{"x = (1\nfor i in []: pass", "got for, want ')'|"},
	} {
		file, err := lang.Parse("x.star", []byte(c.src))
		if err == nil {
			var program *starlark.Program
			if program, err = file.Compile(env); err == nil {
				thread := new(starlark.Thread)
				lang.Watch(thread)
				if _, err = program.Init(thread, env); err != nil {
					err = lang.Explain(thread, err)
					err = lang.Explain(thread, err) // twice is no more than once
				}
			}
		}
		if want, whole := strings.CutSuffix(c.want, "|"); err == nil || !strings.Contains(err.Error(), want) || whole && !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), ": a text has") > 1 {
			t.Errorf("%q: got %v, want %s", c.src, err, c.want)
		}
	}
}
