package tensor

import (
	"math"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

// leavesOf makes leaves for an operation's inputs.
func leavesOf(t *testing.T, c *Context, pos bool, shapes [][]int) (leaves []*Tensor) {
	for i, shape := range shapes {
		leaf := floats(c, dtype.Float64, shape, spreadValues(product(shape), i, pos)...)
		check(t, leaf.SetRequiresGrad(true))
		leaves = append(leaves, leaf)
	}
	return leaves
}

// weighted is the sum of tensors, each element with a weight of its own.
func weighted(ts []*Tensor, salt int) *Tensor {
	var sum *Tensor
	for i, y := range ts {
		if y == nil || !y.requiresGrad {
			continue
		}
		w := floats(y.ctx, dtype.Float64, y.shape, spreadValues(y.n, salt+i, false)...)
		part := must(Sum(must(Mul(y, w)), nil, false))
		if sum == nil {
			sum = part
		} else {
			sum = must(Add(sum, part))
		}
	}
	return sum
}

// Grad has the bits of Backward, and with Create those of another way to the same numbers; gradients of gradients are the
// finite differences of gradients.
func TestGradientsOfGradients(t *testing.T) {
	for _, op := range differentiable {
		t.Run(op.name, func(t *testing.T) {
			c := NewContext()
			c.CreateGraph = true
			leaves := leavesOf(t, c, op.pos, op.shapes)
			loss := func() *Tensor { // not linear in the result, so that its gradient depends on the inputs
				y := must(op.f(leaves))
				return weighted([]*Tensor{must(Add(y, must(Mul(y, y))))}, 7)
			}
			check(t, loss().Backward(nil, false))
			plain := must(Grad([]*Tensor{loss()}, leaves, nil, GradOptions{}))
			created := must(Grad([]*Tensor{loss()}, leaves, nil, GradOptions{Create: true}))
			for i, l := range leaves {
				sameBits(t, plain[i], l.grad)
				for j, want := range list(l.grad) {
					if got := list(created[i])[j]; math.Abs(got-want) > 1e-12*max(1, math.Abs(want)) {
						t.Fatalf("input %d, element %d: %v with a graph, %v without", i, j, got, want)
					}
				}
			}
			second := weighted(created, 11)
			slopes := func() *Tensor {
				c.noGrad = 0
				grads := must(Grad([]*Tensor{loss()}, leaves, nil, GradOptions{}))
				for _, g := range grads {
					g.requiresGrad = true // counts in weighted
				}
				return weighted(grads, 11)
			}
			if second == nil { // linear in all inputs
				second = must(Sum(must(BinaryScalar(OpMul, leaves[0], Int(0), false)), nil, false))
				slopes = func() *Tensor {
					c.noGrad = 0
					sum := must(Zeros(c, nil, dtype.Float64))
					for _, g := range must(Grad([]*Tensor{loss()}, leaves, nil, GradOptions{})) {
						sum = must(Add(sum, must(Sum(must(Mul(g, g)), nil, false))))
					}
					return sum
				}
			}
			twice := must(Grad([]*Tensor{second}, leaves, nil, GradOptions{}))
			for i, l := range leaves {
				for j := range l.n {
					want, got := slope(c, slopes, l, j), 0.0
					if twice[i] != nil {
						got = list(twice[i])[j]
					}
					if math.Abs(got-want) > 2e-5*max(1, math.Abs(want)) {
						t.Fatalf("input %d, element %d: second gradient %v, finite difference %v", i, j, got, want)
					}
				}
			}
		})
	}
}

func sameBits(t *testing.T, a, b *Tensor) {
	t.Helper()
	if a == nil || string(must(Contiguous(a)).Bytes()) != string(must(Contiguous(b)).Bytes()) {
		t.Fatalf("%v and %v differ", a, b)
	}
}

func TestGradRefuses(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float64, []int{2}, 1, 2)
	check(t, x.SetRequiresGrad(true))
	y := must(Sum(must(Mul(x, x)), nil, false))
	c.CreateGraph = true
	_, err := Grad([]*Tensor{y}, []*Tensor{x}, nil, GradOptions{Create: true})
	if err == nil || !strings.Contains(err.Error(), "compute it again") {
		t.Errorf("a graph from before: %v", err)
	}
}
