package tensor

import (
	"os"
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

// The tests of this package run with kept memory spoilt: a result that was read from it is NaN, or wrong.
func TestMain(m *testing.M) {
	spoil = true
	os.Exit(m.Run())
}

// The nodes of tensors that nobody has serve again once nothing leads to them, and no earlier.
func TestNodesAreUsedAgain(t *testing.T) {
	t.Setenv("DRUN_PLAN", "")
	c := NewContext()
	leaf := func() *Tensor {
		x := must(Ones(c, []int{3}, dtype.Float32))
		check(t, x.SetRequiresGrad(true))
		return x
	}
	a := leaf()
	h := must(Unary(OpTanh, a))
	first, second := must(Sum(must(Unary(OpExp, h)), nil, false)), must(Sum(h, nil, false))
	Discard(h)
	check(t, first.Backward(nil, false))
	b := leaf()
	other := must(Sum(must(Unary(OpExp, b)), nil, false))
	if err := second.Backward(nil, false); err == nil || !strings.Contains(err.Error(), "the graph was freed") {
		t.Errorf("a second way into a graph that was freed: %v", err)
	}
	check(t, other.Backward(nil, false))
	if got, want := b.Grad().String(), a.Grad().String(); got == want {
		t.Errorf("both leaves have the gradient %s", got)
	}

	x := leaf()
	h = must(Unary(OpTanh, x))
	node := h.node
	y := must(Sum(must(Unary(OpExp, h)), nil, false))
	Discard(h)
	check(t, y.Backward(nil, false))
	if !slices.Contains(c.spares.nodes, node) {
		t.Error("the node of a tensor that was discarded is not kept")
	}
	if slices.Contains(c.spares.nodes, y.node) {
		t.Error("the node of a tensor that the program has is kept")
	}
	if err := y.Backward(nil, false); err == nil || !strings.Contains(err.Error(), "the graph was freed") {
		t.Errorf("a second pass: %v", err)
	}
}
