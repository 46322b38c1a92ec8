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
func (d *Device) typed(file, name string, dt dtype.Type, options string) C.cl_kernel {
	return d.kernel(kernelKey{file: file, name: name, in: dt, options: options}, func() string {
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

// parts returns how a long row is divided.
func parts(n int) (each, count int) {
	cuts := (n + long - 1) / long
	each = (cuts + mostOf - 1) / mostOf * long
	return each, (n + each - 1) / each
}

// Reduce is [kernel.Reduce].
func (d *Device) Reduce(op kernel.ReduceOp, dt dtype.Type, outer, n, inner int, out, in Place) {
	options, ok := reduceOptions[op]
	if !ok || !real(dt) {
		d.reduceWhole(op, dt, outer, n, inner, out, in)
		return
	}
	switch {
	case outer*inner == 0:
	case inner != 1:
		k := d.typed("reduce.cl", "columns", dt, options)
		d.begin().place(out).place(in).longs(outer, n, inner)
		d.line(k, outer*inner)
	case outer == 1 && n > long:
		each, count := parts(n)
		room := d.Get("sum", 8*count)
		defer d.Put(room)
		d.partial(d.typed("reduce.cl", "rows", dt, options), room, in, each, n, count)
		k := d.typed("reduce.cl", "join_parts", dt, options)
		d.begin().place(out).buffer(room).long(count)
		d.launch(k, [3]int{1, 1, 1}, [3]int{1, 1, 1})
	default:
		k := d.typed("reduce.cl", "rows", dt, options)
		d.begin().place(out).buffer(Buffer{}).place(in).longs(n, outer*n)
		d.rows(k, outer)
	}
}

func (d *Device) partial(k C.cl_kernel, room Buffer, in Place, each, n, count int) {
	d.begin().place(Place{}).buffer(room).place(in).longs(each, n)
	d.rows(k, count)
}

// SquareSum is [kernel.SquareSum], whose result becomes element i of float64s.
func (d *Device) SquareSum(dt dtype.Type, n int, out Buffer, i int, in Place) {
	each, count := max(n, 1), 1
	if n > long {
		each, count = parts(n)
	}
	room := d.Get("sum", 8*count)
	defer d.Put(room)
	d.partial(d.typed("reduce.cl", "rows", dt, " -DSQUARES"), room, in, each, n, count)
	k := d.typed("reduce.cl", "join_parts", dt, " -DSQUARES")
	d.begin().place(Place{Buffer: out, At: i}).buffer(room).long(count)
	d.launch(k, [3]int{1, 1, 1}, [3]int{1, 1, 1})
}

// Softmax is [kernel.Softmax].
func (d *Device) Softmax(dt dtype.Type, logarithm bool, rows, n int, out, in Place) {
	k := d.typed("softmax.cl", "softmax", dt, "")
	d.begin().place(out).place(in).long(n).flag(logarithm)
	d.rows(k, rows)
}

// SoftmaxGrad is [kernel.SoftmaxGrad].
func (d *Device) SoftmaxGrad(dt dtype.Type, logarithm bool, rows, n int, dx, dy, y Place) {
	k := d.typed("softmax.cl", "softmax_grad", dt, "")
	d.begin().place(dx).place(dy).place(y).long(n).flag(logarithm)
	d.rows(k, rows)
}

// CrossEntropy is [kernel.CrossEntropy].
func (d *Device) CrossEntropy(dt dtype.Type, rows, n int, loss, lse, logits, target Place) {
	k := d.typed("softmax.cl", "cross_entropy", dt, "")
	d.begin().place(loss).place(lse).place(logits).place(target).long(n)
	d.rows(k, rows)
}

// CrossEntropyGrad is [kernel.CrossEntropyGrad].
func (d *Device) CrossEntropyGrad(dt dtype.Type, rows, n int, dlogits, dloss Place, stride int, scale float64, logits, lse, target Place) {
	k := d.typed("softmax.cl", "cross_entropy_grad", dt, "")
	d.begin().place(dlogits).place(dloss).place(logits).place(lse).place(target).longs(rows, n, stride).real(dt, scale)
	d.line(k, rows*n)
}

// LayerNorm is [kernel.LayerNorm].
func (d *Device) LayerNorm(dt dtype.Type, rows, n int, eps float64, y, mean, rstd, x, gamma, beta Place) {
	k := d.typed("norm.cl", "layer_norm", dt, "")
	d.begin().place(y).place(mean).place(rstd).place(x).place(gamma).place(beta).long(n).double(eps)
	d.rows(k, rows)
}

// LayerNormGrad is [kernel.LayerNormGrad].
func (d *Device) LayerNormGrad(dt dtype.Type, rows, n int, add bool, dx, dgamma, dbeta, dy, x, gamma, mean, rstd Place) {
	if !dx.Buffer.None() {
		k := d.typed("norm.cl", "layer_norm_grad", dt, "")
		d.begin().place(dx).place(dy).place(x).place(gamma).place(mean).place(rstd).long(n).flag(add)
		d.rows(k, rows)
	}
	if !dgamma.Buffer.None() || !dbeta.Buffer.None() {
		k := d.typed("norm.cl", "layer_norm_grad_columns", dt, "")
		d.begin().place(dgamma).place(dbeta).place(dy).place(x).place(mean).place(rstd).longs(rows, n)
		d.line(k, n)
	}
}

// moved returns a kernel of index.cl.
func (d *Device) moved(name string, dt dtype.Type) C.cl_kernel {
	return d.kernel(kernelKey{file: "index.cl", name: name, op: dt.Size()}, func() string { return " -DWORD=" + words[dt.Size()] })
}

// Take is [kernel.Take].
func (d *Device) Take(dt dtype.Type, outer, rows, inner, count int, out, in, index Place) {
	k := d.moved("take", dt)
	d.begin().place(out).place(in).place(index).longs(outer*count*inner, count, rows, inner)
	d.line(k, outer*count*inner)
}

// Gather is [kernel.Gather].
func (d *Device) Gather(dt dtype.Type, outer, to, from, inner int, out, in, index Place) {
	k := d.moved("gather", dt)
	d.begin().place(out).place(in).place(index).longs(outer*to*inner, to, from, inner)
	d.line(k, outer*to*inner)
}

// Scatter is [kernel.Scatter], or without each [kernel.Put] of `from` indices.
func (d *Device) Scatter(dt dtype.Type, outer, from, to, inner int, out, in, index Place, each bool) {
	k := d.moved("scatter", dt)
	d.begin().place(out).place(in).place(index).longs(outer*inner, from, to, inner).flag(each)
	d.line(k, outer*inner)
}

// AddRows is [kernel.AddRows].
func (d *Device) AddRows(dt dtype.Type, n, rows int, out, in, index Place) {
	k := d.typed("rows.cl", "add_rows", dt, "")
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
		k := d.typed("activate.cl", "run", dt, " -DOP="+activations[f]+"_sloped_"+suffixes[dt])
		d.begin().place(out).place(slope).place(x).long(n).real(dt, a).real(dt, b)
		d.line(k, n)
	}
	return true
}

func (c *call) stream(s kernel.Stream) *call { return c.longs(int(s.Seed), int(s.Stream), int(s.At)) }

// Dropout is [kernel.Stream.Dropout].
func (d *Device) Dropout(s kernel.Stream, dt dtype.Type, n int, out, in Place, keep float64) {
	k := d.typed("random.cl", "dropout", dt, "")
	d.begin().place(out).place(in).long(n).double(keep).stream(s)
	d.line(k, n)
}

// Draw is [kernel.Stream.Uniform] or [kernel.Stream.Normal].
func (d *Device) Draw(s kernel.Stream, normal bool, dt dtype.Type, n int, out Place) {
	name := "uniform"
	if normal {
		name = "normal"
	}
	k := d.typed("random.cl", name, dt, "")
	d.begin().place(out).long(n).stream(s)
	d.line(k, n)
}

// Bounded is [kernel.Stream.Bounded].
func (d *Device) Bounded(s kernel.Stream, n int, out Place, low int64, count uint64) {
	k := d.typed("random.cl", "bounded", dtype.Float64, "")
	d.begin().place(out).long(n).stream(s).longs(int(low), int(count))
	d.line(k, n)
}

// SGD is the Step of [kernel.SGD].
func (d *Device) SGD(s kernel.SGD, dt dtype.Type, n int, p, g, m Place) {
	k := d.typed("update.cl", "sgd", dt, "")
	d.begin().place(p).place(g).place(m).long(n).reals(dt, s.LR, s.Momentum, s.WeightDecay).flag(s.Nesterov).flag(s.First)
	d.line(k, n)
}

// Adam is the Step of [kernel.Adam]: what is derived from the settings is computed in float64 and rounded once.
func (d *Device) Adam(a kernel.Adam, dt dtype.Type, n int, p, g, m, v Place) {
	decay := a.WeightDecay
	if a.Decoupled {
		decay *= a.LR
	}
	correction, scale := 1/math.Sqrt(1-wholePower(a.Beta2, a.Count)), a.LR/(1-wholePower(a.Beta1, a.Count))
	k := d.typed("update.cl", "adam", dt, "")
	d.begin().place(p).place(g).place(m).place(v).long(n).reals(dt, decay, a.Beta1, a.Beta2, 1-a.Beta1, 1-a.Beta2, a.Eps, correction, scale).flag(a.Decoupled)
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
	k := d.typed("update.cl", "scale", dt, "")
	d.begin().place(x).long(n).real(dt, by)
	d.line(k, n)
}

// RMSprop is the Step of [kernel.RMSprop].
func (d *Device) RMSprop(r kernel.RMSprop, dt dtype.Type, n int, p, g, v, m, a Place) {
	k := d.typed("update.cl", "rmsprop", dt, "")
	d.begin().place(p).place(g).place(v).place(m).place(a).long(n).reals(dt, r.LR, r.Alpha, 1-r.Alpha, r.Eps, r.WeightDecay, r.Momentum)
	d.line(k, n)
}

// Adagrad is the Step of [kernel.Adagrad].
func (d *Device) Adagrad(r kernel.Adagrad, dt dtype.Type, n int, p, g, v Place) {
	k := d.typed("update.cl", "adagrad", dt, "")
	d.begin().place(p).place(g).place(v).long(n).reals(dt, r.LR, r.Eps, r.WeightDecay)
	d.line(k, n)
}

// Lion is the Step of [kernel.Lion].
func (d *Device) Lion(r kernel.Lion, dt dtype.Type, n int, p, g, m Place) {
	k := d.typed("update.cl", "lion", dt, "")
	d.begin().place(p).place(g).place(m).long(n).reals(dt, r.LR, r.Beta1, 1-r.Beta1, r.Beta2, 1-r.Beta2, r.LR*r.WeightDecay)
	d.line(k, n)
}
