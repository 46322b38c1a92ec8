package kernel

import (
	"fmt"
	"testing"

	"drun/element"
)

// Each benchmark reports what bounds it: GFLOPS of products, GB/s of memory read and written by the rest.

func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{64, 64, 64}, {512, 512, 512}, {1024, 1024, 1024}, {32, 256, 784}, {768, 512, 128}} {
		m, n, k := s[0], s[1], s[2]
		x, y, c := real32(1, m*k), real32(2, k*n), make([]float32, m*n)
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			for b.Loop() {
				_ = Gemm(element.Float32, 1, m, n, k, Matrix{Data: ptr(c), Stride: n}, Matrix{Data: ptr(x), Stride: k},
					Matrix{Data: ptr(y), Stride: k, Trans: true}, false, nil)
			}
			b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}

// rate reports memory traffic.
func rate(b *testing.B, bytes int) {
	b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

func BenchmarkElementwise(b *testing.B) {
	for _, n := range []int{16, 4096, 4 << 20} {
		x, y, z, shape := real32(1, n), real32(2, n), make([]float32, n), []int{n}
		m := make([]bool, n)
		b.Run(fmt.Sprintf("add_%d", n), func(b *testing.B) {
			for b.Loop() {
				Binary(Add, element.Float32, shape, row(z), row(x), row(y))
			}
			rate(b, 12*n)
		})
		b.Run(fmt.Sprintf("scalar_%d", n), func(b *testing.B) {
			for b.Loop() {
				Binary(Mul, element.Float32, shape, row(z), row(x), View{ptr(y), []int{0}})
			}
			rate(b, 8*n)
		})
		b.Run(fmt.Sprintf("less_%d", n), func(b *testing.B) {
			for b.Loop() {
				Compare(Lt, element.Float32, shape, row(m), row(x), row(y))
			}
			rate(b, 9*n)
		})
		for name, op := range map[string]UnaryOp{"relu": Relu, "exp": Exp, "tanh": Tanh, "gelu": Gelu, "log": Log, "sigmoid": Sigmoid} {
			b.Run(fmt.Sprintf("%s_%d", name, n), func(b *testing.B) {
				for b.Loop() {
					Unary(op, element.Float32, shape, row(z), row(x))
				}
				rate(b, 8*n)
			})
		}
		b.Run(fmt.Sprintf("gelu_grad_%d", n), func(b *testing.B) {
			for b.Loop() {
				UnaryGrad(Gelu, element.Float32, shape, row(z), row(x), row(y))
			}
			rate(b, 12*n)
		})
	}
}

func BenchmarkStrided(b *testing.B) {
	const rows, n = 1024, 1024
	x, bias, z := real32(1, rows*n), real32(2, n), make([]float32, rows*n)
	shape := []int{rows, n}
	b.Run("bias", func(b *testing.B) {
		for b.Loop() {
			Binary(Add, element.Float32, shape, View{ptr(z), []int{n, 1}}, View{ptr(x), []int{n, 1}}, View{ptr(bias), []int{0, 1}})
		}
		rate(b, 8*rows*n)
	})
	b.Run("transpose", func(b *testing.B) {
		for b.Loop() {
			Copy(element.Float32, shape, View{ptr(z), []int{n, 1}}, View{ptr(x), []int{1, n}})
		}
		rate(b, 8*rows*n)
	})
	b.Run("fill", func(b *testing.B) {
		for b.Loop() {
			Fill(element.Float32, rows*n, ptr(z), 1)
		}
		rate(b, 4*rows*n)
	})
}

func BenchmarkReduce(b *testing.B) {
	const rows, n = 1024, 1024
	x, z := real32(1, rows*n), make([]float32, n)
	for name, s := range map[string][3]int{"all": {1, rows * n, 1}, "rows": {rows, n, 1}, "columns": {1, rows, n}} {
		b.Run("sum_"+name, func(b *testing.B) {
			for b.Loop() {
				Reduce(Sum, element.Float32, s[0], s[1], s[2], ptr(z), ptr(x))
			}
			rate(b, 4*rows*n)
		})
	}
	b.Run("max_rows", func(b *testing.B) {
		for b.Loop() {
			Reduce(MaxOver, element.Float32, rows, n, 1, ptr(z), ptr(x))
		}
		rate(b, 4*rows*n)
	})
	b.Run("square_sum", func(b *testing.B) {
		for b.Loop() {
			SquareSum(element.Float32, rows*n, ptr(x))
		}
		rate(b, 4*rows*n)
	})
}

func BenchmarkRows(b *testing.B) {
	const rows, n = 768, 128
	x, y, z, g := real32(1, rows*n), real32(2, rows*n), make([]float32, rows*n), real32(3, n)
	mean, rstd, dg, db := make([]float32, rows), make([]float32, rows), make([]float32, n), make([]float32, n)
	target := make([]int64, rows)
	b.Run("softmax", func(b *testing.B) {
		for b.Loop() {
			Softmax(element.Float32, false, rows, n, ptr(z), ptr(x))
		}
		rate(b, 8*rows*n)
	})
	b.Run("softmax_65", func(b *testing.B) {
		for b.Loop() {
			Softmax(element.Float32, false, rows, 65, ptr(z), ptr(x))
		}
		rate(b, 8*rows*65)
	})
	b.Run("cross_entropy", func(b *testing.B) {
		for b.Loop() {
			CrossEntropy(element.Float32, rows, n, ptr(mean), ptr(rstd), ptr(x), target)
		}
		rate(b, 4*rows*n)
	})
	b.Run("layer_norm", func(b *testing.B) {
		for b.Loop() {
			LayerNorm(element.Float32, rows, n, 1e-5, ptr(z), ptr(mean), ptr(rstd), ptr(x), ptr(g), ptr(g))
		}
		rate(b, 8*rows*n)
	})
	b.Run("layer_norm_grad", func(b *testing.B) {
		for b.Loop() {
			LayerNormGrad(element.Float32, rows, n, ptr(z), ptr(dg), ptr(db), ptr(y), ptr(x), ptr(g), ptr(mean), ptr(rstd))
		}
		rate(b, 12*rows*n)
	})
}

func BenchmarkConv(b *testing.B) {
	for _, w := range []Window{
		{Batch: 64, Channels: 1, Height: 28, Width: 28, Filters: 32, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 64, Channels: 32, Height: 14, Width: 14, Filters: 64, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
	} {
		pixels := w.Batch * w.Height * w.Width
		x, y, k := real32(1, pixels*w.Channels), real32(2, pixels*w.Filters), real32(3, w.Filters*w.Channels*9)
		bias, dx, dk, index := real32(4, w.Filters), make([]float32, pixels*w.Channels), make([]float32, len(k)), make([]int32, len(y))
		flops := 2 * float64(pixels*w.Filters*w.Channels*9)
		report := func(b *testing.B) {
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		}
		name := fmt.Sprintf("%dto%d_", w.Channels, w.Filters)
		b.Run(name+"forward", func(b *testing.B) {
			for b.Loop() {
				_ = Conv2d(element.Float32, w, ptr(y), ptr(x), ptr(k), ptr(bias))
			}
			report(b)
		})
		b.Run(name+"grad_input", func(b *testing.B) {
			for b.Loop() {
				_ = Conv2dGradInput(element.Float32, w, ptr(dx), ptr(y), ptr(k))
			}
			report(b)
		})
		b.Run(name+"grad_weight", func(b *testing.B) {
			for b.Loop() {
				clear(dk)
				_ = Conv2dGradWeight(element.Float32, w, ptr(dk), ptr(bias), ptr(y), ptr(x))
			}
			report(b)
		})
		pool := w
		pool.Channels, pool.KernelH, pool.KernelW, pool.StrideH, pool.StrideW, pool.PadH, pool.PadW = w.Filters, 2, 2, 2, 2, 0, 0
		out := make([]float32, len(y)/4)
		b.Run(name+"max_pool", func(b *testing.B) {
			for b.Loop() {
				MaxPool2d(element.Float32, pool, ptr(out), index, ptr(y))
			}
			rate(b, 4*len(y)+8*len(out))
		})
		b.Run(name+"max_pool_grad", func(b *testing.B) {
			for b.Loop() {
				MaxPool2dGrad(element.Float32, pool, ptr(y), ptr(out), index)
			}
			rate(b, 4*len(y)+8*len(out))
		})
	}
}

func BenchmarkOptimizer(b *testing.B) {
	const n = 1 << 20
	p, g, m, v := real32(1, n), real32(2, n), make([]float32, n), make([]float32, n)
	b.Run("sgd", func(b *testing.B) {
		for b.Loop() {
			SGD{LR: 1e-9, Momentum: 0.9}.Step(element.Float32, n, ptr(p), ptr(g), ptr(m))
		}
		rate(b, 20*n)
	})
	b.Run("adam", func(b *testing.B) {
		for b.Loop() {
			Adam{LR: 1e-9, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Count: 3}.Step(element.Float32, n, ptr(p), ptr(g), ptr(m), ptr(v))
		}
		rate(b, 28*n)
	})
}

func BenchmarkRandom(b *testing.B) {
	const n = 1 << 16
	z := make([]float32, n)
	b.Run("uniform", func(b *testing.B) {
		for b.Loop() {
			Stream{1, 2, 3}.Uniform(element.Float32, n, ptr(z))
		}
		rate(b, 4*n)
	})
	b.Run("normal", func(b *testing.B) {
		for b.Loop() {
			Stream{1, 2, 3}.Normal(element.Float32, n, ptr(z))
		}
		rate(b, 4*n)
	})
}

func BenchmarkRanks(b *testing.B) {
	for _, n := range []int{1, 1 << 18, 16 << 20} {
		x, y := make([]float32, n), make([]float32, n)
		z := make([]float32, n)
		b.Run(fmt.Sprintf("sum_2_%d", n), func(b *testing.B) {
			for b.Loop() {
				ReduceRanks(element.Sum, element.Float32, ptr(z), pointers(x, y), n)
			}
			rate(b, 12*n)
		})
		b.Run(fmt.Sprintf("memcpy_%d", n), func(b *testing.B) {
			for b.Loop() {
				Memcpy(ptr(z), ptr(x), 4*n)
			}
			rate(b, 8*n)
		})
	}
}
