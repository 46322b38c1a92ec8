package tensor

import (
	"testing"

	"drun/kernel/dtype"
)

func leaf(c *Context, values ...float64) *Tensor {
	x := floats(c, dtype.Float32, []int{len(values)}, values...)
	must(0, x.SetRequiresGrad(true))
	return x
}

func TestBackwardAccumulatesAndFrees(t *testing.T) {
	c := NewContext()
	x := leaf(c, 1, 2)
	loss := square(x)
	check(t, loss.Backward(nil, true))
	equal(t, x.Grad(), []int{2}, 2, 4)
	check(t, loss.Backward(nil, false))
	equal(t, x.Grad(), []int{2}, 4, 8)
	fails(t, loss.Backward(nil, false), "freed by an earlier backward", "retain_graph")
}

func TestBackwardNeedsOneElement(t *testing.T) {
	c := NewContext()
	x := leaf(c, 1, 2)
	y := must(Mul(x, x))
	fails(t, y.Backward(nil, false), "one element", "(2,)")
	fails(t, y.Backward(floats(c, dtype.Float32, []int{3}, 1, 1, 1), false), "(3,)", "(2,)")
	check(t, y.Backward(floats(c, dtype.Float32, []int{2}, 1, 10), false))
	equal(t, x.Grad(), []int{2}, 2, 40)
	fails(t, floats(c, dtype.Float32, nil, 1).Backward(nil, false), "does not require a gradient")
}

// Two paths into one leaf, and a node with two consumers.
func TestBackwardDiamond(t *testing.T) {
	c := NewContext()
	x := leaf(c, 3)
	a := must(Mul(x, x))
	b := must(Add(must(Mul(a, x)), must(Mul(a, a)))) // x³ + x⁴
	check(t, must(Sum(b, nil, false)).Backward(nil, false))
	equal(t, x.Grad(), []int{1}, 3*9+4*27)
}

func TestNoGrad(t *testing.T) {
	c, other := NewContext(), NewContext()
	x, y := leaf(c, 1), leaf(other, 1)
	c.BeginNoGrad()
	if must(Mul(x, x)).RequiresGrad() {
		t.Error("recorded under no_grad")
	}
	if !must(Mul(y, y)).RequiresGrad() {
		t.Error("no_grad of one context stopped another")
	}
	c.EndNoGrad()
	if !must(Mul(x, x)).RequiresGrad() {
		t.Error("not recorded after no_grad")
	}
	if x.Detach().RequiresGrad() || !SharesStorage(x, x.Detach()) {
		t.Error("detach must share memory and not require a gradient")
	}
}

func TestInPlaceRules(t *testing.T) {
	c := NewContext()
	x := leaf(c, 1, 2)
	one := floats(c, dtype.Float32, nil, 1)
	fails(t, BinaryInPlace(OpAdd, x, one), "add_", "a leaf that requires grad", "no_grad")
	fails(t, x.Fill(Int(0)), "fill_", "a leaf that requires grad")
	c.BeginNoGrad()
	check(t, BinaryInPlace(OpAdd, x, one))
	c.EndNoGrad()
	equal(t, x, []int{2}, 2, 3)

	y := must(Unary(OpExp, x)) // saves its result
	check(t, BinaryInPlace(OpAdd, y, one))
	fails(t, must(Sum(y, nil, false)).Backward(nil, false), "modified in place", "exp", "clone()")

	y = must(Unary(OpTanh, x))
	check(t, y.Fill(Int(0)))
	fails(t, must(Sum(y, nil, false)).Backward(nil, false), "modified in place", "tanh")
	y = must(Mul(x, floats(c, dtype.Float32, nil, 2)))
	check(t, y.Fill(Int(0)))
	check(t, must(Sum(y, nil, false)).Backward(nil, false))
	equal(t, x.Grad(), []int{2}, 0, 0)

	y = must(Mul(x, floats(c, dtype.Float32, nil, 2)))
	v := must(Select(y, 0, 0))
	fails(t, BinaryInPlace(OpMul, v, one), "mul_", "is a view")
	check(t, BinaryInPlace(OpAdd, y, one))
	fails(t, must(Mul(v, v)).Backward(nil, false), "view that was taken before")

	wide := must(Expand(floats(c, dtype.Float32, []int{1}, 1), []int{3}))
	fails(t, wide.Fill(Int(2)), "expanded", "clone()")
	n := ints(c, []int{2}, 1, 2)
	fails(t, BinaryInPlace(OpAdd, n, floats(c, dtype.Float32, []int{2}, 1, 2)), "add_", "float32", "int64")
	fails(t, BinaryInPlace(OpDiv, n, n), "div_", "int64")
	fails(t, BinaryInPlace(OpAdd, floats(c, dtype.Float32, nil, 1), floats(c, dtype.Float32, []int{2}, 1, 2)), "add_", "(2,)", "()")
	n.Freeze()
	fails(t, n.Fill(Int(1)), "frozen", "main()")
	fails(t, must(View(n, []int{2, 1})).Fill(Int(1)), "frozen")
}

// The parts of a tensor assigned to no longer reach its old value.
func TestAssignmentGradient(t *testing.T) {
	c := NewContext()
	x, v := leaf(c, 1, 2, 3), leaf(c, 10)
	y := must(Mul(x, x))
	check(t, SetIndex(y, must(ParseIndex("1")), must(Select(v, 0, 0))))
	check(t, square(y).Backward(nil, false))
	equal(t, x.Grad(), []int{3}, 4, 0, 108)
	equal(t, v.Grad(), []int{1}, 20)
}

func TestOverlappingCopy(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float32, []int{4}, 1, 2, 3, 4)
	check(t, CopyInto(must(Narrow(x, 0, 1, 3)), must(Narrow(x, 0, 0, 3))))
	equal(t, x, []int{4}, 1, 1, 2, 3)
}

func TestFunction(t *testing.T) {
	c := NewContext()
	x := leaf(c, 1, 2)
	y := must(Clone(x.Detach()))
	Function("triple", y, []*Tensor{x}, func(g *Tensor) ([]*Tensor, error) {
		r, err := BinaryScalar(OpMul, g, Int(3), false)
		return []*Tensor{r}, err
	})
	check(t, must(Sum(y, nil, false)).Backward(nil, false))
	equal(t, x.Grad(), []int{2}, 3, 3)
}

func TestGradReady(t *testing.T) {
	c := NewContext()
	x, y := leaf(c, 1), leaf(c, 2)
	var order []float64
	note := func(p *Tensor) error { order = append(order, list(p.Grad())...); return nil }
	x.OnGradReady(note)
	y.OnGradReady(note)
	z := must(Add(must(Mul(x, x)), must(Mul(x, y)))) // x gets three parts, y one
	check(t, must(Sum(z, nil, false)).Backward(nil, false))
	if len(order) != 2 || order[0] != 1 || order[1] != 4 {
		t.Fatalf("hooks saw %v, want y's 1 and then x's complete 4", order)
	}
}

func TestGradAssignment(t *testing.T) {
	c := NewContext()
	x := leaf(c, 1, 2)
	fails(t, x.SetGrad(floats(c, dtype.Float32, []int{1}, 1)), "(1,)", "(2,)")
	fails(t, x.SetGrad(ints(c, []int{2}, 1, 2)), "int64", "float32")
	check(t, x.SetGrad(floats(c, dtype.Float32, []int{2}, 5, 6)))
	check(t, must(Sum(x, nil, false)).Backward(nil, false))
	equal(t, x.Grad(), []int{2}, 6, 7)
	fails(t, ints(c, []int{1}, 1).SetRequiresGrad(true), "float32 and float64", "int64")
	fails(t, must(Mul(x, x)).SetRequiresGrad(false), "leaf")
}

// Gradients in flight go back to the pool; those of leaves, seeds and
// callers' functions must not, and no two leaves may share memory.
func TestGradientMemory(t *testing.T) {
	const n = 1 << 16 // large enough for the pool
	c := NewContext()
	big := func() *Tensor {
		x := must(Ones(c, []int{n}, dtype.Float32))
		check(t, x.SetRequiresGrad(true))
		return x
	}
	a, b, d := big(), big(), big()
	seed := must(Ones(c, []int{n}, dtype.Float32))
	mine := must(Full(c, []int{n}, Int(5), dtype.Float32))
	y := must(Add(must(Add(a, b)), must(Mul(d, d))))
	z := must(Clone(y.Detach()))
	Function("keep", z, []*Tensor{y}, func(g *Tensor) ([]*Tensor, error) { return []*Tensor{mine}, nil })
	check(t, z.Backward(seed, false))
	for range 3 { // whatever was given back is overwritten
		must(Full(c, []int{n}, Int(-1), dtype.Float32))
	}
	for _, tc := range []struct {
		x    *Tensor
		want float64
	}{{seed, 1}, {mine, 5}, {a.Grad(), 5}, {b.Grad(), 5}, {d.Grad(), 10}} {
		if lo, hi := scalar(must(Min(tc.x))), scalar(must(Max(tc.x))); lo != tc.want || hi != tc.want {
			t.Errorf("got %v to %v, want %v", lo, hi, tc.want)
		}
	}
	if SharesStorage(a.Grad(), b.Grad()) || SharesStorage(a.Grad(), mine) {
		t.Error("two gradients share memory")
	}
}

// A gradient that nobody has looked at is given back when it is cleared; one that somebody has stays.
func TestClearedGradient(t *testing.T) {
	const n = 1 << 16
	c := NewContext()
	x := must(Ones(c, []int{n}, dtype.Float32))
	check(t, x.SetRequiresGrad(true))
	for _, f := range []func(x *Tensor) (*Tensor, error){
		func(x *Tensor) (*Tensor, error) { return Mul(x, x) },          // the gradient as it arrives
		func(x *Tensor) (*Tensor, error) { return Sum(x, nil, false) }, // spread from one number
	} {
		seen := must(f(x))
		check(t, must(Sum(seen, nil, false)).Backward(nil, false))
		kept := x.Grad()
		check(t, x.SetGrad(nil))
		check(t, must(Sum(must(f(x)), nil, false)).Backward(nil, false))
		lo := scalar(must(Min(kept)))
		before := Memory().InUse
		check(t, x.SetGrad(nil))
		if after := Memory().InUse; after != before-4*n {
			t.Errorf("clearing a gradient of %d bytes gave back %d", 4*n, before-after)
		}
		for range 3 { // what was given back is overwritten
			must(Full(c, []int{n}, Int(-1), dtype.Float32))
		}
		if again := scalar(must(Min(kept))); again != lo || again < 1 {
			t.Errorf("a gradient that is in use became %v", again)
		}
	}
}

// A detached tensor shares its values with the tensor, not its graph: values with
// gradients may go into it, and get theirs.
func TestCopyIntoDetached(t *testing.T) {
	c := NewContext()
	w, x := leaf(c, 1, 1), leaf(c, 3, 4)
	d := w.Detach()
	check(t, CopyInto(d, must(Mul(x, x))))
	equal(t, w, []int{2}, 9, 16)
	check(t, square(d).Backward(nil, false))
	equal(t, x.grad, []int{2}, 4*27, 4*64)
	if w.grad != nil {
		t.Fatalf("the tensor itself got the gradient %v", w.grad)
	}
}
