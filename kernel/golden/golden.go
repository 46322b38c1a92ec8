// Package golden has results of the kernels that were computed once: every processor must come to the same bits, on every
// path and with any number of threads. The kernels' tests compare them, and `drun doctor --burn`.
package golden

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// sums are hashes of the results; a change to any kernel's order of operations changes them, on every machine alike. Inputs
// come from the kernels' own generator, since Go's math differs between processors.
var sums = map[string]string{
	"adam":      "9da12ac5e07be83f",
	"bfloat16":  "bf679cfa1fb1397f",
	"columns":   "ccc2b474b610e5dc",
	"conv":      "55a3c8973eaec742",
	"exp":       "9187c454f52824bf",
	"exp64":     "c0386b9b93603beb",
	"gelu":      "c7997c1da333721c",
	"gelu64":    "43923f90ca84cd24",
	"gemm":      "c450a3bcb2c5a92a",
	"log1p":     "76b6c1169d659856",
	"log1p64":   "3f96b1e77043fcbc",
	"norm":      "21e08beb1c5d5847",
	"normal":    "25af5a3ac3570deb",
	"pow":       "134c2c67e8a712e7",
	"sigmoid":   "e07c946790b7e437",
	"sigmoid64": "fb05d94caf99ecfd",
	"sin":       "44dba8a70ca4d346",
	"sin64":     "2bec1850165cd4b3",
	"softmax":   "8ecea880d46dbc54",
	"sum":       "3fc053edc2f89dca",
	"tanh":      "c3de4ff0bfc53611",
	"tanh64":    "c84c35f65ed1d857",
}

// Case is a computation by some kernels.
type Case struct {
	Name string
	Run  func() []float32
}

// Right reports whether a result has the bits that it should have.
func (c Case) Right(result []float32) bool { return Sum(result) == sums[c.Name] }

// Sum is the hash of a result.
func Sum(result []float32) string {
	h := fnv.New64a()
	_, _ = h.Write(unsafe.Slice((*byte)(ptr(result)), 4*len(result))) // a hash takes everything
	return fmt.Sprintf("%016x", h.Sum64())
}

func ptr[E any](s []E) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// row views a slice as one dense dimension.
func row[E any](s []E) kernel.View { return kernel.View{Data: ptr(s), Strides: []int{1}} }

// Cases makes the inputs and lists the computations, each of which may run at the same time as others.
func Cases() (list []Case) {
	const m, n, k = 37, 45, 301
	draw := func(stream uint64, n int) []float32 {
		x := make([]float32, n)
		kernel.Stream{Seed: 1, Stream: stream}.Normal(dtype.Float32, n, ptr(x))
		return x
	}
	out := func(n int, run func(y []float32)) func() []float32 {
		return func() []float32 {
			y := make([]float32, n)
			run(y)
			return y
		}
	}
	x, w, d := draw(1, m*k), draw(2, k*n), draw(3, m*k)
	cases := map[string]func() []float32{
		"normal": func() []float32 { return x },
		"gemm": out(m*n, func(y []float32) {
			_ = kernel.Gemm(dtype.Float32, 1, m, n, k, kernel.Matrix{Data: ptr(y), Stride: n}, kernel.Matrix{Data: ptr(x), Stride: k},
				kernel.Matrix{Data: ptr(w), Stride: n}, false, nil)
		}),
		"bfloat16": out(m*n, func(y []float32) {
			_ = kernel.GemmHalf(1, m, n, k, dtype.Float32, kernel.Matrix{Data: ptr(y), Stride: n}, dtype.Float32, kernel.Matrix{Data: ptr(x), Stride: k},
				dtype.Float32, kernel.Matrix{Data: ptr(w), Stride: n}, false, nil)
		}),
		"sum":     out(m, func(y []float32) { kernel.Reduce(kernel.Sum, dtype.Float32, m, k, 1, ptr(y), ptr(x)) }),
		"columns": out(k, func(y []float32) { kernel.Reduce(kernel.Sum, dtype.Float32, 1, m, k, ptr(y), ptr(x)) }),
		"softmax": out(m*k, func(y []float32) { kernel.Softmax(dtype.Float32, false, m, k, ptr(y), ptr(x)) }),
		"norm": out(m*k+2*m, func(y []float32) {
			kernel.LayerNorm(dtype.Float32, m, k, 1e-5, ptr(y), ptr(y[m*k:]), ptr(y[m*k+m:]), ptr(x), ptr(w), ptr(d))
		}),
		"pow": out(m*k, func(y []float32) {
			kernel.Unary(kernel.Abs, dtype.Float32, []int{m * k}, row(y), row(x))
			kernel.Binary(kernel.Pow, dtype.Float32, []int{m * k}, row(y), row(y), row(d))
		}),
		"conv": out(2*5*9*9, func(y []float32) {
			_ = kernel.Conv2d(dtype.Float32, kernel.Window{Batch: 2, Channels: 3, Height: 9, Width: 9, Filters: 5, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1,
				PadH: 1, PadW: 1}, ptr(y), ptr(x), ptr(w), ptr(d))
		}),
		"adam": func() []float32 {
			p, first, second := append([]float32{}, x...), make([]float32, m*k), make([]float32, m*k)
			for step := 1; step <= 3; step++ {
				kernel.Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, Decoupled: true, Count: step}.Step(dtype.Float32, m*k,
					ptr(p), ptr(d), ptr(first), ptr(second))
			}
			return p
		},
	}
	for name, op := range map[string]kernel.UnaryOp{"exp": kernel.Exp, "log1p": kernel.Log1p, "tanh": kernel.Tanh, "gelu": kernel.Gelu, "sin": kernel.Sin, "sigmoid": kernel.Sigmoid} {
		cases[name] = out(m*k, func(y []float32) { kernel.Unary(op, dtype.Float32, []int{m * k}, row(y), row(x)) })
		cases[name+"64"] = func() []float32 {
			a, b, y := make([]float64, m*k), make([]float64, m*k), make([]float32, m*k)
			kernel.Cast(dtype.Float64, dtype.Float32, []int{m * k}, row(a), row(x))
			kernel.Unary(op, dtype.Float64, []int{m * k}, row(b), row(a))
			kernel.Cast(dtype.Float32, dtype.Float64, []int{m * k}, row(y), row(b))
			return y
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		list = append(list, Case{name, cases[name]})
	}
	return list
}
