package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Diagonal returns a view of the elements (i, i+offset) of two dimensions, which become one, the last.
func Diagonal(t *Tensor, offset, dim1, dim2 int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "diagonal"
	try.FailIf(len(t.shape) < 2, "%s: needs at least two dimensions, not shape %s", op, shaped(t.shape))
	a := try.To(Axis(op, dim1, len(t.shape)))
	b := try.To(Axis(op, dim2, len(t.shape)))
	try.FailIf(a == b, "%s: dimension %d is named twice", op, dim1)
	return diagonal(t, offset, a, b), nil
}

func diagonal(t *Tensor, offset, a, b int) *Tensor {
	return finishPart("diagonal", t, diagonalOf(t, offset, a, b), func(z *Tensor) *Tensor { return diagonal(z, offset, a, b) })
}

// diagonalOf is Diagonal without recording.
func diagonalOf(t *Tensor, offset, a, b int) *Tensor {
	v := viewOf(t, len(t.shape)-1)
	j := 0
	for i := range t.shape {
		if i != a && i != b {
			v.shape[j], v.strides[j] = t.shape[i], t.strides[i]
			j++
		}
	}
	n, first := min(t.shape[a], t.shape[b]-offset), offset*t.strides[b]
	if offset < 0 {
		n, first = min(t.shape[a]+offset, t.shape[b]), -offset*t.strides[a]
	}
	v.shape[j], v.strides[j] = max(n, 0), t.strides[a]+t.strides[b]
	if n > 0 {
		v.off += first
	}
	return v.seal()
}

// Diag makes a matrix with a vector on its diagonal and zeros elsewhere; of a matrix it returns the diagonal, as a copy.
func Diag(t *Tensor, offset int) (_ *Tensor, err error) {
	const op = "diag"
	defer try.CaughtAs(op, &err)
	if len(t.shape) == 2 {
		return Clone(try.To(Diagonal(t, offset, 0, 1)))
	}
	far := max(offset, -offset)
	try.FailIf(len(t.shape) != 1 || far < 0 || far > maxElems, "%s: needs a vector or a matrix, and a diagonal within reach, not shape %s and diagonal %d", op, shaped(t.shape), offset)
	out := zeros(op, t.ctx, []int{t.n + far, t.n + far}, t.dtype)
	kCopy(diagonalOf(out, offset, 0, 1), t)
	if records(t, nil) {
		back := func(_ *node, g *Tensor, out []*Tensor) { out[0] = diagonal(g, offset, 0, 1) }
		record(out, op, back, t).twice(back)
	}
	return out, nil
}

// Trace returns the sum of a matrix's diagonal.
func Trace(t *Tensor) (_ *Tensor, err error) {
	const op = "trace"
	defer try.CaughtAs(op, &err)
	try.FailIf(len(t.shape) != 2, "%s: needs a matrix, not shape %s", op, shaped(t.shape))
	return Sum(try.To(Diagonal(t, 0, 0, 1)), nil, false)
}

// TrilIndices lists the indices of a matrix's lower triangle, row by row: shape (2, n).
func TrilIndices(c *Context, rows, cols, offset int) (*Tensor, error) {
	return triangleIndices("tril_indices", c, rows, cols, offset, Tril)
}

// TriuIndices lists the indices of the upper triangle.
func TriuIndices(c *Context, rows, cols, offset int) (*Tensor, error) {
	return triangleIndices("triu_indices", c, rows, cols, offset, Triu)
}

func triangleIndices(op string, c *Context, rows, cols, offset int, triangle func(*Tensor, int) (*Tensor, error)) (_ *Tensor, err error) {
	defer try.CaughtAs(op, &err)
	try.FailIf(rows < 0 || cols < 0, "%s: a matrix cannot have %d rows and %d columns", op, rows, cols)
	all := try.To(Ones(c, []int{rows, cols}, dtype.Bool))
	return Contiguous(try.To(Transpose(try.To(NonZero(try.To(triangle(all, offset)))), 0, 1)))
}

// Outer returns the product of each element of a with each of b; both are vectors.
func Outer(a, b *Tensor) (_ *Tensor, err error) {
	const op = "outer"
	defer try.CaughtAs(op, &err)
	try.FailIf(len(a.shape) != 1 || len(b.shape) != 1, "%s: needs two vectors, not shapes %s and %s", op, shaped(a.shape), shaped(b.shape))
	return Mul(try.To(Unsqueeze(a, 1)), b)
}

// Dot returns the sum of the products of two vectors' elements.
func Dot(a, b *Tensor) (*Tensor, error) {
	const op = "dot"
	if len(a.shape) != 1 || len(b.shape) != 1 || a.n != b.n {
		return nil, fmt.Errorf("%s: needs two vectors of the same length, not shapes %s and %s", op, ShapeString(a.shape), ShapeString(b.shape))
	}
	out, err := MatMul(a, b)
	return out, try.As(op, err)
}
