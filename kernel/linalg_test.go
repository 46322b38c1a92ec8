package kernel_test

import (
	"math"
	"slices"
	"testing"

	"drun/kernel"
)

// dense is a b, or a bᵀ, of row-major matrices: a (m, k), b (k, n) or (n, k).
func dense(m, n, k int, a, b []float64, turned bool) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				if turned {
					out[i*n+j] += a[i*k+l] * b[j*k+l]
				} else {
					out[i*n+j] += a[i*k+l] * b[l*n+j]
				}
			}
		}
	}
	return out
}

func unit(n int) []float64 {
	u := make([]float64, n*n)
	for i := range n {
		u[i*n+i] = 1
	}
	return u
}

// Each factorization gives its matrix back, of random and of awkward matrices, with the same bits on every path.
func TestFactorizations(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 7, 40} {
		for name, a := range map[string][]float64{
			"normal": real64(uint64(n), n*n), "zeros": make([]float64, n*n), "unit": unit(n), "ones": slices.Repeat([]float64{1}, n*n),
			"small": slices.Repeat([]float64{1e-100}, n*n), "graded": graded(n),
		} {
			symmetric := slices.Clone(a)
			for i := range n {
				for j := range i {
					symmetric[j*n+i] = symmetric[i*n+j]
				}
			}
			z, values := make([]float64, n*n), make([]float64, n)
			everywhere(t, func() []float64 {
				if !kernel.Eigh(n, slices.Clone(symmetric), values, z) {
					t.Fatalf("eigh of %s %d does not converge", name, n)
				}
				return slices.Concat(z, values)
			})
			near(t, name+": vectors of eigh", dense(n, n, n, z, z, true), unit(n), 1e-13)
			near(t, name+": a zt", dense(n, n, n, symmetric, z, true), scaledColumns(z, values, n), 1e-12)
			if !slices.IsSorted(values) {
				t.Errorf("%s %d: eigenvalues %v are not sorted", name, n, values)
			}

			g, j := slices.Clone(a), make([]float64, n*n)
			everywhere(t, func() []float64 {
				copy(g, a)
				if !kernel.SVD(n, g, j, values) {
					t.Fatalf("svd of %s %d does not converge", name, n)
				}
				return slices.Concat(g, j, values)
			})
			near(t, name+": rows of svd", dense(n, n, n, g, g, true), unit(n), 1e-12)
			near(t, name+": turns of svd", dense(n, n, n, j, j, true), unit(n), 1e-13)
			scaled := slices.Clone(g)
			for i := range n {
				for k := range n {
					scaled[i*n+k] *= values[i]
				}
			}
			near(t, name+": j a", dense(n, n, n, j, a, false), scaled, 1e-12)
			slices.Reverse(values)
			if !slices.IsSorted(values) {
				t.Errorf("%s %d: singular values do not descend: %v", name, n, values)
			}
		}
	}
}

// graded are numbers of very different sizes.
func graded(n int) []float64 {
	a := real64(9, n*n)
	for i := range n {
		for j := range n {
			a[i*n+j] *= math.Pow(10, -float64(min(i, j)))
		}
	}
	return a
}

// scaledColumns is zᵀ with column i times values[i].
func scaledColumns(z, values []float64, n int) []float64 {
	out := make([]float64, n*n)
	for i := range n {
		for k := range n {
			out[k*n+i] = z[i*n+k] * values[i]
		}
	}
	return out
}

func TestQRAndLU(t *testing.T) {
	for _, s := range [][3]int{{0, 0, 0}, {1, 1, 1}, {5, 3, 3}, {5, 3, 5}, {3, 5, 3}, {40, 40, 40}, {1, 4, 1}} {
		m, n, k := s[0], s[1], s[2]
		a, q, r := real64(4, m*n), make([]float64, m*k), make([]float64, m*n)
		everywhere(t, func() []float64 {
			copy(r, a)
			kernel.QR(m, n, k, r, q)
			return slices.Concat(q, r)
		})
		near(t, "q r", dense(m, n, k, q, r[:k*n], false), a, 1e-13)
		near(t, "qt q", dense(k, k, m, turned(m, k, q), turned(m, k, q), true), unit(k), 1e-13)
		if m != n {
			continue
		}
		x, b := make([]float64, n*2), real64(5, n*2)
		everywhere(t, func() []float64 {
			lu, pivots := slices.Clone(a), make([]int64, n)
			copy(x, b)
			if k := kernel.LU(n, lu, pivots); k >= 0 {
				t.Fatalf("singular at %d", k)
			}
			kernel.LUSolve(n, 2, lu, pivots, x)
			return x
		})
		near(t, "a x", dense(n, 2, n, a, x, false), b, 1e-11)
		positive := dense(n, n, n, a, a, true)
		l := slices.Clone(positive)
		if bad := kernel.Cholesky(n, l); bad != 0 {
			t.Fatalf("not positive at %d", bad)
		}
		near(t, "l lt", dense(n, n, n, l, l, true), positive, 1e-12)
	}
	if k := kernel.LU(2, []float64{1, 2, 2, 4}, make([]int64, 2)); k != 1 {
		t.Errorf("a singular matrix: %d", k)
	}
	if bad := kernel.Cholesky(2, []float64{1, 0, 0, math.NaN()}); bad != 2 {
		t.Errorf("NaN is positive: %d", bad)
	}
}

// turned is the transpose of an m x n matrix.
func turned(m, n int, a []float64) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for j := range n {
			out[j*m+i] = a[i*n+j]
		}
	}
	return out
}
