package tensor

import (
	"testing"

	"drun/kernel/dtype"
)

// placed compares the gradients that loss leaves in ps with and without an
// optimizer that says where they go.
func placed(t *testing.T, build func(c *Context, g *Generator) (ps []*Tensor, loss func() *Tensor)) {
	t.Helper()
	run := func(flat bool, times int) [][]float64 {
		c := NewContext()
		ps, loss := build(c, NewGenerator(2, 0))
		if flat {
			must(NewFlat(ps))
		}
		for range times {
			check(t, loss().Backward(nil, false))
		}
		var out [][]float64
		for _, p := range ps {
			if flat && p.Grad() != p.leaf.slot {
				t.Error("a gradient is not where the optimizer wants it")
			}
			out = append(out, list(p.Grad()))
		}
		return out
	}
	for times := 1; times <= 2; times++ {
		want, got := run(false, times), run(true, times)
		for i := range want {
			near(t, floats(NewContext(), dtype.Float64, []int{len(got[i])}, got[i]...), 1e-4, []int{len(want[i])}, want[i]...)
		}
	}
}

func param(g *Generator, c *Context, shape ...int) *Tensor {
	p := must(g.Randn(c, shape, dtype.Float32))
	must(0, p.SetRequiresGrad(true))
	return p
}

func square(t *Tensor) *Tensor { return must(Sum(must(Mul(t, t)), nil, false)) }

func TestGradientsGoToTheirPlace(t *testing.T) {
	for name, build := range map[string]func(c *Context, g *Generator) ([]*Tensor, func() *Tensor){
		"linear, weight used twice": func(c *Context, g *Generator) ([]*Tensor, func() *Tensor) {
			w, b, x := param(g, c, 5, 5), param(g, c, 5), must(g.Randn(c, []int{3, 5}, dtype.Float32))
			return []*Tensor{w, b}, func() *Tensor { return square(must(Linear(must(Linear(x, w, b)), w, b))) }
		},
		"norm, weight and bias the same": func(c *Context, g *Generator) ([]*Tensor, func() *Tensor) {
			w, x := param(g, c, 5), must(g.Randn(c, []int{3, 5}, dtype.Float32))
			return []*Tensor{w}, func() *Tensor { return square(must(LayerNorm(x, w, w, 1, 1e-5))) }
		},
		"embedding, and the table itself": func(c *Context, g *Generator) ([]*Tensor, func() *Tensor) {
			w, ix := param(g, c, 4, 3), ints(c, []int{5}, 0, 3, 3, 1, 0)
			return []*Tensor{w}, func() *Tensor { return square(must(MatMul(must(Embedding(w, ix)), must(Transpose(w, 0, 1))))) }
		},
		"convolution": func(c *Context, g *Generator) ([]*Tensor, func() *Tensor) {
			w, b, x := param(g, c, 4, 2, 3, 3), param(g, c, 4), must(g.Randn(c, []int{2, 2, 5, 6}, dtype.Float32))
			return []*Tensor{w, b}, func() *Tensor { return square(must(conv2d(x, w, b, [2]int{1, 2}, [2]int{1, 1}))) }
		},
	} {
		t.Run(name, func(t *testing.T) { placed(t, build) })
	}
}

// A gradient that several operations get must not be written over by one.
func TestSharedGradientsStay(t *testing.T) {
	c := NewContext()
	x := leaf(c, -1, 2)
	a := must(Mul(x, floats(c, dtype.Float32, nil, 3)))
	b := must(Unary(OpNeg, x))
	y := must(Add(must(Unary(OpRelu, a)), must(Unary(OpRelu, b)))) // one gradient for both
	seed := floats(c, dtype.Float32, []int{2}, 10, 100)
	check(t, y.Backward(seed, true))
	equal(t, x.Grad(), []int{2}, -10, 300)
	equal(t, seed, []int{2}, 10, 100)
	check(t, y.Backward(seed, false))
	equal(t, x.Grad(), []int{2}, -20, 600)

	// A caller's own backward function may keep the gradient it gets.
	var kept *Tensor
	x = leaf(c, 1, 2)
	z := x.Detach()
	Function("own", z, []*Tensor{x}, func(g *Tensor) ([]*Tensor, error) {
		kept = g
		return []*Tensor{g}, nil
	})
	check(t, must(Sum(must(Unary(OpSquare, must(Unary(OpExp, z)))), nil, false)).Backward(nil, false))
	near(t, kept, 1e-3, []int{2}, 2*7.3890561, 2*54.59815)
}

// Parts of one tensor, taken through views, whose gradients meet.
func TestPartsAddUp(t *testing.T) {
	c := NewContext()
	x := must(FromFloats(c, []float64{1, 2, 3, 4, 5, 6}, []int{2, 3}, dtype.Float32))
	check(t, x.SetRequiresGrad(true))
	turned := must(Permute(must(BinaryScalar(OpMul, x, Float(1), false)), []int{1, 0}))
	first, second := must(Select(turned, 0, 0)), must(Narrow(turned, 0, 0, 2)) // they overlap
	loss := must(Add(square(first), must(Add(square(second), must(Sum(turned, nil, false))))))
	check(t, loss.Backward(nil, false))
	equal(t, x.Grad(), []int{2, 3}, 1+4, 1+4, 1, 1+16, 1+10, 1)
}

func TestReadyHookSeesPlacedGradient(t *testing.T) {
	c, g := NewContext(), NewGenerator(1, 0)
	w, x := param(g, c, 3, 3), must(g.Randn(c, []int{2, 3}, dtype.Float32))
	must(NewFlat([]*Tensor{w}))
	calls, sum := 0, []float64(nil)
	w.OnGradReady(func(p *Tensor) error {
		calls++
		sum = list(p.Grad())
		return nil
	})
	check(t, square(must(Linear(must(Linear(x, w, nil)), w, nil))).Backward(nil, false))
	if calls != 1 {
		t.Fatalf("the hook was called %d times", calls)
	}
	equal(t, w.Grad(), []int{3, 3}, sum...)
}
