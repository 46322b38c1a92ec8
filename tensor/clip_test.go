package tensor

import (
	"testing"

	"drun/kernel/dtype"
)

func TestClipGradNorm(t *testing.T) {
	c := NewContext()
	a, b := leaf(c, 1, 2, 3, 4), leaf(c, -1)
	check(t, a.SetGrad(floats(c, dtype.Float32, []int{4}, 1, 2, 2, 0)))
	if n := must(ClipGradNorm([]*Tensor{a, b}, 10)); n != 3 {
		t.Fatalf("norm %v, want 3", n)
	}
	equal(t, a.Grad(), []int{4}, 1, 2, 2, 0)
	must(ClipGradNorm([]*Tensor{a, b}, 1.5))
	near(t, a.Grad(), 1e-6, []int{4}, 0.5, 1, 1, 0)
	fail[float64](t, "positive")(ClipGradNorm(nil, 0))
}
