package main

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// kernelsCommand makes this program measure the kernels, in a separate process as for the peers.
const kernelsCommand = "measure-kernels"

// gemmShape is a product of an m×k and a k×n matrix, and the required ratio to OpenBLAS's speed.
type gemmShape struct {
	m, n, k int
	least   float64
}

func (s gemmShape) String() string { return fmt.Sprintf("gemm %dx%dx%d", s.m, s.n, s.k) }

// gemmShapes: squares, a tall one, and the largest products of the models (mlp, cnn as columns, gpt).
var gemmShapes = []gemmShape{
	{64, 64, 64, 0.7}, {512, 512, 512, 0.95}, {1024, 1024, 1024, 0.95},
	{4096, 16, 64, 0.8}, {32, 256, 784, 0.8}, {12544, 64, 288, 0.8}, {768, 512, 128, 0.8}, {768, 128, 512, 0.8},
}

const (
	elements   = 4 << 20
	rowCount   = 4096
	rowLength  = elements / rowCount
	f32        = dtype.Float32
	kernelRuns = 10
	hugePage   = 2 << 20
)

// rowKernels are measured on 4 M elements.
var rowKernels = []struct {
	name string
	run  func(out, x, y []float32)
}{
	{"exp of 4 M", func(out, x, _ []float32) { kernel.Unary(kernel.Exp, f32, []int{elements}, flat(out), flat(x)) }},
	{"tanh of 4 M", func(out, x, _ []float32) { kernel.Unary(kernel.Tanh, f32, []int{elements}, flat(out), flat(x)) }},
	{"add of 4 M", func(out, x, y []float32) {
		kernel.Binary(kernel.Add, f32, []int{elements}, flat(out), flat(x), flat(y))
	}},
	{"softmax of 4096 x 1024", func(out, x, _ []float32) { kernel.Softmax(f32, false, rowCount, rowLength, data(out), data(x)) }},
	{"layer_norm of 4096 x 1024", func(out, x, y []float32) {
		mean, rstd := y[:rowCount], y[rowCount:2*rowCount]
		gamma, beta := y[2*rowCount:][:rowLength], y[3*rowCount:][:rowLength]
		kernel.LayerNorm(f32, rowCount, rowLength, 1e-5, data(out), data(mean), data(rstd), data(x), data(gamma), data(beta))
	}},
}

func data(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

func flat(x []float32) kernel.View { return kernel.View{Data: data(x), Strides: []int{1}} }

func kernelPath() string { return kernel.Path() }

// measureKernels prints the figures of drun's kernels on one thread.
func measureKernels(_ context.Context, _ []string, w io.Writer) error {
	kernel.SetThreads(1)
	for _, s := range gemmShapes {
		a, b, c := filled(s.m*s.k), filled(s.k*s.n), filled(s.m*s.n)
		work := 2 * float64(s.m) * float64(s.n) * float64(s.k)
		seconds := perCall(int(2e9/work)+1, func() {
			_ = kernel.Gemm(f32, 1, s.m, s.n, s.k, kernel.Matrix{Data: data(c), Stride: s.n}, kernel.Matrix{Data: data(a), Stride: s.k},
				kernel.Matrix{Data: data(b), Stride: s.n}, false, nil)
		})
		fmt.Fprintf(w, "%v: %.2f GFLOPS\n", s, work/seconds/1e9)
	}
	out, x, y := filled(elements), filled(elements), filled(elements)
	for _, k := range rowKernels {
		fmt.Fprintf(w, "%s: %.5f ms\n", k.name, perCall(kernelRuns, func() { k.run(out, x, y) })*1e3)
	}
	return nil
}

// filled returns n values between 0 and 1, in huge pages where the system has them, as large tensors are.
func filled(n int) []float32 {
	x := make([]float32, n)
	if bytes := n * 4; bytes >= 4<<20 {
		if m, err := syscall.Mmap(-1, 0, bytes+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON); err == nil {
			_ = syscall.Madvise(m, syscall.MADV_HUGEPAGE)
			skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(m))) % hugePage)
			x = unsafe.Slice((*float32)(unsafe.Pointer(&m[skip])), n)
		}
	}
	for i := range x {
		x[i] = float32(i*7919%1000) / 1000
	}
	return x
}

// perCall returns the mean time of a call in seconds, after warm-up.
func perCall(calls int, call func()) float64 {
	for range calls/10 + 2 {
		call()
	}
	started := time.Now()
	for range calls {
		call()
	}
	return time.Since(started).Seconds() / float64(calls)
}
