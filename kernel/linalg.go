package kernel

// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import "unsafe"

func doubles(p []float64) *C.double { return (*C.double)(unsafe.Pointer(unsafe.SliceData(p))) }

// LU factors a, n x n and row-major, in place: P a = L U, with 1 on the diagonal of L. pivots, of length n, says
// which row was exchanged with row k. singular is the first k whose pivot is 0, or -1.
func LU(n int, a []float64, pivots []int64) (singular int) {
	for c := begin("factorization"); c.again(slice(a), slice(pivots)); {
		singular = int(C.drun_lu(long(n), doubles(a), index(pivots))) - 1
	}
	return singular
}

// LUSolve solves A x = b for the m columns of b, n x m, in place, where lu and pivots are from LU of A.
func LUSolve(n, m int, lu []float64, pivots []int64, b []float64) {
	for c := begin("solution"); c.again(slice(b)); {
		C.drun_lu_solve(long(n), long(m), doubles(lu), index(pivots), doubles(b))
	}
}

// Cholesky replaces a, n x n and symmetric, by the lower triangular L with a = L Lᵀ. It reads only the lower
// triangle. bad is the order of the first minor that is not positive, or 0.
func Cholesky(n int, a []float64) (bad int) {
	for c := begin("factorization"); c.again(slice(a)); {
		bad = int(C.drun_cholesky(long(n), doubles(a)))
	}
	return bad
}

// QR factors a, m x n: it becomes the upper triangular R, and q, m x columns, the first columns of the orthogonal Q.
func QR(m, n, columns int, a, q []float64) {
	work := make([]float64, (m+1)*min(m, n)+max(m, n))
	for c := begin("factorization"); c.again(slice(a), slice(q)); {
		C.drun_qr(long(m), long(n), long(columns), doubles(a), doubles(q), doubles(work))
	}
}

// Eigh writes the eigenvalues of a, n x n and symmetric, in ascending order, and the eigenvectors as the rows of z. a is
// overwritten. It is false if the method does not converge.
func Eigh(n int, a, values, z []float64) (ok bool) {
	work := make([]float64, n*n+4*n)
	for c := begin("factorization"); c.again(slice(a), slice(values), slice(z)); {
		ok = C.drun_eigh(long(n), doubles(a), doubles(values), doubles(z), doubles(work)) == 0
	}
	return ok
}

// SVD finds j, values and g', which replaces g, with j g = diag(values) g', where the rows of j and g' are orthonormal and
// values descend; all are n x n, and the largest element of g is near 1. It is false if the method does not converge.
func SVD(n int, g, j, values []float64) (ok bool) {
	for c := begin("factorization"); c.again(slice(g), slice(j), slice(values)); {
		ok = C.drun_svd(long(n), doubles(g), doubles(j), doubles(values)) == 0
	}
	return ok
}
