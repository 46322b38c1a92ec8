package optim

import (
	"math"
	"slices"
	"testing"

	"drun/kernel/dtype"
	. "drun/tensor"
)

func params(c *Context) (*Tensor, *Tensor) {
	a, b := floats(c, dtype.Float64, []int{2, 2}, 1, 2, 3, 4), floats(c, dtype.Float64, []int{1}, -1)
	must(0, a.SetRequiresGrad(true))
	must(0, b.SetRequiresGrad(true))
	return a, b
}

func TestOptimizerFlattens(t *testing.T) {
	c := NewContext()
	a, b := params(c)
	opt := must(New([]ParamGroup{{Params: []*Tensor{a, b}, LR: 0.5}}, SGD{}))
	if !SharesStorage(a, b) {
		t.Fatal("the parameters are not in one buffer")
	}
	equal(t, a, []int{2, 2}, 1, 2, 3, 4)
	if got := Coalesce([]*Tensor{a, b}, 2); len(got) != 1 || got[0].Len() != 16+1 {
		t.Fatalf("Coalesce gave %v", got)
	}
	if got := Coalesce([]*Tensor{b, a}, 2); len(got) != 2 {
		t.Fatalf("Coalesce joined tensors that are not in order: %v", got)
	}
	if got := Coalesce([]*Tensor{b, a}, 1); got != nil {
		t.Fatalf("Coalesce gave more than one: %v", got)
	}
	check(t, must(Sum(must(Mul(a, b)), nil, false)).Backward(nil, false))
	if !SharesStorage(a.Grad(), b.Grad()) {
		t.Fatal("the gradients are not in one buffer")
	}
	check(t, opt.Step())
	equal(t, a, []int{2, 2}, 1.5, 2.5, 3.5, 4.5)
	equal(t, b, []int{1}, -6)
	opt.ZeroGrad()
	if a.Grad() != nil || b.Grad() != nil {
		t.Fatal("zero_grad left gradients")
	}
	// Without gradients nothing moves; with one only its parameter does.
	check(t, must(Sum(b, nil, false)).Backward(nil, false))
	check(t, opt.Step())
	equal(t, a, []int{2, 2}, 1.5, 2.5, 3.5, 4.5)
	equal(t, b, []int{1}, -6.5)
	equal(t, opt.State()["step"], []int{2}, 1, 2)
}

// The rules against PyTorch's, written out for one number.
func TestUpdateRules(t *testing.T) {
	grad := func(p float64) float64 { return 2*p - 1 }
	const lr, wd, mu, b1, b2, eps = 0.1, 0.01, 0.9, 0.8, 0.99, 1e-8
	sgd := func(nesterov bool) func(p float64, step int, s *[2]float64) float64 {
		return func(p float64, step int, s *[2]float64) float64 {
			g := grad(p) + wd*p
			if step == 1 {
				s[0] = g
			} else {
				s[0] = mu*s[0] + g
			}
			if nesterov {
				return p - lr*(g+mu*s[0])
			}
			return p - lr*s[0]
		}
	}
	adam := func(decoupled bool) func(p float64, step int, s *[2]float64) float64 {
		return func(p float64, step int, s *[2]float64) float64 {
			g := grad(p)
			if decoupled {
				p -= lr * wd * p
			} else {
				g += wd * p
			}
			s[0], s[1] = b1*s[0]+(1-b1)*g, b2*s[1]+(1-b2)*g*g
			m, v := s[0]/(1-math.Pow(b1, float64(step))), s[1]/(1-math.Pow(b2, float64(step)))
			return p - lr*m/(math.Sqrt(v)+eps)
		}
	}
	for _, tc := range []struct {
		name string
		of   Rule
		rule func(float64, int, *[2]float64) float64
	}{
		{"sgd", SGD{Momentum: mu}, sgd(false)},
		{"nesterov", SGD{Momentum: mu, Nesterov: true}, sgd(true)},
		{"adam", Adam{Beta1: b1, Beta2: b2, Eps: eps}, adam(false)},
		{"adamw", Adam{Beta1: b1, Beta2: b2, Eps: eps, Decoupled: true}, adam(true)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewContext()
			p := floats(c, dtype.Float64, []int{1}, 3)
			check(t, p.SetRequiresGrad(true))
			opt := must(New([]ParamGroup{{Params: []*Tensor{p}, LR: lr, WeightDecay: wd}}, tc.of))
			want, state := 3.0, [2]float64{}
			for step := 1; step <= 5; step++ {
				check(t, p.SetGrad(floats(c, dtype.Float64, []int{1}, grad(scalar(p)))))
				check(t, opt.Step())
				want = tc.rule(want, step, &state)
				near(t, p, 1e-12, []int{1}, want)
			}
		})
	}
}

// A second optimizer that takes over parameters and state goes on exactly
// as the first would have.
func TestOptimizerState(t *testing.T) {
	run := func(restart bool) []float64 {
		c := NewContext()
		a, b := params(c)
		make := func() *Optimizer {
			return must(New([]ParamGroup{{Params: []*Tensor{a}, LR: 0.1}, {Params: []*Tensor{b}, LR: 0.2}}, Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}))
		}
		opt := make()
		for i := range 6 {
			if restart && i == 3 {
				old := opt
				opt = make()
				for name, s := range opt.State() {
					check(t, CopyInto(s, old.State()[name]))
				}
				fails(t, old.Step(), "another optimizer")
			}
			opt.ZeroGrad()
			check(t, must(Sum(must(Unary(OpSquare, must(Mul(a, b)))), nil, false)).Backward(nil, false))
			check(t, opt.Step())
		}
		return append(list(a), list(b)...)
	}
	if x, y := run(false), run(true); !slices.Equal(x, y) {
		t.Fatalf("%v without a restart, %v with one", x, y)
	}
}

func TestOptimizerErrors(t *testing.T) {
	c := NewContext()
	a, _ := params(c)
	try := func(ps ...*Tensor) error {
		_, err := New([]ParamGroup{{Params: ps}}, SGD{})
		return err
	}
	fails(t, try(), "empty")
	fails(t, try(a, a), "parameter 1", "twice")
	fails(t, try(a, must(Mul(a, a))), "parameter 1", "not a leaf")
	fails(t, try(floats(c, dtype.Float32, []int{1}, 1)), "does not require a gradient")
}
