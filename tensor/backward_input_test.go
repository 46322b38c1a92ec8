package tensor

import (
	"errors"
	"math"
	"slices"
	"testing"

	"drun/kernel/dtype"
)

// gradsInHalves returns the gradients of the inputs of f, whose result goes through gelu and a sum, by one pass or by two
// halves, of which the first is that of input in.
func gradsInHalves(t *testing.T, f function, shapes [][]int, pos bool, in int) []*Tensor {
	c := NewContext()
	var xs, ys []*Tensor
	for i, shape := range shapes {
		x := floats(c, dtype.Float64, shape, spreadValues(product(shape), i, pos)...)
		check(t, x.SetRequiresGrad(true))
		xs = append(xs, x)
		ys = append(ys, must(Mul(must(BinaryScalar(OpMul, x, Float(0.75), false)), must(BinaryScalar(OpAdd, x, Float(1), false))))) // what leads to a leaf
	}
	y := must(f(ys))
	loss := must(Sum(must(Unary(OpGelu, must(Add(y, y)))), nil, false))
	if in < 0 {
		check(t, loss.Backward(nil, false))
	} else {
		rest, err := loss.BackwardInput(xs[in], nil)
		check(t, err)
		for i, x := range xs {
			if i != in && x.Grad() != nil {
				t.Errorf("the first half computed the gradient of input %d, too", i)
			}
		}
		own := doubles(xs[in].Grad())
		check(t, rest())
		if !slices.Equal(own, doubles(xs[in].Grad())) {
			t.Error("the second half changed the gradient of the first")
		}
		fails(t, loss.Backward(nil, false), "freed by an earlier backward")
	}
	var grads []*Tensor
	for _, x := range xs {
		grads = append(grads, x.Grad())
	}
	return grads
}

func doubles(x *Tensor) (bits []uint64) {
	for _, v := range list(x) {
		bits = append(bits, math.Float64bits(v))
	}
	return bits
}

func TestBackwardInputHasTheBitsOfBackward(t *testing.T) {
	for _, d := range differentiable {
		t.Run(d.name, func(t *testing.T) {
			whole := gradsInHalves(t, d.f, d.shapes, d.pos, -1)
			for in := range d.shapes {
				for i, g := range gradsInHalves(t, d.f, d.shapes, d.pos, in) {
					if (g == nil) != (whole[i] == nil) || g != nil && !slices.Equal(doubles(g), doubles(whole[i])) {
						t.Errorf("first half to input %d: the gradient of input %d differs", in, i)
					}
				}
			}
		})
	}
}

// A hook hears once of each second half that its leaf's gradient is complete, also where first halves of other passes come
// in between.
func TestBackwardInputCountsParts(t *testing.T) {
	c := NewContext()
	x, w := leaf(c, 3), leaf(c, 5)
	heard := 0
	w.OnGradReady(func(*Tensor) error { heard++; return nil })
	var rests []func() error
	for range 2 {
		y := must(Mul(must(Mul(x, w)), w))
		rest, err := y.BackwardInput(x, nil)
		check(t, err)
		rests = append(rests, rest)
		check(t, must(Mul(w, w)).Backward(nil, false))
	}
	if heard != 2 {
		t.Errorf("the passes between complete the gradient %d times, want 2", heard)
	}
	for i, rest := range rests {
		check(t, rest())
		if heard != 3+i {
			t.Errorf("after second half %d: complete %d times, want %d", i, heard, 3+i)
		}
	}
	equal(t, x.Grad(), []int{1}, 2*25)
	equal(t, w.Grad(), []int{1}, 2*(10+30))
}

// What lasts to the end of a pass ends with it.
func TestBackwardInputOfWhatLasts(t *testing.T) {
	c := NewContext()
	x, w := leaf(c, 3), leaf(c, 5)
	began, ended := 0, 0
	mark := c.Mark()
	y := must(BeforeBackward(must(Mul(x, w)), func() error {
		began++
		c.AfterBackward(mark, func() error { ended++; return nil })
		return nil
	}))
	rest, err := must(Sum(y, nil, false)).BackwardInput(x, nil)
	check(t, err)
	check(t, rest())
	if began != 1 || ended != 1 {
		t.Errorf("it began %d times, and ended %d times", began, ended)
	}
	equal(t, x.Grad(), []int{1}, 5)
	equal(t, w.Grad(), []int{1}, 3)
}

// A first half that fails leaves no gradients behind.
func TestBackwardInputFails(t *testing.T) {
	c := NewContext()
	x, w := leaf(c, 3), leaf(c, 5)
	product := must(Mul(x, w))
	out := must(Clone(product.Detach()))
	Function("broken", out, []*Tensor{product}, func(*Tensor) ([]*Tensor, error) { return nil, errors.New("no luck") })
	sum := must(Sum(out, nil, false))
	_, err := sum.BackwardInput(x, nil)
	fails(t, err, "no luck")
	for _, n := range []*node{sum.node, out.node, product.node} {
		if n.grad != nil {
			t.Errorf("%s still has a gradient", n.op)
		}
	}
}
