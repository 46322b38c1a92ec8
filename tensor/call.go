package tensor

import (
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// This file has the calls into kernel. Operands have been checked and have the computing type; here broadcasting
// becomes strides of 0. Every call keeps its tensors reachable until it is done: otherwise pooled memory, which the
// garbage collector does not manage, would be reused.

// The two packages number operations alike.
var (
	_ = [1]int{}[int(kernel.Xor)-int(OpXor)]
	_ = [1]int{}[int(kernel.Ge)-int(OpGe-OpEq)]
	_ = [1]int{}[int(kernel.Not)-int(OpNot)]
	_ = [1]int{}[int(kernel.Atan2)-int(OpAtan2)]
)

// alive keeps tensors reachable until here.
//
//go:noinline
func alive(...*Tensor) {}

func (t *Tensor) kview() kernel.View { return kernel.View{Data: t.ptr(), Strides: t.strides} }

// stretched returns t broadcast to shape; buf holds the strides if they change.
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
	if d := out.on(a, b); d != nil && d.binary(op, out, a, b) {
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

// noStrides are strides that broadcast a single element to any shape.
var noStrides [MaxDims]int

// kBinaryNumber computes a op s, or s op a if swapped; the number needs no tensor.
func kBinaryNumber(op BinaryOp, out, a *Tensor, s Scalar, swapped bool) {
	if out.shapeOnly() {
		return
	}
	if d := out.on(a); d != nil && d.binaryNumber(op, out, a, s, swapped) {
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
	if d := out.on(a); d != nil && d.unary(op, out, a) {
		return
	}
	kernel.Unary(kernel.UnaryOp(op), a.dtype, out.shape, out.kview(), a.kview())
	alive(a, out)
}

// kUnaryGrad writes g times the derivative of op; v is what op saved, its input or its result.
func kUnaryGrad(op UnaryOp, out, g, v *Tensor) {
	if d := out.on(); d != nil && d.unaryGrad(op, out, g, v) {
		return
	}
	kernel.UnaryGrad(kernel.UnaryOp(op), g.dtype, out.shape, out.kview(), g.kview(), v.kview())
	alive(g, v, out)
}

// kCopy copies elements of the same type and shape.
func kCopy(out, a *Tensor) {
	if out.shapeOnly() {
		return
	}
	if d := out.on(a); d != nil && d.copy(out, a) {
		return
	}
	kernel.Copy(out.dtype, out.shape, out.kview(), a.kview())
	alive(a, out)
}

func kCast(out, a *Tensor) {
	if out.shapeOnly() {
		return
	}
	if d := out.on(a); d != nil && d.cast(out, a) {
		return
	}
	kernel.Cast(out.dtype, a.dtype, out.shape, out.kview(), a.kview())
	alive(a, out)
}

func kWhere(out, cond, a, b *Tensor) {
	if out.shapeOnly() {
		return
	}
	if d := out.on(cond, a, b); d != nil && d.where(out, cond, a, b) {
		return
	}
	var bufC, bufA, bufB [MaxDims]int
	kernel.Where(out.dtype, out.shape, out.kview(), cond.stretched(out.shape, &bufC),
		a.stretched(out.shape, &bufA), b.stretched(out.shape, &bufB))
	alive(cond, a, b, out)
}

// From here on all tensors are contiguous.

// kReduce reduces the middle of (outer, n, inner).
func kReduce(kind kernel.ReduceOp, out, a *Tensor, outer, n, inner int) {
	if out.shapeOnly() {
		return
	}
	if d := out.on(a); d != nil {
		in := d.read(a)
		d.Reduce(kind, a.dtype, outer, n, inner, d.write(out), in)
		return
	}
	kernel.Reduce(kind, a.dtype, outer, n, inner, out.ptr(), a.read())
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

// kGemm multiplies; low takes operands as bfloat16, rounding float32 ones, and a bias in float32. add adds to the contents of out.
func kGemm(op string, low bool, out, a, b factor, batch, m, n, k int, bias *Tensor, add bool) {
	if out.t.shapeOnly() {
		return
	}
	if d := out.t.on(); d != nil {
		d.gemm(low, out, a, b, batch, m, n, k, bias, add)
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

// chained strings operations together and keeps the first error. Intermediate results are freed, since nothing else refers to them.
type chained struct {
	t     *Tensor
	fresh bool // t was made in this chain
	err   error
}

func chain(t *Tensor) chained { return chained{t: t} }

func (c chained) then(f func(*Tensor) (*Tensor, error)) chained {
	if c.err != nil {
		return c
	}
	t, err := f(c.t)
	if err != nil {
		return chained{err: err}
	}
	if t.st == c.t.st {
		return chained{t, c.fresh, nil}
	}
	if c.fresh {
		Discard(c.t)
	}
	return chained{t, true, nil}
}

func (c chained) binary(op BinaryOp, b *Tensor) chained {
	return c.then(func(t *Tensor) (*Tensor, error) { return Binary(op, t, b) })
}

func (c chained) scalar(op BinaryOp, s Scalar) chained {
	return c.then(func(t *Tensor) (*Tensor, error) { return BinaryScalar(op, t, s, false) })
}

func (c chained) mul(b *Tensor) chained { return c.binary(OpMul, b) }
func (c chained) div(b *Tensor) chained { return c.binary(OpDiv, b) }
func (c chained) unary(op UnaryOp) chained {
	return c.then(func(t *Tensor) (*Tensor, error) { return Unary(op, t) })
}
func (c chained) end() (*Tensor, error) { return c.t, c.err }

// A builder makes the operands and results of one operation. On failure it ends the function that
// uses it, as try.To does.
type builder struct {
	op    string
	ctx   *Context
	dtype dtype.Type
}

// build makes tensors for op, of t's context and type unless stated otherwise.
func build(op string, t *Tensor) builder { return builder{op, t.ctx, t.dtype} }

// like returns a new tensor of the builder's type.
func (b *builder) like(shape ...int) *Tensor { return b.of(b.dtype, shape...) }

// of returns a new tensor of another type.
func (b *builder) of(dt dtype.Type, shape ...int) *Tensor {
	return newTensor(b.op, b.ctx, shape, dt)
}

// zeros returns a new tensor of zeros of another type.
func (b *builder) zeros(dt dtype.Type, shape ...int) *Tensor {
	t := b.of(dt, shape...)
	if !t.shapeOnly() {
		zero(t)
	}
	return t
}

// contiguous returns t, or a copy in row-major order; nil for nil.
func (b *builder) contiguous(t *Tensor) *Tensor {
	if t == nil || t.contiguous {
		return t
	}
	return contiguous(t)
}

// cast returns t in another type.
func (b *builder) cast(t *Tensor, dt dtype.Type) *Tensor { return cast(b.op, t, dt) }

// indices returns the int64 elements of a tensor of integers, in row-major order.
func (b *builder) indices(t *Tensor) *Tensor { return b.contiguous(b.cast(t, dtype.Int64)) }
