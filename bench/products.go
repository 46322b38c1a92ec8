package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"drun/kernel"
)

// productsCommand makes this program measure the products of a step of gpt, in a separate process.
const productsCommand = "measure-products"

const gptProducts = "gpt's products alone"

// product is one of m×k by k×n, as often as a step of gpt makes it, of batch pairs of matrices at once.
type product struct {
	times, batch, m, n, k int
	transA, transB        bool
}

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

// seconds is the time of the product, operands and result in the caches where they fit: the least of several means.
func (p product) seconds() float64 {
	a, b, c := filled(p.batch*p.m*p.k), filled(p.batch*p.k*p.n), filled(p.batch*p.m*p.n)
	least := math.Inf(1)
	for range 5 {
		least = min(least, perCall(20, func() { _ = p.run(c, a, b) }))
	}
	return least
}

// measureProducts prints how long the products of a step of gpt take by themselves on one thread.
func measureProducts(_ context.Context, _ []string, w io.Writer) error {
	kernel.SetThreads(1)
	sum := 0.0
	for _, p := range productsOfGPT() {
		sum += float64(p.times) * p.seconds()
	}
	fmt.Fprintf(w, "%s: %.5f ms\n", gptProducts, sum*1e3)
	return nil
}
