package kernel

// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// SGD describes one update of stochastic gradient descent, with PyTorch's formulas.
type SGD struct {
	LR, Momentum, WeightDecay float64
	Nesterov                  bool
	First                     bool // the first update: the momentum buffer, which need not be set, becomes the gradient
}

// Step updates n parameters p from gradients g; m is the momentum buffer, nil without momentum.
func (s SGD) Step(dt dtype.Type, n int, p, g, m unsafe.Pointer) {
	for c := begin("optimizer's step"); c.again(array(dt, p, n), array(dt, m, n)); {
		C.drun_sgd(C.int(dt), long(n), mem(p), mem(g), mem(m), C.double(s.LR), C.double(s.Momentum), C.double(s.WeightDecay),
			flag(s.Nesterov), flag(s.First))
	}
}

// Adam describes one update of Adam, or with Decoupled of AdamW. Count is 1 on the first update.
type Adam struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Decoupled                          bool
	Count                              int
}

// Step updates n parameters p from gradients g and the two moments m and v.
func (a Adam) Step(dt dtype.Type, n int, p, g, m, v unsafe.Pointer) {
	for c := begin("optimizer's step"); c.again(array(dt, p, n), array(dt, m, n), array(dt, v, n)); {
		C.drun_adam(C.int(dt), long(n), mem(p), mem(g), mem(m), mem(v), C.double(a.LR), C.double(a.Beta1), C.double(a.Beta2),
			C.double(a.Eps), C.double(a.WeightDecay), flag(a.Decoupled), long(a.Count))
	}
}

// Scale multiplies n reals in place.
func Scale(dt dtype.Type, n int, x unsafe.Pointer, by float64) {
	for c := begin("scaling"); c.again(array(dt, x, n)); {
		C.drun_scale(C.int(dt), long(n), mem(x), C.double(by))
	}
}

// RMSprop describes one update of RMSprop, with PyTorch's formulas.
type RMSprop struct {
	LR, Alpha, Eps, WeightDecay, Momentum float64
}

// Step updates n parameters p from gradients g and the mean of squares v. m is the momentum, or nil; a is the
// mean of gradients that centres the squares, or nil.
func (r RMSprop) Step(dt dtype.Type, n int, p, g, v, m, a unsafe.Pointer) {
	for c := begin("optimizer's step"); c.again(array(dt, p, n), array(dt, v, n), array(dt, m, n), array(dt, a, n)); {
		C.drun_rmsprop(C.int(dt), long(n), mem(p), mem(g), mem(v), mem(m), mem(a), C.double(r.LR), C.double(r.Alpha), C.double(r.Eps),
			C.double(r.WeightDecay), C.double(r.Momentum))
	}
}

// Adagrad describes one update of Adagrad; LR is the rate of this step.
type Adagrad struct {
	LR, Eps, WeightDecay float64
}

// Step updates n parameters p from gradients g and the sum of squares v.
func (r Adagrad) Step(dt dtype.Type, n int, p, g, v unsafe.Pointer) {
	for c := begin("optimizer's step"); c.again(array(dt, p, n), array(dt, v, n)); {
		C.drun_adagrad(C.int(dt), long(n), mem(p), mem(g), mem(v), C.double(r.LR), C.double(r.Eps), C.double(r.WeightDecay))
	}
}

// Lion describes one update of Lion.
type Lion struct {
	LR, Beta1, Beta2, WeightDecay float64
}

// Step updates n parameters p from gradients g and the momentum m.
func (r Lion) Step(dt dtype.Type, n int, p, g, m unsafe.Pointer) {
	for c := begin("optimizer's step"); c.again(array(dt, p, n), array(dt, m, n)); {
		C.drun_lion(C.int(dt), long(n), mem(p), mem(g), mem(m), C.double(r.LR), C.double(r.Beta1), C.double(r.Beta2), C.double(r.WeightDecay))
	}
}
