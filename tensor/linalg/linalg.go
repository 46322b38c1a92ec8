// Package linalg does linear algebra on the last two dimensions of tensors; the others are batches. It computes in float64
// and rounds once. starlib's module linalg calls it.
package linalg

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/tensor"
)

// matrices holds a copy of the elements of a batch of matrices, as float64.
type matrices struct {
	op         string
	t          *tensor.Tensor // detached
	count      int
	rows, cols int
	v          []float64
}

func readMatrices(op string, t *tensor.Tensor) (_ *matrices, err error) {
	defer try.Caught(&err)
	try.Ok(tensor.NeedFloat(op, t))
	nd := len(t.Shape())
	try.FailIf(nd < 2, "%s: needs a matrix, or a batch of matrices, not shape %s", op, tensor.ShapeString(t.Shape()))
	m := &matrices{op: op, t: t.Detach(), count: 1, rows: t.Shape()[nd-2], cols: t.Shape()[nd-1]}
	for _, n := range t.Shape()[:nd-2] {
		m.count *= n
	}
	try.Ok(m.room(float64(m.rows+1) * float64(m.cols+1)))
	x := try.To(tensor.Contiguous(try.To(tensor.Cast(t.Detach(), dtype.Float64))))
	m.v = slices.Clone(tensor.Elems[float64](x))
	runtime.KeepAlive(x)
	return m, nil
}

func readSquare(op string, t *tensor.Tensor) (*matrices, error) {
	m, err := readMatrices(op, t)
	if err == nil && m.rows != m.cols {
		err = fmt.Errorf("%s: needs square matrices, not shape %s", op, tensor.ShapeString(t.Shape()))
	}
	return m, err
}

func pointer(v []float64) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// at returns matrix i of v, in which each has size numbers.
func at[T any](v []T, i, size int) []T { return v[i*size : (i+1)*size] }

// room returns an error if that many numbers for each matrix, even empty ones, exceed memory.
func (m *matrices) room(numbers float64) error {
	if float64(m.count)*numbers > 4*float64(tensor.MaxValues()) {
		return fmt.Errorf("%s: shape %s is too large", m.op, tensor.ShapeString(m.t.Shape()))
	}
	return nil
}

// batch returns the shape without the last two dimensions.
func (m *matrices) batch() []int { return m.t.Shape()[:len(m.t.Shape())-2] }

// result makes a tensor of the operand's type, one of the given shape for each matrix.
func (m *matrices) result(v []float64, shape ...int) (*tensor.Tensor, error) {
	t, err := tensor.FromFloats(m.t.Context(), v, slices.Concat(m.batch(), shape), m.t.DType())
	return t, try.As(m.op, err)
}

func (m *matrices) fault(i int, what string) error {
	if m.count == 1 {
		return fmt.Errorf("%s: the matrix of shape %s %s", m.op, tensor.ShapeString(m.t.Shape()), what)
	}
	return fmt.Errorf("%s: matrix %d of the batch of shape %s %s", m.op, i, tensor.ShapeString(m.t.Shape()), what)
}

// scale multiplies matrix i by a power of 2, exactly, so that squares do not overflow; it returns the exponent that undoes it.
func (m *matrices) scale(i int) (undo int, err error) {
	a, most := at(m.v, i, m.rows*m.cols), 0.0
	for _, x := range a {
		if !(math.Abs(x) <= math.MaxFloat64) {
			return 0, m.fault(i, "has elements that are not finite")
		}
		most = max(most, math.Abs(x))
	}
	if most == 0 {
		return 0, nil
	}
	_, e := math.Frexp(most)
	for k := range a {
		a[k] = math.Ldexp(a[k], -e)
	}
	return e, nil
}

func unscale(v []float64, undo int) {
	for k := range v {
		v[k] = math.Ldexp(v[k], undo)
	}
}

// factors replaces square matrices by their LU factors; singular is the first matrix that has none, or -1.
func (m *matrices) factors() (pivots []int64, singular int) {
	singular = -1
	pivots = make([]int64, m.count*m.rows)
	for i := range m.count {
		if k := kernel.LU(m.rows, at(m.v, i, m.rows*m.rows), at(pivots, i, m.rows)); k >= 0 && singular < 0 {
			singular = i
		}
	}
	return pivots, singular
}

// Solve finds x with a x = b, for matrices b or, if b has one dimension fewer than a, vectors.
func Solve(a, b *tensor.Tensor) (_ *tensor.Tensor, err error) {
	const op = "solve"
	defer try.CaughtAs(op, &err)
	na, nb := len(a.Shape()), len(b.Shape())
	if na >= 2 && (nb == 1 || nb == na-1 && slices.Equal(b.Shape(), a.Shape()[:na-1])) {
		return tensor.Squeeze(try.To(Solve(a, try.To(tensor.Unsqueeze(b, -1)))), -1)
	}
	try.FailIf(a.DType() != b.DType(), "%s: dtypes %s and %s differ; cast one with .to()", op, a.DType(), b.DType())
	try.FailIf(na < 2 || nb < 2 || a.Shape()[na-1] != a.Shape()[na-2] || a.Shape()[na-1] != b.Shape()[nb-2],
		"%s: shapes %s and %s do not fit: want (…, n, n) and (…, n, k) or (…, n)", op, tensor.ShapeString(a.Shape()), tensor.ShapeString(b.Shape()))
	batch, err := tensor.BroadcastShape(op, nil, a.Shape()[:na-2], b.Shape()[:nb-2])
	if err != nil {
		return nil, fmt.Errorf("%s: the batches of shapes %s and %s do not broadcast", op, tensor.ShapeString(a.Shape()), tensor.ShapeString(b.Shape()))
	}
	n, k := a.Shape()[na-1], b.Shape()[nb-1]
	m := try.To(readMatrices(op, try.To(tensor.Expand(a.Detach(), append(slices.Clone(batch), n, n)))))
	x := try.To(readMatrices(op, try.To(tensor.Expand(b.Detach(), append(slices.Clone(batch), n, k)))))
	pivots, singular := m.factors()
	if singular >= 0 {
		return nil, m.fault(singular, "is singular")
	}
	for i := range m.count {
		kernel.LUSolve(n, k, at(m.v, i, n*n), at(pivots, i, n), at(x.v, i, n*k))
	}
	out, ofA := try.To(x.result(x.v, n, k)), a.RequiresGrad()
	tensor.Record(op, out, []*tensor.Tensor{a, b}, []*tensor.Tensor{a, out}, func(g *tensor.Tensor, saved []*tensor.Tensor) []*tensor.Tensor {
		db := try.To(Solve(transposed(saved[0]), g))
		if !ofA {
			return []*tensor.Tensor{nil, db}
		}
		return []*tensor.Tensor{negative(times(db, transposed(saved[1]))), db}
	})
	return out, nil
}

// The operations of the gradients; they fail as try.To does.
func times(a, b *tensor.Tensor) *tensor.Tensor   { return try.To(tensor.MatMul(a, b)) }
func mul(a, b *tensor.Tensor) *tensor.Tensor     { return try.To(tensor.Mul(a, b)) }
func div(a, b *tensor.Tensor) *tensor.Tensor     { return try.To(tensor.Div(a, b)) }
func add(a, b *tensor.Tensor) *tensor.Tensor     { return try.To(tensor.Add(a, b)) }
func sub(a, b *tensor.Tensor) *tensor.Tensor     { return try.To(tensor.Sub(a, b)) }
func negative(a *tensor.Tensor) *tensor.Tensor   { return try.To(tensor.Unary(tensor.OpNeg, a)) }
func transposed(a *tensor.Tensor) *tensor.Tensor { return try.To(tensor.Transpose(a, -2, -1)) }
func half(a *tensor.Tensor) *tensor.Tensor {
	return try.To(tensor.BinaryScalar(tensor.OpMul, a, tensor.Float(0.5), false))
}

// withDiagonal returns a with d (…, n), which broadcasts, on the diagonals of its matrices.
func withDiagonal(a, d *tensor.Tensor) *tensor.Tensor {
	n := a.Shape()[a.Dim()-1]
	on := try.To(tensor.Eye(a.Context(), n, n, dtype.Bool))
	return try.To(tensor.Where(on, try.To(tensor.Unsqueeze(d, -2)), a))
}

// of records an operation on one tensor that has saved another.
func of(op string, out, t, saved *tensor.Tensor, back func(g, saved *tensor.Tensor) *tensor.Tensor) (*tensor.Tensor, error) {
	tensor.Record(op, out, []*tensor.Tensor{t}, []*tensor.Tensor{saved}, func(g *tensor.Tensor, saved []*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{back(g, saved[0])}
	})
	return out, nil
}

// Inv returns the inverse.
func Inv(t *tensor.Tensor) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	const op = "inv"
	m := try.To(readSquare(op, t))
	inverse, singular := m.inverse()
	if singular >= 0 {
		return nil, m.fault(singular, "is singular")
	}
	out := try.To(m.result(inverse, m.rows, m.rows))
	return of(op, out, t, out, func(g, inverse *tensor.Tensor) *tensor.Tensor {
		turned := transposed(inverse)
		return negative(times(times(turned, g), turned))
	})
}

func (m *matrices) inverse() (v []float64, singular int) {
	n := m.rows
	v = make([]float64, len(m.v))
	pivots, singular := m.factors()
	for i := range m.count {
		x := at(v, i, n*n)
		for k := range n {
			x[k*n+k] = 1
		}
		if singular < 0 {
			kernel.LUSolve(n, n, at(m.v, i, n*n), at(pivots, i, n), x)
		}
	}
	return v, singular
}

// diagonalU returns the diagonals of U, and the signs of the exchanges.
func (m *matrices) diagonalU() (diagonal, signs []float64) {
	n := m.rows
	pivots, _ := m.factors()
	diagonal, signs = make([]float64, m.count*n), make([]float64, m.count)
	for i := range m.count {
		signs[i] = 1
		for k := range n {
			diagonal[i*n+k] = m.v[(i*n+k)*n+k]
			if pivots[i*n+k] != int64(k) {
				signs[i] = -signs[i]
			}
		}
	}
	return diagonal, signs
}

// Det returns the determinant.
func Det(t *tensor.Tensor) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	const op = "det"
	m := try.To(readSquare(op, t))
	diagonal, dets := m.diagonalU()
	for i := range m.count {
		for _, d := range at(diagonal, i, m.rows) {
			dets[i] *= d
		}
	}
	return of(op, try.To(m.result(dets)), t, t, func(g, t *tensor.Tensor) *tensor.Tensor { return mul(matrixOf(g), cofactors(t)) })
}

// matrixOf returns g, which has one number for each matrix of a batch, with two more dimensions of size 1.
func matrixOf(g *tensor.Tensor) *tensor.Tensor {
	return try.To(tensor.Reshape(g, append(slices.Clone(g.Shape()), 1, 1)))
}

// cofactors returns the determinant's gradient, det(a) a⁻ᵀ, even for singular matrices: with a = U S Vᵀ it is U S' Vᵀ, where
// S' has for each singular value the product of the others, times the determinants of U and V. Gradients of it need an inverse.
func cofactors(t *tensor.Tensor) *tensor.Tensor {
	if t.RequiresGrad() && t.Context().Recording() {
		return mul(transposed(try.To(Inv(t))), matrixOf(try.To(Det(t))))
	}
	u, s, vh := try.To3(SVD(try.To(tensor.Cast(t.Detach(), dtype.Float64)), false))
	// The products of the other values are the gradient of the product of all.
	others := try.To(tensor.Empty(t.Context(), s.Shape(), dtype.Float64))
	if n := s.Shape()[s.Dim()-1]; n > 0 {
		last := make([]float64, s.Len())
		for i := n - 1; i < len(last); i += n {
			last[i] = 1
		}
		kernel.CumProdGrad(dtype.Float64, s.Len()/n, n, 1, pointer(tensor.Elems[float64](others)), pointer(last), pointer(tensor.Elems[float64](s)))
		runtime.KeepAlive(s)
	}
	sign := matrixOf(mul(try.To(Det(u)), try.To(Det(vh))))
	out := mul(times(mul(u, try.To(tensor.Unsqueeze(others, -2))), vh), sign)
	return try.To(tensor.Cast(out, t.DType()))
}

// SlogDet returns the determinant's sign, and the logarithm of its magnitude.
func SlogDet(t *tensor.Tensor) (sign, log *tensor.Tensor, err error) {
	const op = "slogdet"
	defer try.CaughtAs(op, &err)
	m := try.To(readSquare(op, t))
	diagonal, signs := m.diagonalU()
	for i := range m.count {
		for k, d := range at(diagonal, i, m.rows) {
			switch {
			case d < 0:
				signs[i] = -signs[i]
			case d == 0:
				signs[i] = 0
			case d != d:
				signs[i] = d
			}
			diagonal[i*m.rows+k] = math.Abs(d)
		}
	}
	sign = try.To(m.result(signs))
	logs := try.To(tensor.FromFloats(t.Context(), diagonal, append(slices.Clone(m.batch()), m.rows), dtype.Float64))
	log = try.To(tensor.Cast(try.To(tensor.Sum(try.To(tensor.Unary(tensor.OpLog, logs)), []int{-1}, false)), t.DType()))
	log, err = of(op, log, t, t, func(g, t *tensor.Tensor) *tensor.Tensor { return mul(transposed(try.To(Inv(t))), matrixOf(g)) })
	return sign, log, err
}

// Cholesky returns the lower triangular L with t = L Lᵀ; it reads the lower triangle of t.
func Cholesky(t *tensor.Tensor) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	const op = "cholesky"
	m := try.To(readSquare(op, t))
	for i := range m.count {
		if bad := kernel.Cholesky(m.rows, at(m.v, i, m.rows*m.rows)); bad > 0 {
			return nil, m.fault(i, fmt.Sprintf("is not positive definite: its leading minor of order %d is not positive", bad))
		}
	}
	out := try.To(m.result(m.v, m.rows, m.rows))
	return of(op, out, t, out, backCholesky)
}

// backCholesky is L⁻ᵀ P L⁻¹, made symmetric, with P the lower triangle of Lᵀ g and half its diagonal.
func backCholesky(g, l *tensor.Tensor) *tensor.Tensor {
	inverse := try.To(Inv(l))
	lower := try.To(tensor.Tril(times(transposed(l), g), 0))
	lower = withDiagonal(lower, half(try.To(tensor.Diagonal(lower, 0, -2, -1))))
	whole := times(times(transposed(inverse), lower), inverse)
	return half(add(whole, transposed(whole)))
}
