package tensor

import (
	"testing"

	"drun/kernel/dtype"
)

func TestClipGrads(t *testing.T) {
	c := NewContext()
	a, b := leaf(c, 1, 2, 3, 4), leaf(c, -1)
	check(t, a.SetGrad(floats(c, dtype.Float32, []int{4}, 1, 2, 2, 0)))
	if square := must(GradSquareSum([]*Tensor{a, b})); square != 9 {
		t.Fatalf("the sum of squares is %v, want 9", square)
	}
	check(t, ClipGrads([]*Tensor{a, b}, 3, 10))
	equal(t, a.Grad(), []int{4}, 1, 2, 2, 0)
	check(t, ClipGrads([]*Tensor{a, b}, 3, 1.5))
	near(t, a.Grad(), 1e-6, []int{4}, 0.5, 1, 1, 0)
	if err := ClipGrads(nil, 1, 0); err == nil {
		t.Error("no norm is clipped to 0")
	}
}
