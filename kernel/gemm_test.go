package kernel

import (
	"fmt"
	"math"
	"testing"

	"drun/element"
)

// product is the reference: element (i, j) of a k-deep product in float64.
func product[E float32 | float64](m, n, k int, a, b Matrix, as, bs []E, c []E, accumulate bool, bias []E) []float64 {
	out := make([]float64, len(c))
	at := func(s []E, x Matrix, i, j int) float64 {
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
			a, b := Matrix{Trans: mode&1 != 0, Stride: k + 2}, Matrix{Trans: mode&2 != 0, Stride: n + 1}
			if a.Trans {
				a.Stride = m + 2
			}
			if b.Trans {
				b.Stride = k + 1
			}
			t.Run(fmt.Sprintf("%dx%dx%d_mode%d", m, n, k, mode), func(t *testing.T) {
				testGemm(t, element.Float32, m, n, k, a, b, mode&4 != 0, real32, 2e-5)
				testGemm(t, element.Float64, m, n, k, a, b, mode&4 != 0, real64, 1e-13)
			})
		}
	}
}

func testGemm[E float32 | float64](t *testing.T, dt element.Type, m, n, k int, a, b Matrix, accumulate bool,
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
		_ = Gemm(dt, 1, m, n, k, Matrix{Data: ptr(c), Stride: n}, a, b, accumulate, ptr(bias))
		return c
	})
	near(t, "product", got, product(m, n, k, a, b, as, bs, start, accumulate, bias), tolerance*math.Sqrt(float64(k+1)))
}
