package opencl

import (
	"drun/kernel"
	"drun/kernel/dtype"
)

// geometry passes the window of conv.cl and pool.cl.
func (c *call) geometry(w kernel.Window) *call {
	g := w.Geometry()
	for i, v := range g {
		c.words[c.used+i] = uint64(v)
	}
	c.sizes[c.arguments] = uint16(8 * len(g))
	c.arguments, c.used = c.arguments+1, c.used+len(g)
	return c
}

// together is how many filters or channels a work-item computes.
const together = 8

// Conv2d is [kernel.Conv2d].
func (d *Device) Conv2d(dt dtype.Type, w kernel.Window, y, x, weight, bias Place) {
	h, v := w.Out()
	k := d.typed("conv.cl", "conv2d", dt, "")
	d.begin().geometry(w).place(y).place(x).place(weight).place(bias)
	d.launch(k, [3]int{(h*v + 63) / 64, (w.Filters + together - 1) / together, w.Batch}, [3]int{64, 1, 1})
}

// ConvTranspose2d is [kernel.ConvTranspose2d], and without a bias [kernel.Conv2dGradInput].
func (d *Device) ConvTranspose2d(dt dtype.Type, w kernel.Window, dx, dy, weight, bias Place) {
	k := d.typed("conv.cl", "conv2d_grad_input", dt, "")
	d.begin().geometry(w).place(dx).place(dy).place(weight).place(bias)
	d.launch(k, [3]int{(w.Height*w.Width + 63) / 64, (w.Channels + together - 1) / together, w.Batch}, [3]int{64, 1, 1})
}

// Conv2dGradWeight is [kernel.Conv2dGradWeight].
func (d *Device) Conv2dGradWeight(dt dtype.Type, w kernel.Window, dweight, dbias, dy, x Place) {
	if w.Batch == 0 || w.Filters == 0 {
		return
	}
	_, v := w.Out()
	depth, chunk := w.Channels*w.KernelH*w.KernelW, 1
	if v < 256 {
		chunk = 256 / v
	}
	groups := min((1<<20)/(depth*w.Filters+1)+1, 16, w.Batch)
	room := d.Get("conv2d", groups*(depth+1)*w.Filters*dt.Size())
	defer d.Put(room)
	k := d.typed("conv.cl", "conv2d_grad_weight", dt, "")
	d.begin().geometry(w).buffer(room).place(dy).place(x).longs(groups, chunk)
	d.launch(k, [3]int{(depth + 64) / 64, w.Filters, groups}, [3]int{64, 1, 1})
	k = d.typed("conv.cl", "add_groups", dt, "")
	d.begin().place(dweight).place(dbias).buffer(room).longs(groups, depth, w.Filters)
	d.line(k, (depth+1)*w.Filters)
}

// MaxPool2d is [kernel.MaxPool2d].
func (d *Device) MaxPool2d(dt dtype.Type, w kernel.Window, y, indices, x Place) {
	h, v := w.Out()
	k := d.typed("pool.cl", "max_pool", dt, "")
	d.begin().geometry(w).place(y).place(indices).place(x)
	d.line(k, w.Batch*w.Channels*h*v)
}

// AvgPool2d is [kernel.AvgPool2d].
func (d *Device) AvgPool2d(dt dtype.Type, w kernel.Window, y, x Place) {
	h, v := w.Out()
	k := d.typed("pool.cl", "avg_pool", dt, "")
	d.begin().geometry(w).place(y).place(x)
	d.line(k, w.Batch*w.Channels*h*v)
}

// Pool2dGrad is [kernel.MaxPool2dGrad], or without indices [kernel.AvgPool2dGrad].
func (d *Device) Pool2dGrad(dt dtype.Type, w kernel.Window, dx, dy, indices Place) {
	k := d.typed("pool.cl", "pool_grad", dt, "")
	d.begin().geometry(w).place(dx).place(dy).place(indices)
	d.line(k, w.Batch*w.Channels*w.Height*w.Width)
}
