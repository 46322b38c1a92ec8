package main

import (
	"context"
	"fmt"
	"io"
	"math"
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
	f32       = dtype.Float32
	rowLength = 1024
	hugePage  = 2 << 20
)

// kernelSizes are counts of elements: in the first cache, in the later ones, and in none.
var kernelSizes = []struct {
	name        string
	count, runs int
}{{"4 K", 4 << 10, 20000}, {"256 K", 256 << 10, 300}, {"4 M", 4 << 20, 20}}

// rowKernels are measured on each of these sizes, into memory that is there already.
var rowKernels = []struct {
	name string
	rows bool // over rows of rowLength elements
	run  func(n int, out, x, y []float32)
}{
	{"exp", false, func(n int, out, x, _ []float32) { kernel.Unary(kernel.Exp, f32, []int{n}, flat(out), flat(x)) }},
	{"tanh", false, func(n int, out, x, _ []float32) { kernel.Unary(kernel.Tanh, f32, []int{n}, flat(out), flat(x)) }},
	{"add", false, func(n int, out, x, y []float32) {
		kernel.Binary(kernel.Add, f32, []int{n}, flat(out), flat(x), flat(y))
	}},
	{"softmax", true, func(n int, out, x, _ []float32) {
		kernel.Softmax(f32, false, n/rowLength, rowLength, data(out), data(x))
	}},
	{"layer_norm", true, func(n int, out, x, y []float32) {
		rows := n / rowLength
		mean, rstd, gamma, beta := y[:rows], y[rows:2*rows], y[2*rows:][:rowLength], y[2*rows+rowLength:][:rowLength]
		kernel.LayerNorm(f32, rows, rowLength, 1e-5, data(out), data(mean), data(rstd), data(x), data(gamma), data(beta))
	}},
}

// rowKernelName is the name of a figure, the same in the peers' programs.
func rowKernelName(kernel string, rows bool, count int, size string) string {
	if rows {
		size = fmt.Sprintf("%d x %d", count/rowLength, rowLength)
	}
	return kernel + " of " + size
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
	for _, size := range kernelSizes {
		out, x, y := filled(size.count), filled(size.count), filled(size.count)
		for _, k := range rowKernels {
			seconds := perCall(size.runs, func() { k.run(size.count, out, x, y) })
			fmt.Fprintf(w, "%s: %.6f ms\n", rowKernelName(k.name, k.rows, size.count, size.name), seconds*1e3)
		}
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

// productsCommand makes this program measure the products of a step of gpt, in a separate process.
const productsCommand = "measure-products"

const gptProducts = "gpt's products alone"

// product is a product of m×k by k×n matrices, batch pairs at once, with the number of times that a step of gpt makes it.
type product struct {
	times, batch, m, n, k int
	transA, transB        bool
}

// work counts a multiply-add as two operations.
func (p product) work() float64 {
	return 2 * float64(p.times) * float64(p.batch) * float64(p.m) * float64(p.n) * float64(p.k)
}

// workOfGPT is what the products of a step need; of attention's, half, since the mask leaves out the other.
func workOfGPT() (sum float64) {
	for _, p := range productsOfGPT() {
		if p.batch > 1 {
			sum -= p.work() / 2
		}
		sum += p.work()
	}
	return sum
}

// workOfMLP: no gradient of the images is needed.
func workOfMLP() float64 { return 2 * 32 * (2*784*256 + 3*(256*128+128*10)) }

// productsOfGPT are those of bench/gpt.star: of each linear layer forward, of its input's gradient and of its weight's, and
// attention's two forward and four backward, whole, without what a causal mask leaves out.
func productsOfGPT() (all []product) {
	const layers, width, vocabulary, rows, length, heads = 4, 128, 65, 768, 64, 4
	const each = width / heads
	for _, linear := range []struct{ times, in, out int }{
		{layers, width, 3 * width}, {layers, width, width}, {layers, width, 4 * width}, {layers, 4 * width, width}, {1, width, vocabulary},
	} {
		all = append(all,
			product{linear.times, 1, rows, linear.out, linear.in, false, true},
			product{linear.times, 1, rows, linear.in, linear.out, false, false},
			product{linear.times, 1, linear.out, linear.in, rows, true, false})
	}
	const batch = rows / length * heads
	return append(all,
		product{2 * layers, batch, length, length, each, false, true},  // scores; the gradient of weights
		product{2 * layers, batch, length, each, length, false, false}, // results; the gradient of queries
		product{2 * layers, batch, length, each, length, true, false})  // the gradients of keys and values
}

// run makes the product once: c = a b for each pair, one after the other in memory.
func (p product) run(c, a, b []float32) error {
	matrix := func(x []float32, rows, columns int, trans bool) kernel.Matrix {
		stride := columns
		if trans {
			stride = rows
		}
		return kernel.Matrix{Data: data(x), Stride: stride, Trans: trans, Batch: rows * columns}
	}
	return kernel.Gemm(f32, p.batch, p.m, p.n, p.k, matrix(c, p.m, p.n, false), matrix(a, p.m, p.k, p.transA), matrix(b, p.k, p.n, p.transB), false, nil)
}

// seconds returns the time of the product, with operands and result in the caches if they fit: the least of several means.
func (p product) seconds() float64 {
	a, b, c := filled(p.batch*p.m*p.k), filled(p.batch*p.k*p.n), filled(p.batch*p.m*p.n)
	least := math.Inf(1)
	for range 5 {
		least = min(least, perCall(20, func() { _ = p.run(c, a, b) }))
	}
	return least
}

// measureProducts prints how long the products of a step of gpt take by themselves on one thread, and on two.
func measureProducts(_ context.Context, _ []string, w io.Writer) error {
	for i, suffix := range []string{"", ", 2 threads"} {
		kernel.SetThreads(i + 1)
		sum := 0.0
		for _, p := range productsOfGPT() {
			sum += float64(p.times) * p.seconds()
		}
		fmt.Fprintf(w, "%s%s: %.5f ms\n", gptProducts, suffix, sum*1e3)
	}
	return nil
}
