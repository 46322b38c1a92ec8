package tensor

import (
	"runtime"
	"unsafe"

	"drun/kernel"
)

// The calls into kernel. Operands have been checked and have the computing
// type; here broadcasting turns into strides of 0. Every call keeps its
// tensors reachable until it is done: pooled memory is not Go's, and would
// be reused.

// The two packages number operations alike.
var (
	_ = [1]int{}[int(kernel.Xor)-int(OpXor)]
	_ = [1]int{}[int(kernel.Ge)-int(OpGe-OpEq)]
	_ = [1]int{}[int(kernel.Not)-int(OpNot)]
	_ = [1]int{}[int(kernel.All)-int(reduceAll)]
)

func (t *Tensor) kview() kernel.View { return kernel.View{Data: t.ptr(), Strides: t.strides} }

// stretched is t seen in shape; buf holds strides if it has to be broadcast.
func (t *Tensor) stretched(shape []int, buf *[MaxDims]int) kernel.View {
	if sameShape(shape, t.shape) {
		return t.kview()
	}
	broadcastStrides(buf[:len(shape)], shape, t)
	return kernel.View{Data: t.ptr(), Strides: buf[:len(shape)]}
}

func kBinary(op BinaryOp, out, a, b *Tensor) {
	if sameShape(out.shape, a.shape) && sameShape(out.shape, b.shape) {
		kBinaryViews(op, out, a, b, a.kview(), b.kview())
		return
	}
	var bufA, bufB [MaxDims]int
	kBinaryViews(op, out, a, b, a.stretched(out.shape, &bufA), b.stretched(out.shape, &bufB))
}

func kBinaryViews(op BinaryOp, out, a, b *Tensor, x, y kernel.View) {
	o := out.kview()
	if op.compares() {
		kernel.Compare(kernel.CompareOp(op-OpEq), a.dtype, out.shape, o, x, y)
	} else {
		kernel.Binary(kernel.BinaryOp(op), a.dtype, out.shape, o, x, y)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(out)
}

// noStrides broadcasts a single element over any shape.
var noStrides [MaxDims]int

// kBinaryNumber computes a op s, or s op a if swapped; the number needs no
// tensor.
func kBinaryNumber(op BinaryOp, out, a *Tensor, s Scalar, swapped bool) {
	var number [1]uint64
	s.put(unsafe.Pointer(&number), a.dtype)
	x, y := a.kview(), kernel.View{Data: unsafe.Pointer(&number), Strides: noStrides[:len(out.shape)]}
	if swapped {
		x, y = y, x
	}
	if op.compares() {
		kernel.Compare(kernel.CompareOp(op-OpEq), a.dtype, out.shape, out.kview(), x, y)
	} else {
		kernel.Binary(kernel.BinaryOp(op), a.dtype, out.shape, out.kview(), x, y)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(out)
}

func kUnary(op UnaryOp, out, a *Tensor) {
	kernel.Unary(kernel.UnaryOp(op), a.dtype, out.shape, out.kview(), a.kview())
	runtime.KeepAlive(a)
	runtime.KeepAlive(out)
}

// kUnaryGrad writes g times the derivative of op; v is what op saved, its
// input or its result.
func kUnaryGrad(op UnaryOp, out, g, v *Tensor) {
	kernel.UnaryGrad(kernel.UnaryOp(op), g.dtype, out.shape, out.kview(), g.kview(), v.kview())
	runtime.KeepAlive(g)
	runtime.KeepAlive(v)
	runtime.KeepAlive(out)
}

// kCopy copies elements of the same type and shape.
func kCopy(out, a *Tensor) {
	kernel.Copy(out.dtype, out.shape, out.kview(), a.kview())
	runtime.KeepAlive(a)
	runtime.KeepAlive(out)
}

func kCast(out, a *Tensor) {
	kernel.Cast(out.dtype, a.dtype, out.shape, out.kview(), a.kview())
	runtime.KeepAlive(a)
	runtime.KeepAlive(out)
}

func kWhere(out, cond, a, b *Tensor) {
	var bufC, bufA, bufB [MaxDims]int
	kernel.Where(out.dtype, out.shape, out.kview(), cond.stretched(out.shape, &bufC),
		a.stretched(out.shape, &bufA), b.stretched(out.shape, &bufB))
	runtime.KeepAlive(cond)
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(out)
}

// From here on all tensors are contiguous.

// kReduce reduces the middle of (outer, n, inner).
func kReduce(kind reduction, out, a *Tensor, outer, n, inner int) {
	kernel.Reduce(kernel.ReduceOp(kind), a.dtype, outer, n, inner, out.ptr(), a.ptr())
	runtime.KeepAlive(a)
	runtime.KeepAlive(out)
}

func kArgReduce(kind reduction, index, a *Tensor, outer, n, inner int) {
	kernel.ArgReduce(kernel.ReduceOp(kind), a.dtype, outer, n, inner, elems[int64](index), nil, a.ptr())
	runtime.KeepAlive(a)
	runtime.KeepAlive(index)
}

func kCumSum(out, a *Tensor, outer, n, inner int) {
	kernel.CumSum(a.dtype, outer, n, inner, out.ptr(), a.ptr())
	runtime.KeepAlive(a)
	runtime.KeepAlive(out)
}

// kTake picks entries of the middle of (outer, n, inner).
func kTake(out, a, index *Tensor, outer, n, inner int) {
	kernel.Take(a.dtype, outer, n, inner, out.ptr(), a.ptr(), elems[int64](index))
	runtime.KeepAlive(a)
	runtime.KeepAlive(index)
	runtime.KeepAlive(out)
}

// kAddRows adds the rows of a to those of out, from an element offset on,
// that index names.
func kAddRows(out, a, index *Tensor, offOut, offA, n int) {
	kernel.AddRows(a.dtype, n, out.ptrAt(offOut), a.ptrAt(offA), elems[int64](index))
	runtime.KeepAlive(a)
	runtime.KeepAlive(index)
	runtime.KeepAlive(out)
}

func kGather(out, a, index *Tensor, outer, to, from, inner int) {
	kernel.Gather(a.dtype, outer, to, from, inner, out.ptr(), a.ptr(), elems[int64](index))
	runtime.KeepAlive(a)
	runtime.KeepAlive(index)
	runtime.KeepAlive(out)
}

func kScatterAdd(out, a, index *Tensor, outer, from, to, inner int) {
	kernel.ScatterAdd(a.dtype, outer, from, to, inner, out.ptr(), a.ptr(), elems[int64](index))
	runtime.KeepAlive(a)
	runtime.KeepAlive(index)
	runtime.KeepAlive(out)
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

func kGemm(op string, out, a, b factor, batch, m, n, k int, bias *Tensor) error {
	c := out.kernel()
	err := kernel.Gemm(out.t.dtype, batch, m, n, k, c, a.kernel(), b.kernel(), false, ptrOr(bias))
	runtime.KeepAlive(a.t)
	runtime.KeepAlive(b.t)
	runtime.KeepAlive(out.t)
	runtime.KeepAlive(bias)
	return starved(op, err)
}
