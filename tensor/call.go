package tensor

import (
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// The calls into kernel. Operands have been checked and have the computing
// type; here broadcasting becomes strides of 0. Every call keeps its
// tensors reachable until it is done: otherwise pooled memory, which is
// not Go's, would be reused.

// The two packages number operations alike.
var (
	_ = [1]int{}[int(kernel.Xor)-int(OpXor)]
	_ = [1]int{}[int(kernel.Ge)-int(OpGe-OpEq)]
	_ = [1]int{}[int(kernel.Not)-int(OpNot)]
	_ = [1]int{}[int(kernel.Prod)-int(reduceProd)]
	_ = [1]int{}[int(kernel.Atan2)-int(OpAtan2)]
)

// alive keeps tensors reachable until here.
//
//go:noinline
func alive(...*Tensor) {}

func (t *Tensor) kview() kernel.View { return kernel.View{Data: t.ptr(), Strides: t.strides} }

// stretched is t broadcast to shape; buf holds the strides if they change.
func (t *Tensor) stretched(shape []int, buf *[MaxDims]int) kernel.View {
	if sameShape(shape, t.shape) {
		return t.kview()
	}
	broadcastStrides(buf[:len(shape)], shape, t)
	return kernel.View{Data: t.ptr(), Strides: buf[:len(shape)]}
}

func kBinary(op BinaryOp, out, a, b *Tensor) {
	if out.shapeOnly() {
		return
	}
	if sameShape(out.shape, a.shape) && sameShape(out.shape, b.shape) {
		kBinaryViews(op, a.dtype, out, a.kview(), b.kview())
	} else {
		var bufA, bufB [MaxDims]int
		kBinaryViews(op, a.dtype, out, a.stretched(out.shape, &bufA), b.stretched(out.shape, &bufB))
	}
	alive(a, b, out)
}

func kBinaryViews(op BinaryOp, dt dtype.Type, out *Tensor, x, y kernel.View) {
	if op.compares() {
		kernel.Compare(kernel.CompareOp(op-OpEq), dt, out.shape, out.kview(), x, y)
	} else {
		kernel.Binary(kernel.BinaryOp(op), dt, out.shape, out.kview(), x, y)
	}
}

// noStrides broadcasts a single element over any shape.
var noStrides [MaxDims]int

// kBinaryNumber computes a op s, or s op a if swapped; the number needs no
// tensor.
func kBinaryNumber(op BinaryOp, out, a *Tensor, s Scalar, swapped bool) {
	if out.shapeOnly() {
		return
	}
	var number [1]uint64
	s.put(unsafe.Pointer(&number), a.dtype)
	x, y := a.kview(), kernel.View{Data: unsafe.Pointer(&number), Strides: noStrides[:len(out.shape)]}
	if swapped {
		x, y = y, x
	}
	kBinaryViews(op, a.dtype, out, x, y)
	alive(a, out)
}

func kUnary(op UnaryOp, out, a *Tensor) {
	if out.shapeOnly() {
		return
	}
	kernel.Unary(kernel.UnaryOp(op), a.dtype, out.shape, out.kview(), a.kview())
	alive(a, out)
}

// kUnaryGrad writes g times the derivative of op; v is what op saved, its
// input or its result.
func kUnaryGrad(op UnaryOp, out, g, v *Tensor) {
	kernel.UnaryGrad(kernel.UnaryOp(op), g.dtype, out.shape, out.kview(), g.kview(), v.kview())
	alive(g, v, out)
}

// kCopy copies elements of the same type and shape.
func kCopy(out, a *Tensor) {
	if out.shapeOnly() {
		return
	}
	kernel.Copy(out.dtype, out.shape, out.kview(), a.kview())
	alive(a, out)
}

func kCast(out, a *Tensor) {
	if out.shapeOnly() {
		return
	}
	kernel.Cast(out.dtype, a.dtype, out.shape, out.kview(), a.kview())
	alive(a, out)
}

func kWhere(out, cond, a, b *Tensor) {
	if out.shapeOnly() {
		return
	}
	var bufC, bufA, bufB [MaxDims]int
	kernel.Where(out.dtype, out.shape, out.kview(), cond.stretched(out.shape, &bufC),
		a.stretched(out.shape, &bufA), b.stretched(out.shape, &bufB))
	alive(cond, a, b, out)
}

// From here on all tensors are contiguous.

// kReduce reduces the middle of (outer, n, inner).
func kReduce(kind reduction, out, a *Tensor, outer, n, inner int) {
	if out.shapeOnly() {
		return
	}
	kernel.Reduce(kernel.ReduceOp(kind), a.dtype, outer, n, inner, out.ptr(), a.ptr())
	alive(a, out)
}

// factor is an operand of a matrix product: rows of adjacent elements ld
// apart, starting off elements in; trans if the product takes it transposed.
type factor struct {
	t         *Tensor
	off, ld   int
	trans     bool
	batchStep int
}

func (f factor) kernel() kernel.Matrix {
	return kernel.Matrix{Data: f.t.ptrAt(f.off), Stride: f.ld, Trans: f.trans, Batch: f.batchStep}
}

// kGemm multiplies; low takes operands as bfloat16, rounding float32 ones, and a bias in float32. add adds to what out holds.
func kGemm(op string, low bool, out, a, b factor, batch, m, n, k int, bias *Tensor, add bool) {
	if out.t.shapeOnly() {
		return
	}
	var err error
	if low {
		err = kernel.GemmHalf(batch, m, n, k, out.t.dtype, out.kernel(), a.t.dtype, a.kernel(), b.t.dtype, b.kernel(), add, ptrOr(bias))
	} else {
		err = kernel.Gemm(out.t.dtype, batch, m, n, k, out.kernel(), a.kernel(), b.kernel(), add, ptrOr(bias))
	}
	alive(a.t, b.t, out.t, bias)
	try.Ok(Starved(op, err))
}
