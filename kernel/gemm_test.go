package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// product is the reference: element (i, j) of a k-deep product in float64.
func product[E float32 | float64](m, n, k int, a, b kernel.Matrix, as, bs []E, c []E, accumulate bool, bias []E) []float64 {
	out := make([]float64, len(c))
	at := func(s []E, x kernel.Matrix, i, j int) float64 {
		if x.Trans {
			i, j = j, i
		}
		return float64(s[i*x.Stride+j])
	}
	for i := range m {
		for j := range n {
			s := 0.0
			if accumulate {
				s = float64(c[i*n+j])
			}
			if bias != nil {
				s += float64(bias[j])
			}
			for l := range k {
				s += at(as, a, i, l) * at(bs, b, l, j)
			}
			out[i*n+j] = s
		}
	}
	return out
}

func TestGemm(t *testing.T) {
	shapes := [][3]int{{0, 3, 2}, {3, 0, 2}, {3, 4, 0}, {1, 1, 1}, {1, 7, 5}, {7, 1, 5}, {5, 7, 1}, {16, 16, 16}, {13, 33, 31},
		{64, 64, 64}, {97, 45, 300}, {3, 200, 513}, {130, 70, 260}, {32, 10, 128}, {250, 130, 40}}
	for _, s := range shapes {
		m, n, k := s[0], s[1], s[2]
		for mode := range 8 {
			a, b := kernel.Matrix{Trans: mode&1 != 0, Stride: k + 2}, kernel.Matrix{Trans: mode&2 != 0, Stride: n + 1}
			if a.Trans {
				a.Stride = m + 2
			}
			if b.Trans {
				b.Stride = k + 1
			}
			t.Run(fmt.Sprintf("%dx%dx%d_mode%d", m, n, k, mode), func(t *testing.T) {
				testGemm(t, dtype.Float32, m, n, k, a, b, mode&4 != 0, real32, 2e-5)
				testGemm(t, dtype.Float64, m, n, k, a, b, mode&4 != 0, real64, 1e-13)
			})
		}
	}
}

func testGemm[E float32 | float64](t *testing.T, dt dtype.Type, m, n, k int, a, b kernel.Matrix, accumulate bool,
	random func(uint64, int) []E, tolerance float64) {
	t.Helper()
	as, bs := random(1, (m+k+3)*(a.Stride)), random(2, (n+k+3)*(b.Stride))
	start, bias := random(3, m*n), random(4, n)
	if accumulate {
		bias = nil
	}
	a.Data, b.Data = ptr(as), ptr(bs)
	got := everywhere(t, func() []E {
		c := append([]E{}, start...)
		_ = kernel.Gemm(dt, 1, m, n, k, kernel.Matrix{Data: ptr(c), Stride: n}, a, b, accumulate, ptr(bias))
		return c
	})
	near(t, "product", got, product(m, n, k, a, b, as, bs, start, accumulate, bias), tolerance*math.Sqrt(float64(k+1)))
}

// A linear layer of a few samples takes a way of its own, which must have the bits of the same product whose second matrix
// is not transposed.
func TestFewRows(t *testing.T) {
	for _, s := range [][3]int{{12, 48, 256}, {16, 103, 257}, {32, 131, 784}, {36, 60, 31}, {48, 53, 512}, {60, 12, 40}, {64, 96, 600}, {32, 40, 4100}} {
		for mode := range 4 {
			fewRows(t, dtype.Float32, s, mode&1 != 0, mode&2 != 0, real32)
			fewRows(t, dtype.Float64, s, mode&1 != 0, mode&2 != 0, real64)
		}
	}
}

func fewRows[E float32 | float64](t *testing.T, dt dtype.Type, s [3]int, trans, biased bool, random func(uint64, int) []E) {
	t.Helper()
	m, n, k := s[0], s[1], s[2]
	as, w, b, bias := random(1, m*k), random(2, n*k), make([]E, n*k), random(3, n)
	as[m*k/2], w[n*k/3], w[n*k/2] = E(math.Inf(1)), E(math.NaN()), E(math.Inf(-1))
	for i := range n {
		for l := range k {
			b[l*n+i] = w[i*k+l]
		}
	}
	a := kernel.Matrix{Data: ptr(as), Stride: k}
	if trans {
		a.Stride, a.Trans = m, true
	}
	var beta unsafe.Pointer
	if biased {
		beta = ptr(bias)
	}
	everywhere(t, func() []E {
		const gap = 3 // beside each row, which must stay as it is
		y := make([]E, 2*m*(n+gap))
		_ = kernel.Gemm(dt, 1, m, n, k, kernel.Matrix{Data: ptr(y), Stride: n + gap}, a, kernel.Matrix{Data: ptr(b), Stride: n}, false, beta)
		_ = kernel.Gemm(dt, 1, m, n, k, kernel.Matrix{Data: ptr(y[m*(n+gap):]), Stride: n + gap}, a, kernel.Matrix{Data: ptr(w), Stride: k, Trans: true}, false, beta)
		if plain, turned := y[:m*(n+gap)], y[m*(n+gap):]; bytesOf(plain) != bytesOf(turned) {
			t.Errorf("%s %d x %d x %d, %s: the product by a transposed matrix has other bits", dt, m, n, k, kernel.Path())
		}
		for i := 0; i < len(y); i += n + gap {
			if beside := y[i+n : i+n+gap]; beside[0] != 0 || beside[1] != 0 || beside[2] != 0 {
				t.Errorf("%s %d x %d x %d, %s: %v was written beside row %d", dt, m, n, k, kernel.Path(), beside, i/(n+gap))
			}
		}
		return y
	})
}

// A product of more rows, columns and steps than a block has the bits of its parts, of one block each.
func TestBlocksOfProduct(t *testing.T) {
	for _, s := range [][3]int{{265, 40, 258}, {49, 1030, 258}, {270, 1030, 8}} {
		for mode := range 8 {
			blocksOfProduct(t, dtype.Float32, s, mode&1 != 0, mode&2 != 0, mode&4 != 0, real32)
			blocksOfProduct(t, dtype.Float64, s, mode&1 != 0, mode&2 != 0, mode&4 != 0, real64)
		}
	}
}

func blocksOfProduct[E float32 | float64](t *testing.T, dt dtype.Type, s [3]int, left, right, accumulate bool, random func(uint64, int) []E) {
	t.Helper()
	m, n, k := s[0], s[1], s[2]
	as, bs, start, bias := random(1, m*k), random(2, k*n), random(3, m*n), random(4, n)
	a, b := kernel.Matrix{Stride: k, Trans: left}, kernel.Matrix{Stride: n, Trans: right}
	if left {
		a.Stride = m
	}
	if right {
		b.Stride = k
	}
	at := func(x kernel.Matrix, s []E, i, j int) kernel.Matrix {
		if x.Trans {
			i, j = j, i
		}
		x.Data = ptr(s[i*x.Stride+j:])
		return x
	}
	everywhere(t, func() []E {
		whole, parts := slices.Clone(start), slices.Clone(start)
		multiply := func(c []E, i, j, rows, columns int) {
			var beta unsafe.Pointer
			if !accumulate {
				beta = ptr(bias[j:])
			}
			_ = kernel.Gemm(dt, 1, rows, columns, k, kernel.Matrix{Data: ptr(c[i*n+j:]), Stride: n}, at(a, as, i, 0), at(b, bs, 0, j), accumulate, beta)
		}
		multiply(whole, 0, 0, m, n)
		for i := 0; i < m; i += 100 {
			for j := 0; j < n; j += 200 {
				multiply(parts, i, j, min(100, m-i), min(200, n-j))
			}
		}
		if bytesOf(whole) != bytesOf(parts) {
			t.Errorf("%s %d x %d x %d, %s, transposed %v and %v, accumulate %v: the whole product has other bits than its parts",
				dt, m, n, k, kernel.Path(), left, right, accumulate)
		}
		return whole
	})
}
