package kernel_test

import (
	"fmt"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// Each benchmark reports what bounds it: GFLOPS of products, GB/s of memory read and written by the rest.

func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{64, 64, 64}, {512, 512, 512}, {1024, 1024, 1024}, {32, 256, 784}, {768, 512, 128}} {
		m, n, k := s[0], s[1], s[2]
		x, y, c := real32(1, m*k), real32(2, k*n), make([]float32, m*n)
		products(b, fmt.Sprintf("%dx%dx%d", m, n, k), 2*float64(m*n*k), func() {
			_ = kernel.Gemm(dtype.Float32, 1, m, n, k, kernel.Matrix{Data: ptr(c), Stride: n}, kernel.Matrix{Data: ptr(x), Stride: k},
				kernel.Matrix{Data: ptr(y), Stride: k, Trans: true}, false, nil)
		})
	}
}

// traffic measures what reads and writes so many bytes.
func traffic(b *testing.B, name string, bytes int, compute func()) {
	measure(b, name, float64(bytes), "GB/s", compute)
}

// products measures what makes so many floating-point operations.
func products(b *testing.B, name string, operations float64, compute func()) {
	measure(b, name, operations, "GFLOPS", compute)
}

func measure(b *testing.B, name string, amount float64, unit string, compute func()) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			compute()
		}
		b.ReportMetric(amount*float64(b.N)/b.Elapsed().Seconds()/1e9, unit)
	})
}

func BenchmarkElementwise(b *testing.B) {
	for _, n := range []int{16, 4096, 4 << 20} {
		x, y, z, shape := real32(1, n), real32(2, n), make([]float32, n), []int{n}
		m := make([]bool, n)
		traffic(b, fmt.Sprintf("add_%d", n), 12*n, func() { kernel.Binary(kernel.Add, dtype.Float32, shape, row(z), row(x), row(y)) })
		traffic(b, fmt.Sprintf("scalar_%d", n), 8*n, func() {
			kernel.Binary(kernel.Mul, dtype.Float32, shape, row(z), row(x), kernel.View{ptr(y), []int{0}})
		})
		traffic(b, fmt.Sprintf("less_%d", n), 9*n, func() { kernel.Compare(kernel.Lt, dtype.Float32, shape, row(m), row(x), row(y)) })
		for name, op := range map[string]kernel.UnaryOp{"relu": kernel.Relu, "exp": kernel.Exp, "tanh": kernel.Tanh, "gelu": kernel.Gelu, "log": kernel.Log, "sigmoid": kernel.Sigmoid} {
			traffic(b, fmt.Sprintf("%s_%d", name, n), 8*n, func() { kernel.Unary(op, dtype.Float32, shape, row(z), row(x)) })
		}
		traffic(b, fmt.Sprintf("gelu_slope_%d", n), 12*n, func() {
			kernel.Activate(dtype.Float32, kernel.GeluSlope, n, 0, 0, ptr(z), ptr(y), ptr(x))
		})
	}
}

func BenchmarkStrided(b *testing.B) {
	const rows, n = 1024, 1024
	x, bias, z := real32(1, rows*n), real32(2, n), make([]float32, rows*n)
	shape := []int{rows, n}
	traffic(b, "bias", 8*rows*n, func() {
		kernel.Binary(kernel.Add, dtype.Float32, shape, kernel.View{ptr(z), []int{n, 1}}, kernel.View{ptr(x), []int{n, 1}}, kernel.View{ptr(bias), []int{0, 1}})
	})
	traffic(b, "transpose", 8*rows*n, func() {
		kernel.Copy(dtype.Float32, shape, kernel.View{ptr(z), []int{n, 1}}, kernel.View{ptr(x), []int{1, n}})
	})
	traffic(b, "fill", 4*rows*n, func() {
		kernel.Copy(dtype.Float32, shape, kernel.View{ptr(z), []int{n, 1}}, kernel.View{ptr(x), []int{0, 0}})
	})
}

func BenchmarkReduce(b *testing.B) {
	const rows, n = 1024, 1024
	x, z := real32(1, rows*n), make([]float32, n)
	for name, s := range map[string][3]int{"all": {1, rows * n, 1}, "rows": {rows, n, 1}, "columns": {1, rows, n}} {
		traffic(b, "sum_"+name, 4*rows*n, func() { kernel.Reduce(kernel.Sum, dtype.Float32, s[0], s[1], s[2], ptr(z), ptr(x)) })
	}
	traffic(b, "max_rows", 4*rows*n, func() { kernel.Reduce(kernel.MaxOver, dtype.Float32, rows, n, 1, ptr(z), ptr(x)) })
	traffic(b, "square_sum", 4*rows*n, func() { kernel.SquareSum(dtype.Float32, rows*n, ptr(x)) })
}

func BenchmarkRows(b *testing.B) {
	const rows, n = 768, 128
	x, y, z, g := real32(1, rows*n), real32(2, rows*n), make([]float32, rows*n), real32(3, n)
	mean, rstd, dg, db := make([]float32, rows), make([]float32, rows), make([]float32, n), make([]float32, n)
	target := make([]int64, rows)
	traffic(b, "softmax", 8*rows*n, func() { kernel.Softmax(dtype.Float32, false, rows, n, ptr(z), ptr(x)) })
	traffic(b, "softmax_65", 8*rows*65, func() { kernel.Softmax(dtype.Float32, false, rows, 65, ptr(z), ptr(x)) })
	traffic(b, "cross_entropy", 4*rows*n, func() {
		kernel.CrossEntropy(dtype.Float32, rows, n, ptr(mean), ptr(rstd), ptr(x), target)
	})
	traffic(b, "layer_norm", 8*rows*n, func() {
		kernel.LayerNorm(dtype.Float32, rows, n, 1e-5, ptr(z), ptr(mean), ptr(rstd), ptr(x), ptr(g), ptr(g))
	})
	traffic(b, "layer_norm_grad", 12*rows*n, func() {
		kernel.LayerNormGrad(dtype.Float32, rows, n, false, ptr(z), ptr(dg), ptr(db), ptr(y), ptr(x), ptr(g), ptr(mean), ptr(rstd))
	})
}

func BenchmarkConv(b *testing.B) {
	for _, w := range []kernel.Window{
		{Batch: 64, Channels: 1, Height: 28, Width: 28, Filters: 32, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 64, Channels: 32, Height: 14, Width: 14, Filters: 64, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
	} {
		pixels := w.Batch * w.Height * w.Width
		x, y, k := real32(1, pixels*w.Channels), real32(2, pixels*w.Filters), real32(3, w.Filters*w.Channels*9)
		bias, dx, dk, index := real32(4, w.Filters), make([]float32, pixels*w.Channels), make([]float32, len(k)), make([]int32, len(y))
		flops := 2 * float64(pixels*w.Filters*w.Channels*9)
		name := fmt.Sprintf("%dto%d_", w.Channels, w.Filters)
		products(b, name+"forward", flops, func() { _ = kernel.Conv2d(dtype.Float32, w, ptr(y), ptr(x), ptr(k), ptr(bias)) })
		products(b, name+"grad_input", flops, func() { _ = kernel.Conv2dGradInput(dtype.Float32, w, ptr(dx), ptr(y), ptr(k)) })
		products(b, name+"grad_weight", flops, func() {
			clear(dk)
			_ = kernel.Conv2dGradWeight(dtype.Float32, w, ptr(dk), ptr(bias), ptr(y), ptr(x))
		})
		pool := w
		pool.Channels, pool.KernelH, pool.KernelW, pool.StrideH, pool.StrideW, pool.PadH, pool.PadW = w.Filters, 2, 2, 2, 2, 0, 0
		out := make([]float32, len(y)/4)
		traffic(b, name+"max_pool", 4*len(y)+8*len(out), func() { kernel.MaxPool2d(dtype.Float32, pool, ptr(out), index, ptr(y)) })
		traffic(b, name+"max_pool_grad", 4*len(y)+8*len(out), func() {
			kernel.MaxPool2dGrad(dtype.Float32, pool, ptr(y), ptr(out), index)
		})
	}
}

func BenchmarkOptimizer(b *testing.B) {
	const n = 1 << 20
	p, g, m, v := real32(1, n), real32(2, n), make([]float32, n), make([]float32, n)
	traffic(b, "sgd", 20*n, func() { kernel.SGD{LR: 1e-9, Momentum: 0.9}.Step(dtype.Float32, n, ptr(p), ptr(g), ptr(m)) })
	traffic(b, "adam", 28*n, func() {
		kernel.Adam{LR: 1e-9, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Count: 3}.Step(dtype.Float32, n, ptr(p), ptr(g), ptr(m), ptr(v))
	})
}

func BenchmarkRandom(b *testing.B) {
	const n = 1 << 16
	z := make([]float32, n)
	traffic(b, "uniform", 4*n, func() { kernel.Stream{1, 2, 3}.Uniform(dtype.Float32, n, ptr(z)) })
	traffic(b, "normal", 4*n, func() { kernel.Stream{1, 2, 3}.Normal(dtype.Float32, n, ptr(z)) })
}

func BenchmarkRanks(b *testing.B) {
	for _, n := range []int{1, 1 << 18, 16 << 20} {
		x, y := make([]float32, n), make([]float32, n)
		z := make([]float32, n)
		traffic(b, fmt.Sprintf("sum_2_%d", n), 12*n, func() {
			kernel.ReduceRanks(dtype.Sum, dtype.Float32, ptr(z), pointers(x, y), n)
		})
	}
}
