package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/kernel/opencl"
)

// window checks the geometry of a convolution or pooling over images of a shape (N, C, H, W).
func window(op string, shape []int, size, stride, padding, dilation [2]int) (kernel.Window, error) {
	var w kernel.Window
	if len(shape) != 4 {
		return w, fmt.Errorf("%s: needs an input (N, C, H, W), not shape %s", op, ShapeString(shape))
	}
	for i := range 2 {
		if padding[i] >= maxElems {
			return w, fmt.Errorf("%s: a padding of %d makes too many elements", op, padding[i])
		}
		if dilation[i] < 1 || dilation[i] >= maxElems/max(size[i], 1) {
			return w, fmt.Errorf("%s: a dilation of %d is out of range", op, dilation[i])
		}
		if size[i] < 1 || stride[i] < 1 || padding[i] < 0 {
			return w, fmt.Errorf("%s: kernel and stride must be positive and padding not negative: kernel %v, stride %v, padding %v", op, size, stride, padding)
		}
		// A stride longer than the padded image allows only the first position, like one as long as the image.
		stride[i] = min(stride[i], max(shape[2+i]+2*padding[i], 1))
	}
	w = kernel.Window{Batch: shape[0], Channels: shape[1], Height: shape[2], Width: shape[3],
		KernelH: size[0], KernelW: size[1], StrideH: stride[0], StrideW: stride[1], PadH: padding[0], PadW: padding[1],
		DilationH: dilation[0], DilationW: dilation[1]}
	if h, v := w.Out(); h < 1 || v < 1 {
		return w, fmt.Errorf("%s: a kernel of %d×%d does not fit an input of shape %s with padding %d×%d", op, size[0], size[1], ShapeString(shape), padding[0], padding[1])
	}
	return w, nil
}

// padded checks that memory can hold an image with its padding.
func padded(op string, w kernel.Window, dt dtype.Type) error {
	h, v := w.Out()
	n, err := countElems(op, []int{w.Channels, w.StrideH, w.StrideW, h + (w.KernelH-1)*w.DilationH/w.StrideH, v + (w.KernelW-1)*w.DilationW/w.StrideW})
	if err != nil || n > Memory().Limit/dt.Size() {
		return fmt.Errorf("%s: with a padding of (%d, %d) an image of %d×%d does not fit in this machine's memory", op, w.PadH, w.PadW, w.Height, w.Width)
	}
	return nil
}

// ConvOptions are the settings of a convolution of images, for height and width.
type ConvOptions struct {
	Stride, Padding, Dilation [2]int
	Groups                    int    // of channels; each is convolved with its own filters
	OutputPadding             [2]int // of a transposed convolution: added to the output's size
}

// Convolve convolves x (N, C, H, W) with weight (F, C/groups, KH, KW) and adds bias (F), which may be nil.
func Convolve(op string, x, weight, bias *Tensor, o ConvOptions) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer lowered(&x, &weight, &bias).round(&result)
	w := try.To(convolution(op, x, weight, bias, o))
	h, v := w.Out()
	b := build(op, x)
	in, filters, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(w.Batch, w.Filters, h, v)
	if out.shapeOnly() {
		return out, nil
	}
	convolve(op, w, o.Groups, false, out, in, filters, beta)
	if recordsAny(x, weight, bias) {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) { backConv2d(n, g, out, w, o.Groups) },
			x, weight, bias).save(in, filters)
		if n.again != nil {
			n.bilinear(func(in []*Tensor) *Tensor { return try.To(Convolve(op, in[0], in[1], nil, o)) }, biasTwice)
		}
	}
	return out, nil
}

// convolution checks the operands of a convolution, and returns its geometry.
func convolution(op string, x, weight, bias *Tensor, o ConvOptions) (w kernel.Window, err error) {
	defer try.Caught(&err)
	sameFloat(op, x, weight, bias)
	if len(x.shape) != 4 || len(weight.shape) != 4 || weight.shape[1]*o.Groups != x.shape[1] {
		try.Fail("%s: an input of shape %s does not fit a weight of shape %s: expected (N, C, H, W) and (F, C, KH, KW)", op, ShapeString(x.shape), ShapeString(weight.shape))
	}
	if o.Groups < 1 || weight.shape[0]%o.Groups != 0 {
		return w, fmt.Errorf("%s: %d groups do not divide the %d filters of a weight of shape %s", op, o.Groups, weight.shape[0], ShapeString(weight.shape))
	}
	fitsBias(op, weight, bias, weight.shape[0])
	w = try.To(window(op, x.shape, [2]int{weight.shape[2], weight.shape[3]}, o.Stride, o.Padding, o.Dilation))
	w.Filters = weight.shape[0]
	return w, padded(op, w, x.dtype)
}

// groupAt is where a group's parts of a convolution's tensors begin, in elements.
type groupAt struct{ x, w, y int }

// eachGroup calls fn with the geometry of each group of channels.
func eachGroup(w kernel.Window, groups int, fn func(w kernel.Window, group int, at groupAt) error) error {
	h, v := w.Out()
	one := w
	one.Channels, one.Filters = w.Channels/groups, w.Filters/groups
	one.NextX, one.NextY = w.Channels*w.Height*w.Width, w.Filters*h*v
	for i := range groups {
		at := groupAt{i * one.Channels * w.Height * w.Width, i * one.Filters * one.Channels * w.KernelH * w.KernelW, i * one.Filters * h * v}
		if err := fn(one, i, at); err != nil {
			return err
		}
	}
	return nil
}

// partOr returns the address of t's element at, or nil if t is nil.
func partOr(t *Tensor, at int) unsafe.Pointer {
	if t == nil {
		return nil
	}
	return t.ptrAt(at)
}

// readPartOr is partOr for elements that are only read.
func readPartOr(t *Tensor, at int) unsafe.Pointer {
	if t == nil {
		return nil
	}
	return t.readAt(at)
}

// convolve computes out of in, or with transposed the transposed convolution of a window that goes over out; beta may be nil.
func convolve(op string, w kernel.Window, groups int, transposed bool, out, in, filters, beta *Tensor) {
	d := out.on()
	var to, from, weight, bias opencl.Place
	if d != nil {
		from, weight, bias = d.read(in), d.read(filters), maybe(d.read, beta)
		to = d.write(out)
	}
	try.Ok(Starved(op, eachGroup(w, groups, func(w kernel.Window, i int, at groupAt) error {
		switch {
		case d != nil && transposed:
			d.ConvTranspose2d(out.dtype, w, to.Plus(at.x), from.Plus(at.y), weight.Plus(at.w), bias.Plus(i*w.Channels))
		case d != nil:
			d.Conv2d(out.dtype, w, to.Plus(at.y), from.Plus(at.x), weight.Plus(at.w), bias.Plus(i*w.Filters))
		case transposed:
			return kernel.ConvTranspose2d(out.dtype, w, out.ptrAt(at.x), in.readAt(at.y), filters.readAt(at.w), readPartOr(beta, i*w.Channels))
		default:
			return kernel.Conv2d(out.dtype, w, out.ptrAt(at.y), in.readAt(at.x), filters.readAt(at.w), readPartOr(beta, i*w.Filters))
		}
		return nil
	})))
	alive(out, in, filters, beta)
}

// addWeightGrad adds to the gradients of a convolution's weight and bias; either may be nil.
func addWeightGrad(op string, w kernel.Window, groups int, dweight, dbias, dy, x *Tensor) {
	if dweight == nil && dbias == nil {
		return
	}
	d := dy.ctx.deviceOf(dweight, dbias)
	var dw, db, from, in opencl.Place
	if d != nil {
		from, in = d.read(dy), d.read(x)
		dw, db = maybe(d.change, dweight), maybe(d.change, dbias)
	}
	try.Ok(Starved(op, eachGroup(w, groups, func(w kernel.Window, i int, at groupAt) error {
		if d != nil {
			d.Conv2dGradWeight(dy.dtype, w, dw.Plus(at.w), db.Plus(i*w.Filters), from.Plus(at.y), in.Plus(at.x))
			return nil
		}
		return kernel.Conv2dGradWeight(dy.dtype, w, partOr(dweight, at.w), partOr(dbias, i*w.Filters), dy.readAt(at.y), x.readAt(at.x))
	})))
	alive(dy, x)
}

func backConv2d(n *node, g *Tensor, out []*Tensor, w kernel.Window, groups int) {
	x, weight := n.val(0), n.val(1)
	dy, dweight, dbias := n.layerGrads(g, out)
	if n.needs(0) {
		convolve(n.op, w, groups, true, out[0], dy, weight, nil)
	}
	addWeightGrad(n.op, w, groups, dweight, dbias, dy, x)
}

// ConvTranspose2d spreads x (N, F, H, W) by the strides and convolves it with the flipped weight (F, C/groups, KH,
// KW): the gradient of a convolution with respect to its input. bias (C) may be nil.
func ConvTranspose2d(x, weight, bias *Tensor, o ConvOptions) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer lowered(&x, &weight, &bias).round(&result)
	const op = "conv_transpose2d"
	sameFloat(op, x, weight, bias)
	if len(x.shape) != 4 || len(weight.shape) != 4 || weight.shape[0] != x.shape[1] || o.Groups < 1 || weight.shape[0]%o.Groups != 0 {
		return nil, fmt.Errorf("%s: an input of shape %s does not fit a weight of shape %s with %d groups: expected (N, C, H, W) and (C, F, KH, KW)",
			op, ShapeString(x.shape), ShapeString(weight.shape), o.Groups)
	}
	channels := weight.shape[1] * o.Groups
	fitsBias(op, weight, bias, channels)
	var size [2]int
	for i := range 2 {
		s, p, d, k, extra := o.Stride[i], o.Padding[i], o.Dilation[i], weight.shape[2+i], o.OutputPadding[i]
		if s < 1 || s >= maxElems || p < 0 || p >= maxElems || d < 1 || d >= maxElems/max(k, 1) || k < 1 || extra < 0 || extra >= max(s, d) {
			return nil, fmt.Errorf("%s: stride %v, padding %v, dilation %v, output_padding %v: want positive strides and dilations, paddings of 0 or more, and output_padding below the larger of stride and dilation",
				op, o.Stride, o.Padding, o.Dilation, o.OutputPadding)
		}
		try.FailIf(x.shape[2+i] > 0 && x.shape[2+i] >= maxElems/s, "%s: a stride of %d makes too many elements", op, s)
		if size[i] = (x.shape[2+i]-1)*s - 2*p + d*(k-1) + extra + 1; size[i] < 1 || x.shape[2+i] < 1 {
			return nil, fmt.Errorf("%s: nothing is left of an input of shape %s with a kernel of %d×%d and padding %v", op, ShapeString(x.shape), weight.shape[2], weight.shape[3], o.Padding)
		}
	}
	b := build(op, x)
	in, filters, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(x.shape[0], channels, size[0], size[1])
	w := kernel.Window{Batch: x.shape[0], Channels: channels, Height: size[0], Width: size[1], Filters: x.shape[1], KernelH: weight.shape[2], KernelW: weight.shape[3],
		StrideH: o.Stride[0], StrideW: o.Stride[1], PadH: o.Padding[0], PadW: o.Padding[1], DilationH: o.Dilation[0], DilationW: o.Dilation[1],
		OutH: x.shape[2], OutW: x.shape[3]}
	try.Ok(padded(op, w, x.dtype))
	if out.shapeOnly() {
		return out, nil
	}
	convolve(op, w, o.Groups, true, out, in, filters, beta)
	if recordsAny(x, weight, bias) {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) { backConvTranspose2d(n, g, out, w, o.Groups) },
			x, weight, bias).save(in, filters)
		if n.again != nil {
			n.bilinear(func(in []*Tensor) *Tensor { return try.To(ConvTranspose2d(in[0], in[1], nil, o)) }, biasTwice)
		}
	}
	return out, nil
}

func backConvTranspose2d(n *node, g *Tensor, out []*Tensor, w kernel.Window, groups int) {
	b := build(n.op, g)
	dy := b.contiguous(g)
	if n.needs(0) {
		out[0] = b.like(n.in[0].shape()...)
		convolve(n.op, w, groups, false, out[0], dy, n.val(1), nil)
	}
	if n.needs(1) {
		addWeightGrad(n.op, w, groups, n.sumPlace(1, dy, out), nil, n.val(0), dy)
	}
	if n.needs(2) {
		out[2] = reduceDims(n.op, kernel.Sum, dy, []int{0, 2, 3}, false)
	}
	alive(dy)
}

// MaxPool2d takes the largest element under each position of the kernel.
func MaxPool2d(x *Tensor, size, stride, padding [2]int) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&x).round(&result)
	const op = "max_pool2d"
	w, in, out := pool2d(op, x, size, stride, padding)
	if w.Height*w.Width > math.MaxInt32 {
		return nil, fmt.Errorf("%s: an image of %d×%d has too many elements for the indices of the maxima", op, w.Height, w.Width)
	}
	at := newTensor(op, x.ctx, out.shape, dtype.Int32)
	if d := out.on(); d != nil {
		x := d.read(in)
		d.MaxPool2d(out.dtype, w, d.write(out), d.write(at), x)
	} else if !out.shapeOnly() {
		kernel.MaxPool2d(x.dtype, w, out.ptr(), Elems[int32](at), in.read())
	}
	alive(in, at)
	if records(x, nil) {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			backPool(n, g, out, w, n.val(0))
		}, x).save(at)
		if n.again != nil {
			n.composed(func(in []*Tensor) *Tensor {
				flat := func(t *Tensor) *Tensor { return try.To(Reshape(t, []int{w.Batch, w.Channels, product(t.shape[2:])})) }
				index := flat(try.To(Cast(n.val(0), dtype.Int64)))
				return try.To(Reshape(try.To(Gather(flat(in[0]), 2, index)), n.shape))
			})
		}
	}
	Discard(at)
	return out, nil
}

// AvgPool2d averages over each position of the kernel; padding counts as zeros.
func AvgPool2d(x *Tensor, size, stride, padding [2]int) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&x).round(&result)
	const op = "avg_pool2d"
	w, in, out := pool2d(op, x, size, stride, padding)
	if d := out.on(); d != nil {
		x := d.read(in)
		d.AvgPool2d(out.dtype, w, d.write(out), x)
	} else if !out.shapeOnly() {
		kernel.AvgPool2d(x.dtype, w, out.ptr(), in.read())
	}
	alive(in)
	if records(x, nil) {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			backPool(n, g, out, w, nil)
		}, x)
		if n.again != nil {
			n.linear(func(in []*Tensor) *Tensor { return try.To(AvgPool2d(in[0], size, stride, padding)) })
		}
	}
	return out, nil
}

func pool2d(op string, x *Tensor, size, stride, padding [2]int) (w kernel.Window, in, out *Tensor) {
	try.Ok(NeedFloat(op, x))
	w = try.To(pooling(op, x.shape, size, stride, padding))
	h, v := w.Out()
	b := build(op, x)
	in, out = b.contiguous(x), b.like(w.Batch, w.Channels, h, v)
	return w, in, out
}

// pooling checks the geometry of a pooling over images of a shape (N, C, H, W).
func pooling(op string, shape []int, size, stride, padding [2]int) (kernel.Window, error) {
	w, err := window(op, shape, size, stride, padding, [2]int{1, 1})
	if err == nil && (padding[0] > size[0]/2 || padding[1] > size[1]/2) {
		err = fmt.Errorf("%s: padding %v is more than half the kernel %v", op, padding, size)
	}
	return w, err
}

// backPool is the gradient of a pooling: at has the places of the maxima; it is nil for averages.
func backPool(n *node, g *Tensor, out []*Tensor, w kernel.Window, at *Tensor) {
	b := build(n.op, g)
	dy, dx := b.contiguous(g), b.like(n.in[0].shape()...)
	out[0] = dx
	if d := dx.on(); d != nil {
		dy, at := d.read(dy), maybe(d.read, at)
		d.Pool2dGrad(g.dtype, w, d.write(dx), dy, at)
	} else if at != nil {
		kernel.MaxPool2dGrad(g.dtype, w, dx.ptr(), dy.read(), Values[int32](at))
	} else {
		kernel.AvgPool2dGrad(g.dtype, w, dx.ptr(), dy.read())
	}
	alive(dy)
}

// ConvolvePooled is MaxPool2d of Convolve, with the same bits but at less cost: the intermediate results, and their gradients,
// never leave the processor's caches. It returns nil if the two have to be called separately: for arguments that one of them
// refuses, for groups, for bfloat16, on a device, and if operations are watched, gradients may have gradients, or fusion is off (DRUN_PLAN=off).
func ConvolvePooled(x, weight, bias *Tensor, o ConvOptions, size, stride, padding [2]int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "conv2d"
	c := x.ctx
	if c == nil || c.device != nil || c.spares.off || c.watched() || c.CreateGraph || o.Groups != 1 || half(x) || lowProduct(x, weight, bias) {
		return nil, nil
	}
	w, err := convolution(op, x, weight, bias, o)
	if err != nil {
		return nil, nil
	}
	h, v := w.Out()
	pool, err := pooling(op, []int{w.Batch, w.Filters, h, v}, size, stride, padding)
	if err != nil || h*v > math.MaxInt32 {
		return nil, nil
	}
	ph, pv := pool.Out()
	b := build(op, x)
	in, filters, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(w.Batch, w.Filters, ph, pv)
	at := b.of(dtype.Int32, w.Batch, w.Filters, ph, pv) // where the maxima were
	if out.shapeOnly() {
		return out, nil
	}
	err = kernel.Conv2dMaxPool(x.dtype, w, pool, out.ptr(), Elems[int32](at), in.ptr(), filters.ptr(), partOr(beta, 0))
	alive(in, filters, beta)
	if err != nil {
		return nil, Starved(op, err)
	}
	if recordsAny(x, weight, bias) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) { backConvolvePooled(n, g, out, w) },
			x, weight, bias).save(in, filters, at)
	}
	Discard(at)
	return out, nil
}

func backConvolvePooled(n *node, g *Tensor, out []*Tensor, w kernel.Window) {
	x, weight, at := n.val(0), n.val(1), Elems[int32](n.val(2))
	dy, dweight, dbias := n.layerGrads(g, out)
	if n.needs(0) {
		try.Ok(Starved(n.op, kernel.Conv2dPooledGradInput(g.dtype, w, out[0].ptr(), dy.ptr(), at, weight.ptr())))
	}
	if n.needs(1) || n.needs(2) {
		try.Ok(Starved(n.op, kernel.Conv2dPooledGradWeight(g.dtype, w, partOr(dweight, 0), partOr(dbias, 0), dy.ptr(), at, x.ptr())))
	}
	alive(dy)
}
