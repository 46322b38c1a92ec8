package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_softmax
// #cgo nocallback drun_softmax
// #cgo noescape drun_softmax_grad
// #cgo nocallback drun_softmax_grad
// #cgo noescape drun_cross_entropy
// #cgo nocallback drun_cross_entropy
// #cgo noescape drun_cross_entropy_grad
// #cgo nocallback drun_cross_entropy_grad
// #cgo noescape drun_layer_norm
// #cgo nocallback drun_layer_norm
// #cgo noescape drun_layer_norm_grad
// #cgo nocallback drun_layer_norm_grad
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Softmax computes the softmax, or with logarithm its logarithm, of each of rows contiguous rows of n reals.
func Softmax(dt dtype.Type, logarithm bool, rows, n int, out, in unsafe.Pointer) {
	C.drun_softmax(C.int(dt), flag(logarithm), long(rows), long(n), mem(out), mem(in))
}

// SoftmaxGrad computes dx from dy and the forward's output y.
func SoftmaxGrad(dt dtype.Type, logarithm bool, rows, n int, dx, dy, y unsafe.Pointer) {
	C.drun_softmax_grad(C.int(dt), flag(logarithm), long(rows), long(n), mem(dx), mem(dy), mem(y))
}

// CrossEntropy computes for each row of logits [rows, n] the loss -log softmax(row)[target] and the row's
// log-sum-exp, which the gradient needs. A negative target gives a loss of 0.
func CrossEntropy(dt dtype.Type, rows, n int, loss, lse, logits unsafe.Pointer, target []int64) {
	C.drun_cross_entropy(C.int(dt), long(rows), long(n), mem(loss), mem(lse), mem(logits), index(target))
}

// CrossEntropyGrad computes dlogits = scale dloss (softmax(logits) - one_hot(target)), zeros in rows with a
// negative target. dloss has one element a row, stride elements apart (0: the same for all rows).
func CrossEntropyGrad(dt dtype.Type, rows, n int, dlogits, dloss unsafe.Pointer, stride int, scale float64, logits,
	lse unsafe.Pointer, target []int64) {
	C.drun_cross_entropy_grad(C.int(dt), long(rows), long(n), mem(dlogits), mem(dloss), long(stride), C.double(scale),
		mem(logits), mem(lse), index(target))
}

// LayerNorm normalises each row of n reals: y = (x - mean) rstd gamma + beta, where rstd = 1/sqrt(var + eps).
// mean and rstd [rows] are kept for the gradient. A nil mean makes it RMS norm: nothing is subtracted. gamma
// and beta [n] may be nil.
func LayerNorm(dt dtype.Type, rows, n int, eps float64, y, mean, rstd, x, gamma, beta unsafe.Pointer) {
	C.drun_layer_norm(C.int(dt), long(rows), long(n), C.double(eps), mem(y), mem(mean), mem(rstd), mem(x), mem(gamma),
		mem(beta))
}

// LayerNormGrad computes dx, or adds it to what is there, and adds to dgamma and dbeta. Each of the three may be nil.
// A nil mean means RMS norm.
func LayerNormGrad(dt dtype.Type, rows, n int, add bool, dx, dgamma, dbeta, dy, x, gamma, mean, rstd unsafe.Pointer) {
	C.drun_layer_norm_grad(C.int(dt), long(rows), long(n), flag(add), mem(dx), mem(dgamma), mem(dbeta), mem(dy), mem(x), mem(gamma),
		mem(mean), mem(rstd))
}
