package tensor

import "runtime"

// The calls into kernel for elementwise work. Operands have the computing
// type already; this is where broadcasting turns into strides of 0.

// layout is how an operand lies in the result's shape.
type layout struct{ buf [MaxDims]int }

// in gives t's strides in shape.
func (l *layout) in(shape []int, t *Tensor) []int {
	if len(shape) == len(t.shape) && sameShape(shape, t.shape) {
		return t.strides
	}
	broadcastStrides(l.buf[:len(shape)], shape, t)
	return l.buf[:len(shape)]
}

func kBinary(op BinaryOp, out, a, b *Tensor) { panic("kernel") }

func kUnary(op UnaryOp, out, a *Tensor) { panic("kernel") }

// kUnaryGrad writes g times the derivative of op; v is what op saved, its
// input or its result.
func kUnaryGrad(op UnaryOp, out, g, v *Tensor) { panic("kernel") }

// kCopy copies elements of the same type and shape.
func kCopy(out, a *Tensor) { runtime.KeepAlive(a) }

// kCast converts elements.
func kCast(out, a *Tensor) { panic("kernel") }

// kWhere chooses elements.
func kWhere(out, cond, a, b *Tensor) { panic("kernel") }

// kReduce reduces the middle of (outer, n, inner); both are contiguous.
func kReduce(kind reduction, out, a *Tensor, outer, n, inner int) { panic("kernel") }
