package tensor

import (
	"fmt"
	"slices"
	"testing"

	"drun/kernel/dtype"
)

// Gradients that are added where others wait, or written where a leaf's belongs, have the bits of those that come one by
// one, as they do for who watches.
func TestPlacesChangeNoBits(t *testing.T) {
	type made struct {
		ps   []*Tensor
		loss func() *Tensor
	}
	tied := func(rows int, shape ...int) func(*Context, *Generator) made {
		return func(c *Context, g *Generator) made {
			w, b := param(g, c, 67, 33), param(g, c, 33)
			x := must(g.Randn(c, append(shape, rows, 33), dtype.Float32))
			ix := must(g.RandInt(c, 0, 67, append(shape, rows), dtype.Int64))
			return made{[]*Tensor{w, b}, func() *Tensor {
				h := must(Add(must(Mul(x, b)), must(Embedding(w, ix))))
				return square(must(MatMul(h, must(Transpose(w, 0, 1)))))
			}}
		}
	}
	// attended is attention to parts of one product; more is what else is done with them, before it.
	attended := func(causal bool, parts [3]int, of int, more func(whole *Tensor, parts [3]*Tensor) *Tensor) func(*Context, *Generator) made {
		return func(c *Context, g *Generator) made {
			const batch, length, heads, width = 2, 70, 3, 7
			w, x := param(g, c, of*heads*width, 9), param(g, c, batch, length, 9)
			return made{[]*Tensor{w, x}, func() *Tensor {
				all := must(View(must(Linear(x, w, nil)), []int{batch, length, of, heads, width}))
				all = must(Permute(all, []int{2, 0, 3, 1, 4}))
				var t [3]*Tensor
				for i := range t {
					t[i] = must(Select(all, 0, parts[i]))
				}
				if more == nil {
					return square(must(Attention(t[0], t[1], t[2], causal)))
				}
				extra := more(all, t)
				return must(Add(square(must(Attention(t[0], t[1], t[2], causal))), extra))
			}}
		}
	}
	for name, build := range map[string]func(*Context, *Generator) made{
		"parts of a product":               attended(true, [3]int{0, 1, 2}, 3, nil),
		"parts of a product, not causal":   attended(false, [3]int{0, 1, 2}, 3, nil),
		"parts of a product, other order":  attended(true, [3]int{2, 0, 1}, 3, nil),
		"parts of a product, not all":      attended(true, [3]int{4, 1, 3}, 5, nil),
		"parts of a product, one twice":    attended(true, [3]int{0, 1, 1}, 3, nil),
		"parts of a product, one thrice":   attended(false, [3]int{1, 1, 1}, 3, nil),
		"parts of a product, used besides": attended(true, [3]int{0, 1, 2}, 3, func(_ *Tensor, parts [3]*Tensor) *Tensor { return square(parts[1]) }),
		"parts and the whole": attended(true, [3]int{0, 1, 2}, 3, func(whole *Tensor, _ [3]*Tensor) *Tensor {
			return must(Add(square(whole), must(Sum(must(Unary(OpTanh, whole)), nil, false))))
		}),
		"norms beside what they norm": func(c *Context, g *Generator) made {
			w, v, b, x := param(g, c, 37), param(g, c, 37), param(g, c, 37), param(g, c, 9, 37)
			return made{[]*Tensor{w, v, b, x}, func() *Tensor {
				h := must(Unary(OpTanh, x))
				for range 2 {
					h = must(Add(h, must(Unary(OpGelu, must(LayerNorm(h, w, b, 1, 1e-5))))))
					h = must(Add(must(RMSNorm(h, v, 1e-5)), h))
				}
				return square(h)
			}}
		},
		"one gradient for a norm and what it norms": func(c *Context, g *Generator) made {
			w, x := param(g, c, 5), param(g, c, 4, 5)
			return made{[]*Tensor{w, x}, func() *Tensor {
				h := must(Unary(OpTanh, x))
				return must(Sum(must(Add(h, must(LayerNorm(h, w, nil, 1, 1e-5)))), nil, false))
			}}
		},
		"tied weights":                       tied(40),
		"tied weights, sequences":            tied(20, 3),
		"tied weights, more than a block":    tied(300),
		"tied weights, sequences of a block": tied(128, 2),
		"a leaf turned twice": func(c *Context, g *Generator) made {
			w, x := param(g, c, 7, 7), must(g.Randn(c, []int{5, 7}, dtype.Float32))
			return made{[]*Tensor{w}, func() *Tensor {
				h := must(MatMul(x, must(Transpose(w, 0, 1))))
				h = must(MatMul(h, must(Transpose(w, 0, 0))))
				turned := must(Transpose(w, 1, 0))
				return square(must(MatMul(must(MatMul(h, turned)), turned)))
			}}
		},
		"others between a leaf and its product": func(c *Context, g *Generator) made {
			w, x := param(g, c, 11, 6), must(g.Randn(c, []int{5, 6}, dtype.Float32))
			return made{[]*Tensor{w}, func() *Tensor {
				turned := must(Transpose(w, 0, 1))
				h := must(Add(x, must(Mean(must(Mul(w, w)), []int{0}, false))))
				h = must(Mul(h, must(Mean(w, []int{0}, false))))
				return square(must(MatMul(h, turned)))
			}}
		},
	} {
		for _, flat := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", optimizer ", flat), func(t *testing.T) {
				run := func(watched bool) (bits []uint32, calls int) {
					c := NewContext()
					if watched {
						c.Watch = func(string, *Tensor, []*Tensor) {}
					}
					m := build(c, NewGenerator(4, 0))
					if flat {
						must(NewFlat(m.ps))
					}
					m.ps[0].OnGradReady(func(p *Tensor) error {
						calls++
						bits = append(bits, bitsOf(p.Grad())...)
						return nil
					})
					for range 3 { // onto the last pass's, too
						check(t, m.loss().Backward(nil, false))
						for _, p := range m.ps {
							bits = append(bits, bitsOf(p.Grad())...)
						}
					}
					return bits, calls
				}
				want, often := run(true)
				got, calls := run(false)
				if !slices.Equal(got, want) || calls != 3 || often != 3 {
					t.Errorf("other bits than one by one; the hook was called %d and %d times in three passes", calls, often)
				}
			})
		}
	}
}

// A transpose whose leaf's gradient was written by the product is over with the pass, as any other view.
func TestTurnedGraphIsFreed(t *testing.T) {
	c, g := NewContext(), NewGenerator(4, 0)
	w, x := param(g, c, 3, 5), must(g.Randn(c, []int{2, 5}, dtype.Float32))
	must(NewFlat([]*Tensor{w}))
	turned := must(Transpose(w, 0, 1))
	y := square(must(MatMul(x, turned)))
	check(t, y.Backward(nil, true))
	once := list(w.Grad())
	check(t, y.Backward(nil, false))
	for i, v := range list(w.Grad()) {
		if v != 2*once[i] {
			t.Fatalf("twice the pass gives %v, once %v", v, once[i])
		}
	}
	if !turned.node.freed {
		t.Error("the transpose is still there")
	}
	fails(t, square(turned).Backward(nil, false), "the graph was freed")
}

// Whoever watches sees what a step of a backward pass was given, and not its result in the same memory.
func TestWatchedOperands(t *testing.T) {
	c := NewContext()
	x := must(Zeros(c, []int{4}, dtype.Float32))
	x.SetRequiresGrad(true)
	seen := ""
	c.Watch = func(op string, out *Tensor, inputs []*Tensor) {
		if what, given := NotFinite(op, out, inputs); what != "" {
			seen += fmt.Sprint(op, " ", what, " ", given, ", ")
		}
	}
	check(t, square(must(Unary(OpSqrt, x))).Backward(nil, false))
	if want := "backward of sqrt NaN false, "; seen != want {
		t.Errorf("seen: %s, want %s", seen, want)
	}
}
