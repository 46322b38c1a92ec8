package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_moments
// #cgo nocallback drun_moments
// #cgo noescape drun_square_sums
// #cgo nocallback drun_square_sums
// #cgo noescape drun_scale_lines
// #cgo nocallback drun_scale_lines
// #cgo noescape drun_batch_norm_grad
// #cgo nocallback drun_batch_norm_grad
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Lines sees a contiguous array as [Outer, N, Side, Run]. A line is the N*Run elements of one outer and one
// side index; there are Outer*Side lines, in that order. Rows have N = Side = 1, the columns of a matrix Run =
// 1, the channels of images [N, Side, Run].
type Lines struct{ Outer, N, Side, Run int }

// Moments computes for each line the mean, the rounding error of the mean (low), and the variance with divisor N*Run
// - correction. Each of the three may be nil.
func Moments(dt dtype.Type, l Lines, correction int, mean, low, variance, in unsafe.Pointer) {
	C.drun_moments(C.int(dt), long(l.Outer), long(l.N), long(l.Side), long(l.Run), long(correction), mem(mean), mem(low),
		mem(variance), mem(in))
}

// SquareSums computes the sum of the squares of each line.
func SquareSums(dt dtype.Type, l Lines, out, in unsafe.Pointer) {
	C.drun_square_sums(C.int(dt), long(l.Outer), long(l.N), long(l.Side), long(l.Run), mem(out), mem(in))
}

// Affine says how ScaleLines changes the elements of a line. Mean, Low and Scale have one value per line, Gamma and
// Beta one per side index. All but Scale may be nil.
type Affine struct{ Mean, Low, Scale, Gamma, Beta unsafe.Pointer }

// ScaleLines computes y = (x - mean - low) scale gamma + beta; y may be x.
func ScaleLines(dt dtype.Type, l Lines, a Affine, y, x unsafe.Pointer) {
	C.drun_scale_lines(C.int(dt), long(l.Outer), long(l.N), long(l.Side), long(l.Run), mem(y), mem(x), mem(a.Mean), mem(a.Low),
		mem(a.Scale), mem(a.Gamma), mem(a.Beta))
}

// BatchNormGrad is the gradient of y = ScaleLines(x) with one outer index, where a.Scale is 1/sqrt(var +
// eps). In training mean and variance come from x, else they are constants. It computes dx and adds to dgamma
// and dbeta; each may be nil. sums is room for 2*Side elements.
func BatchNormGrad(dt dtype.Type, l Lines, a Affine, training bool, dx, dgamma, dbeta, sums, dy, x unsafe.Pointer) {
	C.drun_batch_norm_grad(C.int(dt), flag(training), long(l.Outer), long(l.N), long(l.Side), long(l.Run), mem(dx), mem(dgamma),
		mem(dbeta), mem(sums), mem(dy), mem(x), mem(a.Mean), mem(a.Low), mem(a.Scale), mem(a.Gamma))
}
