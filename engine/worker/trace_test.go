package worker

import (
	"testing"

	"drun/engine/debug"
	"drun/starlib"
	"drun/starlib/starlibtest"
)

// Values that differ in anything that a recipe can see have other digests, and equal ones the same, however they lie in memory.
func TestDigestOfValues(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	digest := func(expr string) uint64 {
		t.Helper()
		globals, err := r.Exec("x.star", "loop = []\nloop.append(loop)\nf = lambda: 1\nv = "+expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		return debug.Digest(globals["v"])
	}
	seen := map[uint64]string{}
	for _, expr := range []string{
		"tensor.zeros(6)", "tensor.zeros(2, 3)", "tensor.zeros(3, 2)", "tensor.zeros(6, dtype = 'int32')", "tensor.zeros(3, dtype = 'int64')", "-tensor.zeros(6)",
		"tensor([1.0, 2.0])", "tensor([2.0, 1.0])", "1", "1.0", "'1'", "True", "None", "[1]", "(1,)", "[[1]]", "[]", "()", "{}", "{'a': 1}", "struct(a = 1)",
		"[f]", "(f,)", "[f, 1]", "[f, 2]", "f", "[tensor.zeros(2, 3), f]", "[tensor.zeros(3, 2), f]", "loop", "nn.linear(2, 3)", "nn.linear(3, 2)", "optim.sgd([nn.parameter(tensor.zeros(1))], 0.1)",
	} {
		d := digest(expr)
		if other, is := seen[d]; is {
			t.Errorf("%s and %s have the same digest", expr, other)
		}
		seen[d] = expr
	}
	for a, b := range map[string]string{"tensor([[1.0, 3.0], [2.0, 4.0]]).T": "tensor([[1.0, 2.0], [3.0, 4.0]])", "tensor.arange(6)[::2]": "tensor([0, 2, 4])", "[1] + [2]": "[1, 2]"} {
		if digest(a) != digest(b) {
			t.Errorf("%s and %s have different digests", a, b)
		}
	}
}
