package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_conv2d
// #cgo nocallback drun_conv2d
// #cgo noescape drun_conv2d_max_pool
// #cgo nocallback drun_conv2d_max_pool
// #cgo noescape drun_conv2d_grad_input
// #cgo nocallback drun_conv2d_grad_input
// #cgo noescape drun_conv2d_grad_weight
// #cgo nocallback drun_conv2d_grad_weight
// #cgo noescape drun_max_pool2d
// #cgo nocallback drun_max_pool2d
// #cgo noescape drun_max_pool2d_grad
// #cgo nocallback drun_max_pool2d_grad
// #cgo noescape drun_avg_pool2d
// #cgo nocallback drun_avg_pool2d
// #cgo noescape drun_avg_pool2d_grad
// #cgo nocallback drun_avg_pool2d_grad
import "C"

import (
	"cmp"
	"unsafe"

	"drun/kernel/dtype"
)

// Window is the geometry of a convolution or pooling over contiguous [Batch, Channels, Height, Width] images.
// Filters is the number of output channels of a convolution; pooling ignores it.
type Window struct {
	Batch, Channels, Height, Width, Filters        int
	KernelH, KernelW, StrideH, StrideW, PadH, PadW int
	DilationH, DilationW                           int // 0: 1
	OutH, OutW                                     int // of the output; 0: what Out returns
	NextX, NextY                                   int // elements from an image of the input and of the output to the next; 0: they are adjacent
}

// Out returns the output's height and width; they are 0 or negative if the kernel does not fit.
func (w Window) Out() (height, width int) {
	if w.OutH > 0 {
		return w.OutH, w.OutW
	}
	fit := func(size, kernel, stride, pad, dilation int) int {
		reach := (kernel-1)*max(dilation, 1) + 1
		if size+2*pad < reach {
			return 0
		}
		return (size+2*pad-reach)/stride + 1
	}
	return fit(w.Height, w.KernelH, w.StrideH, w.PadH, w.DilationH), fit(w.Width, w.KernelW, w.StrideW, w.PadW, w.DilationW)
}

// Geometry returns the numbers of which kernels know the window: see conv.h.
func (w Window) Geometry() [17]int {
	h, v := w.Out()
	nextX, nextY := w.NextX, w.NextY
	if nextX == 0 {
		nextX = w.Channels * w.Height * w.Width
	}
	if nextY == 0 {
		nextY = w.Filters * h * v
	}
	return [17]int{w.Batch, w.Channels, w.Height, w.Width, w.Filters, w.KernelH, w.KernelW, w.StrideH, w.StrideW, w.PadH,
		w.PadW, h, v, max(w.DilationH, 1), max(w.DilationW, 1), nextX, nextY}
}

// input and result are the images that a convolution reads and makes, or in a gradient the other way round.
func (w Window) input(dt dtype.Type, at unsafe.Pointer) output {
	return images(dt, at, w.Batch, w.Channels*w.Height*w.Width, w.NextX)
}

func (w Window) result(dt dtype.Type, at unsafe.Pointer) output {
	height, width := w.Out()
	o := images(dt, at, w.Batch, w.Filters*height*width, w.NextY)
	o.whole = w.NextY == 0
	return o
}

func images(dt dtype.Type, at unsafe.Pointer, batch, elements, next int) output {
	if batch < 1 {
		return output{}
	}
	return array(dt, at, (batch-1)*cmp.Or(next, elements)+elements)
}

// pooled is the number of elements of a pooling's result.
func (w Window) pooled() int {
	height, width := w.Out()
	return w.Batch * w.Channels * height * width
}

// Conv2d computes y [Batch, Filters, out height, out width] from x and weight [Filters, Channels, KernelH,
// KernelW]; bias [Filters] may be nil. Its error, and that of the gradients, is an OutOfMemory.
func Conv2d(dt dtype.Type, w Window, y, x, weight, bias unsafe.Pointer) error {
	g := w.Geometry()
	c := begin("convolution")
	for c.again(w.result(dt, y)) {
		c.err = had(C.drun_conv2d(C.int(dt), ints(g[:]), mem(y), mem(x), mem(weight), mem(bias)))
	}
	return c.err
}

// Conv2dMaxPool computes MaxPool2d of Conv2d's result, which never leaves the caches: y and indices are those of the pooling.
func Conv2dMaxPool(dt dtype.Type, w, pool Window, y unsafe.Pointer, indices []int32, x, weight, bias unsafe.Pointer) error {
	g, p := w.Geometry(), pool.Geometry()
	c := begin("convolution")
	for c.again(whole(dt, y, pool.pooled()), slice(indices)) {
		c.err = had(C.drun_conv2d_max_pool(C.int(dt), ints(g[:]), ints(p[:]), mem(y), (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(indices))), mem(x), mem(weight), mem(bias)))
	}
	return c.err
}

// Conv2dGradInput computes dx from dy.
func Conv2dGradInput(dt dtype.Type, w Window, dx, dy, weight unsafe.Pointer) error {
	return Conv2dPooledGradInput(dt, w, dx, dy, nil, weight)
}

// Conv2dPooledGradInput computes dx from dy; with indices, dy is the gradient of Conv2dMaxPool's result.
func Conv2dPooledGradInput(dt dtype.Type, w Window, dx, dy unsafe.Pointer, indices []int32, weight unsafe.Pointer) error {
	g := w.Geometry()
	c := begin("convolution's gradient")
	for c.again(w.input(dt, dx)) {
		c.err = had(C.drun_conv2d_grad_input(C.int(dt), ints(g[:]), mem(dx), mem(dy), (*C.int32_t)(unsafe.SliceData(indices)), w.each(indices), mem(weight), nil))
	}
	return c.err
}

// each returns how many of the maxima's indices belong to one filter.
func (w Window) each(indices []int32) C.int64_t {
	return C.int64_t(len(indices) / max(w.Batch*w.Filters, 1))
}

// ConvTranspose2d computes dx from dy like Conv2dGradInput, and adds bias [Channels], which may be nil: a
// convolution whose strides spread its input.
func ConvTranspose2d(dt dtype.Type, w Window, dx, dy, weight, bias unsafe.Pointer) error {
	g := w.Geometry()
	c := begin("convolution")
	for c.again(w.input(dt, dx)) {
		c.err = had(C.drun_conv2d_grad_input(C.int(dt), ints(g[:]), mem(dx), mem(dy), nil, 0, mem(weight), mem(bias)))
	}
	return c.err
}

// Conv2dGradWeight adds to dweight and dbias; either may be nil.
func Conv2dGradWeight(dt dtype.Type, w Window, dweight, dbias, dy, x unsafe.Pointer) error {
	return Conv2dPooledGradWeight(dt, w, dweight, dbias, dy, nil, x)
}

// Conv2dPooledGradWeight adds to dweight and dbias; with indices, dy is the gradient of Conv2dMaxPool's result.
func Conv2dPooledGradWeight(dt dtype.Type, w Window, dweight, dbias, dy unsafe.Pointer, indices []int32, x unsafe.Pointer) error {
	g := w.Geometry()
	c := begin("convolution's gradient")
	for c.again(array(dt, dweight, w.Filters*w.Channels*w.KernelH*w.KernelW), array(dt, dbias, w.Filters)) {
		c.err = had(C.drun_conv2d_grad_weight(C.int(dt), ints(g[:]), mem(dweight), mem(dbias), mem(dy), (*C.int32_t)(unsafe.SliceData(indices)), w.each(indices), mem(x)))
	}
	return c.err
}

// MaxPool2d computes y [Batch, Channels, out height, out width] and each maximum's index in its plane, which the
// gradient needs. PadH <= KernelH/2, PadW <= KernelW/2.
func MaxPool2d(dt dtype.Type, w Window, y unsafe.Pointer, indices []int32, x unsafe.Pointer) {
	g := w.Geometry()
	for c := begin("pooling"); c.again(whole(dt, y, w.pooled()), slice(indices)); {
		C.drun_max_pool2d(C.int(dt), ints(g[:]), mem(y), (*C.int32_t)(unsafe.SliceData(indices)), mem(x))
	}
}

// MaxPool2dGrad computes dx from dy.
func MaxPool2dGrad(dt dtype.Type, w Window, dx, dy unsafe.Pointer, indices []int32) {
	g := w.Geometry()
	for c := begin("pooling's gradient"); c.again(array(dt, dx, w.Batch*w.Channels*w.Height*w.Width)); {
		C.drun_max_pool2d_grad(C.int(dt), ints(g[:]), mem(dx), mem(dy), (*C.int32_t)(unsafe.SliceData(indices)))
	}
}

// AvgPool2d averages over the kernel's cells, padding counted as zeros.
func AvgPool2d(dt dtype.Type, w Window, y, x unsafe.Pointer) {
	g := w.Geometry()
	for c := begin("pooling"); c.again(whole(dt, y, w.pooled())); {
		C.drun_avg_pool2d(C.int(dt), ints(g[:]), mem(y), mem(x))
	}
}

// AvgPool2dGrad computes dx from dy.
func AvgPool2dGrad(dt dtype.Type, w Window, dx, dy unsafe.Pointer) {
	g := w.Geometry()
	for c := begin("pooling's gradient"); c.again(array(dt, dx, w.Batch*w.Channels*w.Height*w.Width)); {
		C.drun_avg_pool2d_grad(C.int(dt), ints(g[:]), mem(dx), mem(dy))
	}
}
