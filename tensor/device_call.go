package tensor

import (
	"unsafe"

	"drun/kernel"
	"drun/kernel/opencl"
)

// The calls of call.go, on a device. Each reports false if there is no kernel: then nothing was computed.

// stretch is stretched on the device.
func (d *device) stretch(t *Tensor, shape []int, buf *[MaxDims]int) opencl.Operand {
	if sameShape(shape, t.shape) {
		return d.operand(t, t.strides)
	}
	broadcastStrides(buf[:len(shape)], shape, t)
	return d.operand(t, buf[:len(shape)])
}

func (d *device) binary(op BinaryOp, out, a, b *Tensor) bool {
	var bufA, bufB [MaxDims]int
	x, y := d.stretch(a, out.shape, &bufA), d.stretch(b, out.shape, &bufB)
	if x.Buffer.None() && y.Buffer.None() { // only one operand may be a number
		x.Place = d.read(a)
	}
	return d.binaryOf(op, out, a, x, y)
}

func (d *device) binaryNumber(op BinaryOp, out, a *Tensor, s Scalar, swapped bool) bool {
	var number uint64
	s.put(unsafe.Pointer(&number), a.dtype)
	x, y := opencl.Operand{Place: d.read(a), Strides: a.strides}, opencl.Operand{Number: number, Strides: noStrides[:len(out.shape)]}
	if swapped {
		x, y = y, x
	}
	return d.binaryOf(op, out, a, x, y)
}

func (d *device) binaryOf(op BinaryOp, out, a *Tensor, x, y opencl.Operand) bool {
	if op.compares() {
		return d.Compare(kernel.CompareOp(op-OpEq), a.dtype, out.shape, d.result(out), x, y)
	}
	return d.Binary(kernel.BinaryOp(op), a.dtype, out.shape, d.result(out), x, y)
}

func (d *device) unary(op UnaryOp, out, a *Tensor) bool {
	x := opencl.Operand{Place: d.read(a), Strides: a.strides}
	return d.Unary(kernel.UnaryOp(op), a.dtype, out.shape, d.result(out), x)
}

func (d *device) unaryGrad(op UnaryOp, out, g, v *Tensor) bool {
	dy, saved := opencl.Operand{Place: d.read(g), Strides: g.strides}, opencl.Operand{Place: d.read(v), Strides: v.strides}
	return d.UnaryGrad(kernel.UnaryOp(op), g.dtype, out.shape, d.result(out), dy, saved)
}

func (d *device) copy(out, a *Tensor) bool {
	x := d.operand(a, a.strides)
	return d.Copy(out.dtype, out.shape, d.result(out), x)
}

func (d *device) cast(out, a *Tensor) bool {
	x := opencl.Operand{Place: d.read(a), Strides: a.strides}
	return d.Cast(out.dtype, a.dtype, out.shape, d.result(out), x)
}

func (d *device) where(out, cond, a, b *Tensor) bool {
	var bufC, bufA, bufB [MaxDims]int
	c := d.stretch(cond, out.shape, &bufC)
	if c.Buffer.None() {
		c.Place = d.read(cond)
	}
	x, y := d.stretch(a, out.shape, &bufA), d.stretch(b, out.shape, &bufB)
	if x.Buffer.None() && y.Buffer.None() {
		x.Place = d.read(a)
	}
	return d.Where(out.dtype, out.shape, d.result(out), c, x, y)
}

func (d *device) gemm(low bool, out, a, b factor, batch, m, n, k int, bias *Tensor, add bool) {
	of := func(f factor, p opencl.Place) opencl.Matrix {
		return opencl.Matrix{Place: p.Plus(f.off), Stride: f.ld, Trans: f.trans, Batch: f.batchStep}
	}
	x, y, beta := of(a, d.read(a.t)), of(b, d.read(b.t)), maybe(d.read, bias)
	use := d.write
	if add || batch*m*n != out.t.n {
		use = d.change
	}
	c := of(out, use(out.t))
	if low {
		d.GemmHalf(batch, m, n, k, out.t.dtype, c, a.t.dtype, x, b.t.dtype, y, add, beta)
	} else {
		d.Gemm(out.t.dtype, batch, m, n, k, c, x, y, add, beta)
	}
}
