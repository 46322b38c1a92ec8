package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_rmsprop
// #cgo nocallback drun_rmsprop
// #cgo noescape drun_adagrad
// #cgo nocallback drun_adagrad
// #cgo noescape drun_lion
// #cgo nocallback drun_lion
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// RMSprop describes one update of RMSprop, with PyTorch's formulas.
type RMSprop struct {
	LR, Alpha, Eps, WeightDecay, Momentum float64
}

// Step updates n parameters p from gradients g and the mean of squares v. m is the momentum, or nil; a is the
// mean of gradients that centres the squares, or nil.
func (r RMSprop) Step(dt dtype.Type, n int, p, g, v, m, a unsafe.Pointer) {
	C.drun_rmsprop(C.int(dt), long(n), mem(p), mem(g), mem(v), mem(m), mem(a), C.double(r.LR), C.double(r.Alpha), C.double(r.Eps),
		C.double(r.WeightDecay), C.double(r.Momentum))
}

// Adagrad describes one update of Adagrad; LR is the rate of this step.
type Adagrad struct {
	LR, Eps, WeightDecay float64
}

// Step updates n parameters p from gradients g and the sum of squares v.
func (r Adagrad) Step(dt dtype.Type, n int, p, g, v unsafe.Pointer) {
	C.drun_adagrad(C.int(dt), long(n), mem(p), mem(g), mem(v), C.double(r.LR), C.double(r.Eps), C.double(r.WeightDecay))
}

// Lion describes one update of Lion.
type Lion struct {
	LR, Beta1, Beta2, WeightDecay float64
}

// Step updates n parameters p from gradients g and the momentum m.
func (r Lion) Step(dt dtype.Type, n int, p, g, m unsafe.Pointer) {
	C.drun_lion(C.int(dt), long(n), mem(p), mem(g), mem(m), C.double(r.LR), C.double(r.Beta1), C.double(r.Beta2), C.double(r.WeightDecay))
}
