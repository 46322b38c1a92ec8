package kernel

// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Softmax computes the softmax, or with logarithm its logarithm, of each of rows contiguous rows of n reals.
func Softmax(dt dtype.Type, logarithm bool, rows, n int, out, in unsafe.Pointer) {
	for c := begin("softmax"); c.again(whole(dt, out, rows*n)); {
		C.drun_softmax(C.int(dt), flag(logarithm), long(rows), long(n), mem(out), mem(in))
	}
}

// SoftmaxGrad computes dx from dy and the forward's output y.
func SoftmaxGrad(dt dtype.Type, logarithm bool, rows, n int, dx, dy, y unsafe.Pointer) {
	for c := begin("softmax's gradient"); c.again(whole(dt, dx, rows*n)); {
		C.drun_softmax_grad(C.int(dt), flag(logarithm), long(rows), long(n), mem(dx), mem(dy), mem(y))
	}
}

// CrossEntropy computes for each row of logits [rows, n] the loss -log softmax(row)[target] and the row's
// log-sum-exp, which the gradient needs. A negative target gives a loss of 0.
func CrossEntropy(dt dtype.Type, rows, n int, loss, lse, logits unsafe.Pointer, target []int64) {
	for c := begin("cross-entropy"); c.again(whole(dt, loss, rows), whole(dt, lse, rows)); {
		C.drun_cross_entropy(C.int(dt), long(rows), long(n), mem(loss), mem(lse), mem(logits), index(target))
	}
}

// CrossEntropyGrad computes dlogits = scale dloss (softmax(logits) - one_hot(target)), zeros in rows with a
// negative target. dloss has one element a row, stride elements apart (0: the same for all rows).
func CrossEntropyGrad(dt dtype.Type, rows, n int, dlogits, dloss unsafe.Pointer, stride int, scale float64, logits,
	lse unsafe.Pointer, target []int64) {
	for c := begin("cross-entropy's gradient"); c.again(whole(dt, dlogits, rows*n)); {
		C.drun_cross_entropy_grad(C.int(dt), long(rows), long(n), mem(dlogits), mem(dloss), long(stride), C.double(scale),
			mem(logits), mem(lse), index(target))
	}
}

// LayerNorm normalises each row of n reals: y = (x - mean) rstd gamma + beta, where rstd = 1/sqrt(var + eps).
// mean and rstd [rows] are kept for the gradient. A nil mean makes it RMS norm: nothing is subtracted. gamma
// and beta [n] may be nil.
func LayerNorm(dt dtype.Type, rows, n int, eps float64, y, mean, rstd, x, gamma, beta unsafe.Pointer) {
	for c := begin("norm"); c.again(whole(dt, y, rows*n), whole(dt, mean, rows), whole(dt, rstd, rows)); {
		C.drun_layer_norm(C.int(dt), long(rows), long(n), C.double(eps), mem(y), mem(mean), mem(rstd), mem(x), mem(gamma),
			mem(beta))
	}
}

// LayerNormGrad computes dx, or with add adds to dx, and adds to dgamma and dbeta. Each of the three may be
// nil. A nil mean means RMS norm.
func LayerNormGrad(dt dtype.Type, rows, n int, add bool, dx, dgamma, dbeta, dy, x, gamma, mean, rstd unsafe.Pointer) {
	for c := begin("norm's gradient"); c.again(array(dt, dx, rows*n), array(dt, dgamma, n), array(dt, dbeta, n)); {
		C.drun_layer_norm_grad(C.int(dt), long(rows), long(n), flag(add), mem(dx), mem(dgamma), mem(dbeta), mem(dy), mem(x), mem(gamma),
			mem(mean), mem(rstd))
	}
}

// Groups is the geometry of a group norm over x [Rows/Groups, Groups·Each, Run].
type Groups struct{ Rows, Groups, Each, Run int }

// Norm computes y, and mean and rstd [Rows]; gamma and beta [Groups·Each] may be nil.
func (g Groups) Norm(dt dtype.Type, eps float64, y, mean, rstd, x, gamma, beta unsafe.Pointer) {
	for c := begin("norm"); c.again(whole(dt, y, g.Rows*g.Each*g.Run), whole(dt, mean, g.Rows), whole(dt, rstd, g.Rows)); {
		C.drun_group_norm(C.int(dt), long(g.Rows), long(g.Groups), long(g.Each), long(g.Run), C.double(eps), mem(y), mem(mean), mem(rstd), mem(x),
			mem(gamma), mem(beta))
	}
}

// Grad computes dx, and adds to dgamma and dbeta; each may be nil. sums [2·Rows·Each] is working memory.
func (g Groups) Grad(dt dtype.Type, dx, dgamma, dbeta, sums, dy, x, gamma, mean, rstd unsafe.Pointer) {
	for c := begin("norm's gradient"); c.again(array(dt, dx, g.Rows*g.Each*g.Run), array(dt, dgamma, g.Groups*g.Each), array(dt, dbeta, g.Groups*g.Each)); {
		C.drun_group_norm_grad(C.int(dt), long(g.Rows), long(g.Groups), long(g.Each), long(g.Run), mem(dx), mem(dgamma), mem(dbeta), mem(sums), mem(dy),
			mem(x), mem(gamma), mem(mean), mem(rstd))
	}
}

// Lines views a contiguous array as [Outer, N, Side, Run]. A line is the N*Run elements of one outer and one
// side index; there are Outer*Side lines, in that order. Rows have N = Side = 1, the columns of a matrix Run =
// 1, the channels of images [N, Side, Run].
type Lines struct{ Outer, N, Side, Run int }

// Moments computes for each line the mean, the rounding error of the mean (low), and the variance with divisor N*Run
// - correction. Each of the three may be nil.
func Moments(dt dtype.Type, l Lines, correction int, mean, low, variance, in unsafe.Pointer) {
	for c := begin("mean and variance"); c.again(whole(dt, mean, l.Outer*l.Side), whole(dt, low, l.Outer*l.Side), whole(dt, variance, l.Outer*l.Side)); {
		C.drun_moments(C.int(dt), long(l.Outer), long(l.N), long(l.Side), long(l.Run), long(correction), mem(mean), mem(low),
			mem(variance), mem(in))
	}
}

// SquareSums computes the sum of the squares of each line.
func SquareSums(dt dtype.Type, l Lines, out, in unsafe.Pointer) {
	for c := begin("sum of squares"); c.again(whole(dt, out, l.Outer*l.Side)); {
		C.drun_square_sums(C.int(dt), long(l.Outer), long(l.N), long(l.Side), long(l.Run), mem(out), mem(in))
	}
}

// Affine says how ScaleLines changes the elements of a line. Mean, Low and Scale have one value per line, Gamma and
// Beta one per side index. All but Scale may be nil.
type Affine struct{ Mean, Low, Scale, Gamma, Beta unsafe.Pointer }

// ScaleLines computes y = (x - mean - low) scale gamma + beta; y may be x.
func ScaleLines(dt dtype.Type, l Lines, a Affine, y, x unsafe.Pointer) {
	for c := begin("norm"); c.again(array(dt, y, l.Outer*l.N*l.Side*l.Run)); {
		C.drun_scale_lines(C.int(dt), long(l.Outer), long(l.N), long(l.Side), long(l.Run), mem(y), mem(x), mem(a.Mean), mem(a.Low),
			mem(a.Scale), mem(a.Gamma), mem(a.Beta))
	}
}

// BatchNormGrad is the gradient of y = ScaleLines(x) with one outer index, where a.Scale is 1/sqrt(var +
// eps). In training, mean and variance depend on x; otherwise they are constants. It computes dx and adds to dgamma
// and dbeta; each may be nil. sums is room for 2*Side elements.
func BatchNormGrad(dt dtype.Type, l Lines, a Affine, training bool, dx, dgamma, dbeta, sums, dy, x unsafe.Pointer) {
	for c := begin("norm's gradient"); c.again(array(dt, dx, l.Outer*l.N*l.Side*l.Run), array(dt, dgamma, l.Side), array(dt, dbeta, l.Side)); {
		C.drun_batch_norm_grad(C.int(dt), flag(training), long(l.Outer), long(l.N), long(l.Side), long(l.Run), mem(dx), mem(dgamma),
			mem(dbeta), mem(sums), mem(dy), mem(x), mem(a.Mean), mem(a.Low), mem(a.Scale), mem(a.Gamma))
	}
}
