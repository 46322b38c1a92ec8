package opencl

import (
	"drun/kernel"
	"drun/kernel/dtype"
)

// overLines launches the kernel `name` of lines.cl whose arguments have been collected: a group for each line of runs, or a work-item
// for each column.
func (d *Device) overLines(name string, dt dtype.Type, l kernel.Lines) {
	if l.Run > 1 {
		d.rows(d.typed("lines.cl", name+"_runs", dt, ""), l.Outer*l.Side)
	} else {
		d.line(d.typed("lines.cl", name+"_columns", dt, ""), l.Outer*l.Side)
	}
}

func (c *call) lines(l kernel.Lines) *call { return c.longs(l.Outer, l.N, l.Side, l.Run) }

// cuts returns how the only line is cut into parts for a first and a second pass; other lines are not cut.
func cuts(l kernel.Lines) (first, second int) {
	first, second = max(l.Run, 1), max(l.Run, 1)
	if l.Outer*l.N*l.Side == 1 && l.Run > long {
		first, _ = parts(l.Run)
		for second = long; second*mostOf < l.Run; second *= 2 {
		}
	}
	return first, second
}

// Moments is [kernel.Moments].
func (d *Device) Moments(dt dtype.Type, l kernel.Lines, correction int, mean, low, variance, in Place) {
	first, second := cuts(l)
	d.begin().lines(l).place(mean).place(low).place(variance).place(in).double(float64(l.N*l.Run-correction)).longs(first, second)
	d.overLines("moments", dt, l)
}

// SquareSums is [kernel.SquareSums].
func (d *Device) SquareSums(dt dtype.Type, l kernel.Lines, out, in Place) {
	first, _ := cuts(l)
	d.begin().lines(l).place(out).place(in).long(first)
	d.overLines("squares", dt, l)
}

// Affine is [kernel.Affine] on the device.
type Affine struct{ Mean, Low, Scale, Gamma, Beta Place }

// ScaleLines is [kernel.ScaleLines].
func (d *Device) ScaleLines(dt dtype.Type, l kernel.Lines, a Affine, y, x Place) {
	k := d.typed("lines.cl", "scale_lines", dt, "")
	d.begin().lines(l).place(y).place(x).place(a.Mean).place(a.Low).place(a.Scale).place(a.Gamma).place(a.Beta)
	d.line(k, l.Outer*l.N*l.Side*l.Run)
}

// BatchNormGrad is [kernel.BatchNormGrad].
func (d *Device) BatchNormGrad(dt dtype.Type, l kernel.Lines, a Affine, training bool, dx, dgamma, dbeta, dy, x Place) {
	sums := d.Get("batch_norm", max(2*l.Side*dt.Size(), 1))
	defer d.Put(sums)
	begin := func() *call {
		return d.begin().lines(l).buffer(sums).place(dy).place(x).place(a.Mean).place(a.Low).place(a.Scale)
	}
	begin()
	d.overLines("batch_sums", dt, l)
	for i, to := range []Place{dbeta, dgamma} {
		d.addSums(dt, to, sums, i*l.Side, l.Side, 1, 1, 0)
	}
	if !dx.Buffer.None() {
		k := d.typed("lines.cl", "batch_grad", dt, "")
		begin().place(dx).place(a.Gamma).flag(training).double(float64(l.N * l.Run))
		d.line(k, l.N*l.Side*l.Run)
	}
}

// addSums adds to n elements `count` sums each, which lie `apart`.
func (d *Device) addSums(dt dtype.Type, to Place, sums Buffer, at, n, step, count, apart int) {
	if to.Buffer.None() {
		return
	}
	k := d.typed("lines.cl", "add_sums", dt, "")
	d.begin().place(to).buffer(sums).longs(at, n, step, count, apart)
	d.line(k, n)
}

// GroupNorm is the Norm of [kernel.Groups].
func (d *Device) GroupNorm(g kernel.Groups, dt dtype.Type, eps float64, y, mean, rstd, x, gamma, beta Place) {
	k := d.typed("lines.cl", "group_norm", dt, "")
	d.begin().longs(g.Groups, g.Each, g.Run).place(y).place(mean).place(rstd).place(x).place(gamma).place(beta).double(eps)
	d.rows(k, g.Rows)
}

// GroupNormGrad is the Grad of [kernel.Groups].
func (d *Device) GroupNormGrad(g kernel.Groups, dt dtype.Type, dx, dgamma, dbeta, dy, x, gamma, mean, rstd Place) {
	sums := d.Get("group_norm", max(2*g.Rows*g.Each*dt.Size(), 1))
	defer d.Put(sums)
	k := d.typed("lines.cl", "group_norm_grad", dt, "")
	d.begin().longs(g.Groups, g.Each, g.Run).place(dx).buffer(sums).place(dy).place(x).place(gamma).place(mean).place(rstd)
	d.rows(k, g.Rows)
	channels := g.Groups * g.Each
	for i, to := range []Place{dbeta, dgamma} {
		d.addSums(dt, to, sums, i, channels, 2, g.Rows/max(g.Groups, 1), 2*channels)
	}
}
