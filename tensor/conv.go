package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"drun/element"
	"drun/kernel"
)

// window checks the geometry of a convolution or pooling over x (N, C, H, W).
func window(op string, x *Tensor, size, stride, padding [2]int) (kernel.Window, error) {
	var w kernel.Window
	if len(x.shape) != 4 {
		return w, fmt.Errorf("%s: needs an input (N, C, H, W), not shape %s", op, ShapeString(x.shape))
	}
	for i := range 2 {
		if padding[i] >= maxElems {
			return w, fmt.Errorf("%s: a padding of %d makes too many elements", op, padding[i])
		}
		if size[i] < 1 || stride[i] < 1 || padding[i] < 0 {
			return w, fmt.Errorf("%s: kernel and stride must be positive and padding not negative: kernel %v, stride %v, padding %v", op, size, stride, padding)
		}
		// A stride beyond the padded image leads to its first position alone, like one as long as the image.
		stride[i] = min(stride[i], max(x.shape[2+i]+2*padding[i], 1))
	}
	w = kernel.Window{Batch: x.shape[0], Channels: x.shape[1], Height: x.shape[2], Width: x.shape[3],
		KernelH: size[0], KernelW: size[1], StrideH: stride[0], StrideW: stride[1], PadH: padding[0], PadW: padding[1]}
	if h, v := w.Out(); h < 1 || v < 1 {
		return w, fmt.Errorf("%s: a kernel of %d×%d does not fit an input of shape %s with padding %d×%d", op, size[0], size[1], ShapeString(x.shape), padding[0], padding[1])
	}
	return w, nil
}

// padded checks that the working memory holds an image with its padding.
func padded(op string, w kernel.Window, dtype element.Type) error {
	h, v := w.Out()
	n, err := countElems(op, []int{w.Channels, w.StrideH, w.StrideW, h + (w.KernelH-1)/w.StrideH, v + (w.KernelW-1)/w.StrideW})
	if err != nil || n > pool.maxUsed/dtype.Size() {
		return fmt.Errorf("%s: with a padding of (%d, %d) an image of %d×%d does not fit in this machine's memory", op, w.PadH, w.PadW, w.Height, w.Width)
	}
	return nil
}

// Conv2d convolves x (N, C, H, W) with weight (F, C, KH, KW) and adds bias
// (F), which may be nil.
func Conv2d(x, weight, bias *Tensor, stride, padding [2]int) (*Tensor, error) {
	const op = "conv2d"
	if err := sameFloat(op, x, weight, bias); err != nil {
		return nil, err
	}
	if len(x.shape) != 4 || len(weight.shape) != 4 || weight.shape[1] != x.shape[1] {
		return nil, fmt.Errorf("%s: an input of shape %s does not fit a weight of shape %s: expected (N, C, H, W) and (F, C, KH, KW)",
			op, ShapeString(x.shape), ShapeString(weight.shape))
	}
	if bias != nil && (len(bias.shape) != 1 || bias.shape[0] != weight.shape[0]) {
		return nil, fmt.Errorf("%s: a bias of shape %s does not fit a weight of shape %s", op, ShapeString(bias.shape), ShapeString(weight.shape))
	}
	w, err := window(op, x, [2]int{weight.shape[2], weight.shape[3]}, stride, padding)
	if err != nil {
		return nil, err
	}
	if err := padded(op, w, x.dtype); err != nil {
		return nil, err
	}
	w.Filters = weight.shape[0]
	h, v := w.Out()
	b := build(op, x)
	in, filters, beta, out := b.contiguous(x), b.contiguous(weight), b.contiguous(bias), b.like(w.Batch, w.Filters, h, v)
	if b.err != nil {
		return nil, b.err
	}
	err = kernel.Conv2d(x.dtype, w, out.ptr(), in.ptr(), filters.ptr(), ptrOr(beta))
	alive(in, filters, beta)
	if err != nil {
		return nil, starved(op, err)
	}
	if recordsAny(x, weight, bias) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error { return backConv2d(n, g, out, w) },
			x, weight, bias).save(in, filters)
	}
	return out, nil
}

func backConv2d(n *node, g *Tensor, out []*Tensor, w kernel.Window) error {
	x, weight := n.val(0), n.val(1)
	dy, dweight, dbias, err := n.layerGrads(g, out)
	if err != nil {
		return err
	}
	if n.needs(0) {
		err = kernel.Conv2dGradInput(g.dtype, w, out[0].ptr(), dy.ptr(), weight.ptr())
	}
	if err == nil && (n.needs(1) || n.needs(2)) {
		err = kernel.Conv2dGradWeight(g.dtype, w, ptrOr(dweight), ptrOr(dbias), dy.ptr(), x.ptr())
	}
	alive(dy)
	return starved(n.op, err)
}

// MaxPool2d takes the largest element under each position of the kernel.
func MaxPool2d(x *Tensor, size, stride, padding [2]int) (*Tensor, error) {
	const op = "max_pool2d"
	w, in, out, err := pool2d(op, x, size, stride, padding)
	if err != nil {
		return nil, err
	}
	if w.Height*w.Width > math.MaxInt32 {
		return nil, fmt.Errorf("%s: an image of %d×%d has more elements than the indices of the maxima count to", op, w.Height, w.Width)
	}
	at, err := newTensor(op, x.ctx, out.shape, element.Int32)
	if err != nil {
		return nil, err
	}
	kernel.MaxPool2d(x.dtype, w, out.ptr(), elems[int32](at), in.ptr())
	alive(in, at)
	if records(x, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			return backPool(n, g, out, func(dx, dy unsafe.Pointer) {
				kernel.MaxPool2dGrad(g.dtype, w, dx, dy, elems[int32](n.val(0)))
			})
		}, x).save(at)
	}
	return out, nil
}

// AvgPool2d averages over each position of the kernel; padding counts as
// zeros.
func AvgPool2d(x *Tensor, size, stride, padding [2]int) (*Tensor, error) {
	const op = "avg_pool2d"
	w, in, out, err := pool2d(op, x, size, stride, padding)
	if err != nil {
		return nil, err
	}
	kernel.AvgPool2d(x.dtype, w, out.ptr(), in.ptr())
	alive(in)
	if records(x, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			return backPool(n, g, out, func(dx, dy unsafe.Pointer) { kernel.AvgPool2dGrad(g.dtype, w, dx, dy) })
		}, x)
	}
	return out, nil
}

func pool2d(op string, x *Tensor, size, stride, padding [2]int) (w kernel.Window, in, out *Tensor, err error) {
	if err = needFloat(op, x); err != nil {
		return
	}
	if w, err = window(op, x, size, stride, padding); err != nil {
		return
	}
	if padding[0] > size[0]/2 || padding[1] > size[1]/2 {
		err = fmt.Errorf("%s: padding %v is more than half the kernel %v", op, padding, size)
		return
	}
	h, v := w.Out()
	b := build(op, x)
	in, out = b.contiguous(x), b.like(w.Batch, w.Channels, h, v)
	return w, in, out, b.err
}

func backPool(n *node, g *Tensor, out []*Tensor, grad func(dx, dy unsafe.Pointer)) error {
	b := build(n.op, g)
	dy := b.contiguous(g)
	if out[0] = b.like(n.in[0].shape()...); b.err == nil {
		grad(out[0].ptr(), dy.ptr())
	}
	alive(dy)
	return b.err
}
