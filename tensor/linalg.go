package tensor

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"drun/kernel"
	"drun/kernel/element"
)

// Linear algebra on the last two dimensions; the others are batches. It is computed in float64 and rounded once.

// matrices are the float64 elements of a batch of matrices, a copy.
type matrices struct {
	op         string
	t          *Tensor // detached
	count      int
	rows, cols int
	v          []float64
}

func readMatrices(op string, t *Tensor) (_ *matrices, err error) {
	defer caught(&err)
	ensure(needFloat(op, t))
	nd := len(t.shape)
	if nd < 2 {
		return nil, fmt.Errorf("%s: needs a matrix, or a batch of matrices, not shape %s", op, ShapeString(t.shape))
	}
	b := build(op, t)
	m := &matrices{op: op, t: t.Detach(), count: product(t.shape[:nd-2]), rows: t.shape[nd-2], cols: t.shape[nd-1]}
	ensure(m.room(float64(m.rows+1) * float64(m.cols+1)))
	x := b.contiguous(b.cast(t.Detach(), element.Float64))
	m.v = slices.Clone(elems[float64](x))
	return m, nil
}

func readSquare(op string, t *Tensor) (*matrices, error) {
	m, err := readMatrices(op, t)
	if err == nil && m.rows != m.cols {
		err = fmt.Errorf("%s: needs square matrices, not shape %s", op, ShapeString(t.shape))
	}
	return m, err
}

func pointer(v []float64) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// at is matrix i of values, size numbers each.
func at[T any](v []T, i, size int) []T { return v[i*size : (i+1)*size] }

// room returns an error if so many numbers for each matrix, empty ones included, exceed memory.
func (m *matrices) room(numbers float64) error {
	if float64(m.count)*numbers > 4*float64(MaxValues()) {
		return fmt.Errorf("%s: shape %s is too large", m.op, ShapeString(m.t.shape))
	}
	return nil
}

// batch is the shape without the last two dimensions.
func (m *matrices) batch() []int { return m.t.shape[:len(m.t.shape)-2] }

// result makes a tensor of the operand's type, one of the given shape for each matrix.
func (m *matrices) result(v []float64, shape ...int) (*Tensor, error) {
	t, err := FromFloats(m.t.ctx, v, slices.Concat(m.batch(), shape), m.t.dtype)
	return t, As(m.op, err)
}

// fault is an error about matrix i.
func (m *matrices) fault(i int, what string) error {
	if m.count == 1 {
		return fmt.Errorf("%s: the matrix of shape %s %s", m.op, ShapeString(m.t.shape), what)
	}
	return fmt.Errorf("%s: matrix %d of the batch of shape %s %s", m.op, i, ShapeString(m.t.shape), what)
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

// unscale undoes scale.
func unscale(v []float64, undo int) {
	for k := range v {
		v[k] = math.Ldexp(v[k], undo)
	}
}

// factors are the LU factors of square matrices; singular is the first that has none, or -1.
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

// Solve finds x with a x = b, for matrices b or, where b has a dimension less than a, vectors.
func Solve(a, b *Tensor) (_ *Tensor, err error) {
	const op = "solve"
	defer caughtAs(op, &err)
	na, nb := len(a.shape), len(b.shape)
	if na >= 2 && (nb == 1 || nb == na-1 && sameShape(b.shape, a.shape[:na-1])) {
		return Squeeze(try(Solve(a, try(Unsqueeze(b, -1)))), -1)
	}
	if a.dtype != b.dtype {
		return nil, fmt.Errorf("%s: dtypes %s and %s differ; cast one with .to()", op, a.dtype, b.dtype)
	}
	if na < 2 || nb < 2 || a.shape[na-1] != a.shape[na-2] || a.shape[na-1] != b.shape[nb-2] {
		return nil, fmt.Errorf("%s: shapes %s and %s do not fit: want (…, n, n) and (…, n, k) or (…, n)", op, ShapeString(a.shape), ShapeString(b.shape))
	}
	batch, err := broadcastShape(op, nil, a.shape[:na-2], b.shape[:nb-2])
	if err != nil {
		return nil, fmt.Errorf("%s: the batches of shapes %s and %s do not broadcast", op, ShapeString(a.shape), ShapeString(b.shape))
	}
	n, k := a.shape[na-1], b.shape[nb-1]
	m := try(readMatrices(op, expanded(a.Detach(), append(slices.Clone(batch), n, n))))
	x := try(readMatrices(op, expanded(b.Detach(), append(slices.Clone(batch), n, k))))
	pivots, singular := m.factors()
	if singular >= 0 {
		return nil, m.fault(singular, "is singular")
	}
	for i := range m.count {
		kernel.LUSolve(n, k, at(m.v, i, n*n), at(pivots, i, n), at(x.v, i, n*k))
	}
	out, err := x.result(x.v, n, k)
	if err == nil && records(a, b) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			db := try(Solve(transposed(n.val(0)), g))
			if n.needs(0) {
				out[0] = try(chain(db).then(times(transposed(n.val(1)))).unary(OpNeg).end())
			}
			out[1] = db
			return nil
		}, a, b).save(a, out)
	}
	return out, err
}

// times is the product with a matrix on the right.
func times(b *Tensor) func(*Tensor) (*Tensor, error) {
	return func(a *Tensor) (*Tensor, error) { return MatMul(a, b) }
}

// Inv is the inverse.
func Inv(t *Tensor) (_ *Tensor, err error) {
	defer caught(&err)
	const op = "inv"
	m := try(readSquare(op, t))
	inverse, singular := m.inverse()
	if singular >= 0 {
		return nil, m.fault(singular, "is singular")
	}
	out, err := m.result(inverse, m.rows, m.rows)
	if err == nil && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) (err error) {
			inverse := transposed(n.val(0))
			out[0], err = chain(inverse).then(times(g)).then(times(inverse)).unary(OpNeg).end()
			return err
		}, t).save(out)
	}
	return out, err
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

// Det is the determinant.
func Det(t *Tensor) (_ *Tensor, err error) {
	defer caught(&err)
	const op = "det"
	m := try(readSquare(op, t))
	diagonal, dets := m.diagonalU()
	for i := range m.count {
		for _, d := range at(diagonal, i, m.rows) {
			dets[i] *= d
		}
	}
	out, err := m.result(dets)
	if err == nil && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			out[0] = try(Mul(try(matrixOf(g)), try(cofactors(n.val(0)))))
			return nil
		}, t).save(t)
	}
	return out, err
}

// matrixOf is g, one number per matrix of a batch, with two more dimensions of size 1.
func matrixOf(g *Tensor) (*Tensor, error) {
	return Reshape(g, append(slices.Clone(g.shape), 1, 1))
}

// cofactors is the determinant's gradient, det(a) a⁻ᵀ, also for singular matrices: with a = U S Vᵀ it is U S' Vᵀ, where S'
// has for each singular value the product of the others, times the determinants of U and V.
func cofactors(t *Tensor) (_ *Tensor, err error) {
	const op = "det"
	defer caughtAs(op, &err)
	b := build(op, t)
	u, s, vh := try3(SVD(b.cast(t.Detach(), element.Float64), false))
	// The products of the other values, as the gradient of the product of all.
	others := b.of(element.Float64, s.shape...)
	n := s.shape[len(s.shape)-1]
	if n > 0 {
		last := b.zeros(element.Float64, s.n/n, n)
		fill(part(last, 1, n-1, 1), Int(1))
		kernel.CumProdGrad(element.Float64, s.n/n, n, 1, others.ptr(), last.ptr(), s.ptr())
		alive(others, last, s)
	}
	du, dv := try(Det(u)), try(Det(vh))
	sign := try(chain(du).mul(dv).then(matrixOf).end())
	wideOthers := try(Unsqueeze(others, -2))
	out := try(chain(u).mul(wideOthers).then(times(vh)).mul(sign).end())
	return Cast(out, t.dtype)
}

// SlogDet is the determinant's sign, and the logarithm of its magnitude.
func SlogDet(t *Tensor) (sign, log *Tensor, err error) {
	const op = "slogdet"
	defer caughtAs(op, &err)
	m := try(readSquare(op, t))
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
	sign = try(m.result(signs))
	logs := try(FromFloats(t.ctx, diagonal, append(slices.Clone(m.batch()), m.rows), element.Float64))
	log = try(Cast(try(Sum(try(Unary(OpLog, logs)), []int{-1}, false)), t.dtype))
	if records(t, nil) {
		record(log, op, func(n *node, g *Tensor, out []*Tensor) (err error) {
			defer caughtAs(op, &err)
			out[0] = try(Mul(transposed(try(Inv(n.val(0)))), try(matrixOf(g))))
			return nil
		}, t).save(t)
	}
	return sign, log, nil
}

// Cholesky is the lower triangular L with t = L Lᵀ; it reads the lower triangle of t.
func Cholesky(t *Tensor) (_ *Tensor, err error) {
	defer caught(&err)
	const op = "cholesky"
	m := try(readSquare(op, t))
	for i := range m.count {
		if bad := kernel.Cholesky(m.rows, at(m.v, i, m.rows*m.rows)); bad > 0 {
			return nil, m.fault(i, fmt.Sprintf("is not positive definite: its leading minor of order %d is not positive", bad))
		}
	}
	out, err := m.result(m.v, m.rows, m.rows)
	if err == nil && records(t, nil) {
		record(out, op, backCholesky, t).save(out)
	}
	return out, err
}

// backCholesky is L⁻ᵀ P L⁻¹, made symmetric, with P the lower triangle of Lᵀ g and half its diagonal.
func backCholesky(n *node, g *Tensor, out []*Tensor) error {
	l := n.val(0)
	inverse := try(Inv(l))
	lower := try(chain(transposed(l)).then(times(g)).then(func(x *Tensor) (*Tensor, error) { return Tril(x, 0) }).end())
	d := mainDiagonal(lower)
	kBinaryNumber(OpMul, d, d, Float(0.5), false)
	whole := try(chain(transposed(inverse)).then(times(lower)).then(times(inverse)).end())
	out[0] = try(chain(whole).binary(OpAdd, transposed(whole)).scalar(OpMul, Float(0.5)).end())
	return nil
}
