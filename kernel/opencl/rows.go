package opencl

// #include "shim.h"
import "C"

import (
	"math"

	"drun/kernel"
	"drun/kernel/dtype"
)

const (
	lanes  = 16       // work-items of a row
	cut    = 4096     // elements of a row whose sum is added in double
	long   = 16 * cut // elements from which a row is divided into parts
	mostOf = 256      // parts
)

func real(dt dtype.Type) bool { return dt == dtype.Float32 || dt == dtype.Float64 }

// typed returns a kernel for float32 or float64.
func (d *Device) typed(file, name string, dt dtype.Type, variant int, options string) C.cl_kernel {
	return d.kernel(kernelKey{file: file, name: name, in: dt, variant: variant}, func() string {
		if dt == dtype.Float64 {
			options += " -DDOUBLE"
		}
		return options
	})
}

// rows launches a group for each row.
func (d *Device) rows(k C.cl_kernel, n int) { d.launch(k, [3]int{n, 1, 1}, [3]int{lanes, 1, 1}) }

var reduceOptions = map[kernel.ReduceOp]string{
	kernel.Sum: " -DOP=add", kernel.Prod: " -DOP=multiply -DPRODUCT",
	kernel.MinOver: " -DOP=least -DLEAST", kernel.MaxOver: " -DOP=most -DMOST",
}

// squares is a variant of reduce.cl besides the operations.
const squares = -1

// parts returns how a long row is divided.
func parts(n int) (each, count int) {
	cuts := (n + long - 1) / long
	each = (cuts + mostOf - 1) / mostOf * long
	return each, (n + each - 1) / each
}

// Reduce is [kernel.Reduce] of reals.
func (d *Device) Reduce(op kernel.ReduceOp, dt dtype.Type, outer, n, inner int, out, in Place) bool {
	options, ok := reduceOptions[op]
	if !ok || !real(dt) {
		return false
	}
	switch {
	case outer*inner == 0:
	case inner != 1:
		k := d.typed("reduce.cl", "columns", dt, int(op), options)
		d.begin().place(out).place(in).longs(outer, n, inner)
		d.line(k, outer*inner)
	case outer == 1 && n > long:
		each, count := parts(n)
		room := d.Get("sum", 8*count, func() {})
		defer d.Put(room)
		d.partial(d.typed("reduce.cl", "rows", dt, int(op), options), room, in, each, n, count)
		k := d.typed("reduce.cl", "join_parts", dt, int(op), options)
		d.begin().place(out).buffer(room).long(count)
		d.launch(k, [3]int{1, 1, 1}, [3]int{1, 1, 1})
	default:
		k := d.typed("reduce.cl", "rows", dt, int(op), options)
		d.begin().place(out).buffer(Buffer{}).place(in).longs(n, outer*n)
		d.rows(k, outer)
	}
	return true
}

func (d *Device) partial(k C.cl_kernel, room Buffer, in Place, each, n, count int) {
	d.begin().place(Place{}).buffer(room).place(in).longs(each, n)
	d.rows(k, count)
}

// SquareSum is [kernel.SquareSum]; it waits for the result.
func (d *Device) SquareSum(dt dtype.Type, n int, in Place) float64 {
	each, count := max(n, 1), 1
	if n > long {
		each, count = parts(n)
	}
	room := d.Get("sum", 8*count, func() {})
	defer d.Put(room)
	d.partial(d.typed("reduce.cl", "rows", dt, squares, " -DSQUARES"), room, in, each, n, count)
	k := d.typed("reduce.cl", "join_parts", dt, squares, " -DSQUARES")
	d.begin().place(Place{}).buffer(room).long(count)
	d.launch(k, [3]int{1, 1, 1}, [3]int{1, 1, 1})
	return d.double(room)
}

// Softmax is [kernel.Softmax].
func (d *Device) Softmax(dt dtype.Type, logarithm bool, rows, n int, out, in Place) {
	k := d.typed("softmax.cl", "softmax", dt, 0, "")
	d.begin().place(out).place(in).long(n).flag(logarithm)
	d.rows(k, rows)
}

// SoftmaxGrad is [kernel.SoftmaxGrad].
func (d *Device) SoftmaxGrad(dt dtype.Type, logarithm bool, rows, n int, dx, dy, y Place) {
	k := d.typed("softmax.cl", "softmax_grad", dt, 0, "")
	d.begin().place(dx).place(dy).place(y).long(n).flag(logarithm)
	d.rows(k, rows)
}

// CrossEntropy is [kernel.CrossEntropy].
func (d *Device) CrossEntropy(dt dtype.Type, rows, n int, loss, lse, logits, target Place) {
	k := d.typed("softmax.cl", "cross_entropy", dt, 0, "")
	d.begin().place(loss).place(lse).place(logits).place(target).long(n)
	d.rows(k, rows)
}

// CrossEntropyGrad is [kernel.CrossEntropyGrad].
func (d *Device) CrossEntropyGrad(dt dtype.Type, rows, n int, dlogits, dloss Place, stride int, scale float64, logits, lse, target Place) {
	k := d.typed("softmax.cl", "cross_entropy_grad", dt, 0, "")
	d.begin().place(dlogits).place(dloss).place(logits).place(lse).place(target).longs(rows, n, stride).real(dt, scale)
	d.line(k, rows*n)
}

// LayerNorm is [kernel.LayerNorm].
func (d *Device) LayerNorm(dt dtype.Type, rows, n int, eps float64, y, mean, rstd, x, gamma, beta Place) {
	k := d.typed("norm.cl", "layer_norm", dt, 0, "")
	d.begin().place(y).place(mean).place(rstd).place(x).place(gamma).place(beta).long(n).double(eps)
	d.rows(k, rows)
}

// LayerNormGrad is [kernel.LayerNormGrad].
func (d *Device) LayerNormGrad(dt dtype.Type, rows, n int, add bool, dx, dgamma, dbeta, dy, x, gamma, mean, rstd Place) {
	if !dx.Buffer.None() {
		k := d.typed("norm.cl", "layer_norm_grad", dt, 0, "")
		d.begin().place(dx).place(dy).place(x).place(gamma).place(mean).place(rstd).long(n).flag(add)
		d.rows(k, rows)
	}
	if !dgamma.Buffer.None() || !dbeta.Buffer.None() {
		k := d.typed("norm.cl", "layer_norm_grad_columns", dt, 0, "")
		d.begin().place(dgamma).place(dbeta).place(dy).place(x).place(mean).place(rstd).longs(rows, n)
		d.line(k, n)
	}
}

// Matrix is [kernel.Matrix] on the device.
type Matrix struct {
	Place
	Stride int
	Trans  bool
	Batch  int
}

// Gemm is [kernel.Gemm] of reals. B's columns must be adjacent: if it is transposed, it is copied first.
func (d *Device) Gemm(dt dtype.Type, batch, m, n, k int, c, a, b Matrix, accumulate bool, bias Place) bool {
	if !real(dt) {
		return false
	}
	if batch*m*n == 0 {
		return true
	}
	strides := func(x Matrix) (row, column int) {
		if x.Trans {
			return 1, x.Stride
		}
		return x.Stride, 1
	}
	ar, ak := strides(a)
	bk, bn := strides(b)
	if bn != 1 && k > 0 {
		copies := batch
		if b.Batch == 0 {
			copies = 1
		}
		room := d.Get("matmul", copies*n*k*dt.Size(), func() {})
		defer d.Put(room)
		turn := d.typed("product.cl", "turn", dt, 0, "")
		d.begin().buffer(room).place(b.Place).longs(n, k, b.Stride, b.Batch)
		d.launch(turn, [3]int{(k + 15) / 16, (n + 15) / 16, copies}, [3]int{16, 16, 1})
		bk, b.Place = n, Place{Buffer: room}
		if b.Batch != 0 {
			b.Batch = n * k
		}
	}
	const rows, columns = 4, 16 // of a work-item
	product := d.typed("product.cl", "product", dt, 0, "")
	d.begin().place(c.Place).place(a.Place).place(b.Place).place(bias).longs(m, n, k, ar, ak, bk, c.Stride, a.Batch, b.Batch, c.Batch).flag(accumulate)
	d.launch(product, [3]int{(n + columns - 1) / columns, (m + rows - 1) / rows, batch}, [3]int{1, 1, 1})
	return true
}

// Take is [kernel.Take].
func (d *Device) Take(dt dtype.Type, outer, rows, inner, count int, out, in, index Place) {
	total := outer * count * inner
	if total == 0 {
		return
	}
	k := d.kernel(kernelKey{file: "index.cl", name: "take", op: dt.Size()}, func() string { return " -DWORD=" + words[dt.Size()] })
	d.begin().place(out).place(in).place(index).longs(total, count, rows, inner)
	d.line(k, total)
}

// AddRows is [kernel.AddRows].
func (d *Device) AddRows(dt dtype.Type, n, rows int, out, in, index Place) {
	k := d.typed("rows.cl", "add_rows", dt, 0, "")
	d.begin().place(out).place(in).place(index).longs(rows, n)
	d.line(k, n)
}

var activations = map[kernel.Activation]string{kernel.LeakyRelu: "leaky", kernel.Elu: "elu", kernel.Softplus: "softplus", kernel.Mish: "mish",
	kernel.GeluTanh: "gelu_tanh", kernel.Huber: "huber", kernel.GeluSlope: "gelu", kernel.SiluSlope: "silu"}

// Activate is [kernel.Activate] of float32 and float64.
func (d *Device) Activate(dt dtype.Type, f kernel.Activation, n int, a, b float64, out, slope, x Place) bool {
	if !real(dt) {
		return false
	}
	if n > 0 {
		k := d.typed("activate.cl", "run", dt, int(f), " -DOP="+activations[f]+"_sloped_"+suffixes[dt])
		d.begin().place(out).place(slope).place(x).long(n).real(dt, a).real(dt, b)
		d.line(k, n)
	}
	return true
}

// Dropout is [kernel.Stream.Dropout].
func (d *Device) Dropout(s kernel.Stream, dt dtype.Type, n int, out, in Place, keep float64) bool {
	if !real(dt) {
		return false
	}
	if n > 0 {
		k := d.typed("random.cl", "dropout", dt, 0, "")
		d.begin().place(out).place(in).long(n).double(keep).longs(int(s.Seed), int(s.Stream), int(s.At))
		d.line(k, n)
	}
	return true
}

// SGD is the Step of [kernel.SGD].
func (d *Device) SGD(s kernel.SGD, dt dtype.Type, n int, p, g, m Place) {
	k := d.typed("update.cl", "sgd", dt, 0, "")
	d.begin().place(p).place(g).place(m).long(n).real(dt, s.LR).real(dt, s.Momentum).real(dt, s.WeightDecay).flag(s.Nesterov).flag(s.First)
	d.line(k, n)
}

// Adam is the Step of [kernel.Adam]: what is derived from the settings is computed in float64 and rounded once.
func (d *Device) Adam(a kernel.Adam, dt dtype.Type, n int, p, g, m, v Place) {
	decay := a.WeightDecay
	if a.Decoupled {
		decay *= a.LR
	}
	correction, scale := 1/math.Sqrt(1-wholePower(a.Beta2, a.Count)), a.LR/(1-wholePower(a.Beta1, a.Count))
	k := d.typed("update.cl", "adam", dt, 0, "")
	c := d.begin().place(p).place(g).place(m).place(v).long(n)
	for _, x := range []float64{decay, a.Beta1, a.Beta2, 1 - a.Beta1, 1 - a.Beta2, a.Eps, correction, scale} {
		c.real(dt, x)
	}
	c.flag(a.Decoupled)
	d.line(k, n)
}

// wholePower is x^n by squaring, as in optim.h.
func wholePower(x float64, n int) float64 {
	r := 1.0
	for ; n > 0; n, x = n>>1, float64(x*x) {
		if n&1 != 0 {
			r = float64(r * x)
		}
	}
	return r
}

// Scale is [kernel.Scale].
func (d *Device) Scale(dt dtype.Type, n int, x Place, by float64) {
	k := d.typed("update.cl", "scale", dt, 0, "")
	d.begin().place(x).long(n).real(dt, by)
	d.line(k, n)
}
