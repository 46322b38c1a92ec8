package tensor_test

import (
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

func TestRecipes(t *testing.T) { starlibtest.Chunks(t, "testdata/*.star") }

// What is made at top level is frozen: it can be read and cloned, not changed.
func TestTopLevel(t *testing.T) {
	for _, c := range []struct{ top, main, want string }{
		{"t = tensor([1.0])", "print(t.clone().add_(1).item())", ""},
		{"t = tensor([1.0])", "t.add_(1)", "Tensor.add_: the tensor was made at top level and is frozen"},
		{"t = tensor([1.0])", "t[0] = 2", "frozen"},
		{"t = tensor([1.0])", "t.requires_grad = True", "made at top level and is frozen"},
		{"t = [tensor.zeros(2)]", "t[0][1].fill_(2)", "frozen"},
		{"t = tensor.rand(2)", "pass", "tensor.rand cannot be called at top level"},
		{"t = tensor.no_grad([1])", "pass", "tensor.no_grad cannot be called at top level"},
	} {
		r := starlibtest.New(t, ".", starlib.Rank{}, nil)
		err := r.Main("r.star", c.top+"\ndef main():\n    "+c.main+"\n")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s; %s: got error %v, want %q", c.top, c.main, err, c.want)
		}
	}
}

// Recording goes on after a loop under no_grad that an error ended.
func TestNoGradEndsWithAnError(t *testing.T) {
	r := starlibtest.New(t, ".", starlib.Rank{}, nil)
	_, err := r.Exec("r.star", "def f():\n    for i in tensor.no_grad([1]):\n        fail('x')\nw = tensor([1.0])\nw.requires_grad = True\nf()")
	if err == nil {
		t.Fatal("no error")
	}
	globals, err := r.Exec("r.star", "w = tensor([1.0])\nw.requires_grad = True\nrecorded = (w * 2).requires_grad")
	if err != nil || globals["recorded"] != starlark.True {
		t.Errorf("recorded: %v, %v", globals["recorded"], err)
	}
}

// The cost of one operation on 16 elements, from Starlark.
func BenchmarkOperation(b *testing.B) {
	for name, line := range map[string]string{
		"empty loop": "pass", "t + t": "t + t", "t * 2": "t * 2.0", "t.sum()": "t.sum()", "t[3]": "t[3]",
		"w * w": "w * w", "t.numel()": "t.numel()", "t.shape": "t.shape", "t.relu()": "t.relu()", "backward": "(w * w).sum().backward()",
	} {
		b.Run(name, func(b *testing.B) {
			r := starlibtest.New(b, ".", starlib.Rank{}, nil)
			globals, err := r.Exec("b.star", "t = tensor.ones(16)\nw = tensor.ones(16)\nw.requires_grad = True\ndef f(t, w, n):\n    for _ in range(n):\n        "+line+"\n")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := starlark.Call(r.Thread, globals["f"], starlark.Tuple{globals["t"], globals["w"], starlark.MakeInt(b.N)}, nil); err != nil {
				b.Fatal(err)
			}
		})
	}
}
