package linalg

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/tensor"
)

// together makes several results of one operation on t take part in gradients: it records them as parts of one
// result. The backward function back gets t, the results' gradients, zeros where there are none, and the results themselves.
func together(op string, t *tensor.Tensor, outs []*tensor.Tensor, back func(t *tensor.Tensor, gs, outs []*tensor.Tensor) *tensor.Tensor) (_ []*tensor.Tensor, err error) {
	defer try.CaughtAs(op, &err)
	if !t.RequiresGrad() || !t.Context().Recording() {
		return outs, nil
	}
	flat, at := make([]*tensor.Tensor, len(outs)), make([]int, len(outs))
	n := 0
	for i, x := range outs {
		flat[i], at[i] = try.To(tensor.View(x, []int{x.Len()})), n
		n += x.Len()
	}
	parts := func(all *tensor.Tensor) []*tensor.Tensor {
		list := make([]*tensor.Tensor, len(outs))
		for i, x := range outs {
			list[i] = try.To(tensor.Reshape(try.To(tensor.Narrow(all, 0, at[i], flat[i].Len())), x.Shape()))
		}
		return list
	}
	all := try.To(tensor.Cat(flat, 0))
	tensor.Record(op, all, []*tensor.Tensor{t}, []*tensor.Tensor{t, all}, func(g *tensor.Tensor, saved []*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{back(saved[0], parts(g), parts(saved[1]))}
	})
	list := parts(all)
	for i, x := range list {
		list[i] = try.To(tensor.Clone(x))
	}
	return list, nil
}

// QR returns an orthogonal q and an upper triangular r with t = q r: for (m, n), the first min(m, n) columns of q and rows of r,
// or all if complete.
func QR(t *tensor.Tensor, complete bool) (q, r *tensor.Tensor, err error) {
	defer try.Caught(&err)
	const op = "qr"
	a := try.To(readMatrices(op, t))
	m, n := a.rows, a.cols
	k := min(m, n)
	if complete {
		k = m
	}
	try.Ok(a.room(float64(m) * float64(k)))
	qs, rs := make([]float64, a.count*m*k), make([]float64, a.count*k*n)
	for i := range a.count {
		undo := try.To(a.scale(i))
		x := at(a.v, i, m*n)
		kernel.QR(m, n, k, x, at(qs, i, m*k))
		copy(at(rs, i, k*n), x)
		unscale(at(rs, i, k*n), undo)
	}
	q = try.To(a.result(qs, m, k))
	r = try.To(a.result(rs, k, n))
	outs := try.To(together(op, t, []*tensor.Tensor{q, r}, func(t *tensor.Tensor, gs, outs []*tensor.Tensor) *tensor.Tensor {
		if k > n {
			try.Ok(fmt.Errorf("%s: with all columns of q, a matrix of shape %s has no gradient; use mode = \"reduced\"", op, tensor.ShapeString(t.Shape())))
		}
		return backQR(t, gs[0], gs[1], outs[0], outs[1])
	}))
	return outs[0], outs[1], nil
}

// backQR is (gq + q c) r⁻ᵀ, where c is the lower triangle of r grᵀ - gqᵀ q, mirrored. For a wide matrix [x, y] with r
// = [u, v], y's gradient is q gv, and x's follows from gq + y gvᵀ.
func backQR(t, gq, gr, q, r *tensor.Tensor) *tensor.Tensor {
	if n, k := t.Shape()[t.Dim()-1], q.Shape()[q.Dim()-1]; n > k {
		part := func(x *tensor.Tensor, from, n int) *tensor.Tensor { return try.To(tensor.Narrow(x, -1, from, n)) }
		x, y, gu, gv := part(t, 0, k), part(t, k, n-k), part(gr, 0, k), part(gr, k, n-k)
		left := backQR(x, add(times(y, transposed(gv)), gq), gu, q, part(r, 0, k))
		return try.To(tensor.Cat([]*tensor.Tensor{left, times(q, gv)}, -1))
	}
	m := sub(times(r, transposed(gr)), times(transposed(gq), q))
	c := add(try.To(tensor.Tril(m, 0)), transposed(try.To(tensor.Tril(m, -1))))
	return transposed(try.To(Solve(r, transposed(add(times(q, c), gq)))))
}

// SVD returns u, s and vh with t = u diag(s) vh, s descending, the columns of u and the rows of vh orthonormal: for (m, n)
// the first min(m, n) of them, or all if full.
func SVD(t *tensor.Tensor, full bool) (u, s, vh *tensor.Tensor, err error) {
	defer try.Caught(&err)
	const op = "svd"
	a := try.To(readMatrices(op, t))
	if a.rows < a.cols {
		vh, s, u = try.To3(SVD(transposed(t), full))
		return transposed(u), s, transposed(vh), nil
	}
	m, n := a.rows, a.cols
	columns := n
	if full {
		columns = m
	}
	try.Ok(a.room(float64(m) * float64(columns)))
	us, ss, vs := make([]float64, a.count*m*n), make([]float64, a.count*n), make([]float64, a.count*n*n)
	rests := make([]float64, a.count*m*(columns-n))
	q, turns := make([]float64, m*columns), make([]float64, n*n)
	for i := range a.count {
		undo := try.To(a.scale(i))
		x := at(a.v, i, m*n)
		kernel.QR(m, n, columns, x, q)
		g := at(vs, i, n*n)
		copy(g, x)
		if !kernel.SVD(n, g, turns, at(ss, i, n)) {
			return nil, nil, nil, a.fault(i, "has singular values that could not be found")
		}
		unscale(at(ss, i, n), undo)
		try.Ok(tensor.Starved(op, product64(m, n, n, at(us, i, m*n), q, columns, turns)))
		for row := range m {
			copy(at(rests, i*m+row, columns-n), q[row*columns+n:(row+1)*columns])
		}
	}
	u, s, vh = try.To(a.result(us, m, n)), try.To(a.result(ss, n)), try.To(a.result(vs, n, n))
	outs := try.To(together(op, t, []*tensor.Tensor{u, s, vh}, func(_ *tensor.Tensor, gs, outs []*tensor.Tensor) *tensor.Tensor {
		return backSVD(gs[0], gs[1], gs[2], outs[0], outs[1], outs[2])
	}))
	if u = outs[0]; full && m > n {
		u = try.To(tensor.Cat([]*tensor.Tensor{u, try.To(a.result(rests, m, m-n))}, -1))
	}
	return u, outs[1], outs[2], nil
}

// product64 is out = a bᵀ of float64: out (m, n), a (m, k) with rows lda apart, b (n, k).
func product64(m, n, k int, out, a []float64, lda int, b []float64) error {
	if m*n == 0 {
		return nil
	}
	return kernel.Gemm(dtype.Float64, 1, m, n, k, kernel.Matrix{Data: pointer(out), Stride: n},
		kernel.Matrix{Data: pointer(a), Stride: lda}, kernel.Matrix{Data: pointer(b), Stride: max(k, 1), Trans: true}, false, nil)
}

// apart returns x[j] - x[i] for each pair of values, 1 on the diagonal: shape (…, n, n).
func apart(x *tensor.Tensor) *tensor.Tensor {
	d := sub(try.To(tensor.Unsqueeze(x, -2)), try.To(tensor.Unsqueeze(x, -1)))
	return withDiagonal(d, try.To(tensor.Ones(x.Context(), []int{1}, x.DType())))
}

func skew(x *tensor.Tensor) *tensor.Tensor { return sub(x, transposed(x)) }

// backSVD is u (k(uᵀ gu) s + s k(vᵀ gv) + diag(gs)) vh, where k(x) is x - xᵀ divided by the differences of the squares of s,
// plus the components of gu and gv outside the spaces of u and v, divided by s.
func backSVD(gu, gs, gvh, u, s, vh *tensor.Tensor) *tensor.Tensor {
	e := apart(mul(s, s))
	row, column := try.To(tensor.Unsqueeze(s, -2)), try.To(tensor.Unsqueeze(s, -1))
	left := mul(div(skew(times(transposed(u), gu)), e), row)
	right := mul(div(skew(times(vh, transposed(gvh))), e), column)
	inner := withDiagonal(add(left, right), gs)
	out := times(times(u, inner), vh)
	if m, k := u.Shape()[u.Dim()-2], u.Shape()[u.Dim()-1]; m > k {
		inside := times(u, times(transposed(u), gu))
		out = add(out, times(div(sub(gu, inside), row), vh))
	}
	return out
}

// Eigh returns the eigenvalues of symmetric matrices, ascending, and the eigenvectors as columns. It reads the lower triangle.
func Eigh(t *tensor.Tensor) (values, vectors *tensor.Tensor, err error) {
	defer try.Caught(&err)
	const op = "eigh"
	a := try.To(readSquare(op, t))
	n := a.rows
	ws, vs, z := make([]float64, a.count*n), make([]float64, a.count*n*n), make([]float64, n*n)
	for i := range a.count {
		x := at(a.v, i, n*n)
		for r := range n {
			for c := range r {
				x[c*n+r] = x[r*n+c]
			}
		}
		undo := try.To(a.scale(i))
		if !kernel.Eigh(n, x, at(ws, i, n), z) {
			return nil, nil, a.fault(i, "has eigenvalues that could not be found")
		}
		unscale(at(ws, i, n), undo)
		for r := range n {
			for c := range n {
				vs[(i*n+c)*n+r] = z[r*n+c]
			}
		}
	}
	values = try.To(a.result(ws, n))
	vectors = try.To(a.result(vs, n, n))
	outs := try.To(together(op, t, []*tensor.Tensor{values, vectors}, func(_ *tensor.Tensor, gs, outs []*tensor.Tensor) *tensor.Tensor {
		return backEigh(gs[0], gs[1], outs[0], outs[1])
	}))
	return outs[0], outs[1], nil
}

// backEigh is v (diag(gw) + k / e) vᵀ, where e are the differences of the eigenvalues and k is half of vᵀ gv - (vᵀ gv)ᵀ.
func backEigh(gw, gv, w, v *tensor.Tensor) *tensor.Tensor {
	inner := withDiagonal(div(half(skew(times(transposed(v), gv))), apart(w)), gw)
	return times(times(v, inner), transposed(v))
}

// MatrixNorm returns a norm of the matrices in two dimensions: "fro" or "nuc", or by kind: for 1 the largest sum of a column's
// magnitudes, for 2 the largest singular value, for infinity the largest sum of a row's magnitudes; for negative kinds the
// smallest.
func MatrixNorm(t *tensor.Tensor, name string, kind float64, dims []int, keepdim bool) (_ *tensor.Tensor, err error) {
	const op = "norm"
	defer try.CaughtAs(op, &err)
	try.Ok(tensor.NeedFloat(op, t))
	sorted := try.To(tensor.DimList(op, dims, len(t.Shape())))
	if name == "fro" {
		return tensor.Norm(t, 2, dims, keepdim)
	}
	var order []int
	for d := range t.Shape() {
		if d != sorted[0] && d != sorted[1] {
			order = append(order, d)
		}
	}
	x, along := try.To(tensor.Permute(t, append(order, dims...))), -1
	switch {
	case name == "nuc" || name == "" && math.Abs(kind) == 2:
		_, x, _ = try.To3(SVD(x, false))
	case name == "" && math.Abs(kind) == 1:
		along = -2
		fallthrough
	case name == "" && math.IsInf(kind, 0):
		x = try.To(tensor.Sum(try.To(tensor.Unary(tensor.OpAbs, x)), []int{along}, false))
	case name == "":
		return nil, fmt.Errorf(`%s: no norm %v of matrices: want "fro", "nuc", 1, -1, 2, -2, inf or -inf`, op, kind)
	default:
		return nil, fmt.Errorf(`%s: no norm %q of matrices: want "fro", "nuc", 1, -1, 2, -2, inf or -inf`, op, name)
	}
	switch {
	case name == "nuc":
		x = try.To(tensor.Sum(x, []int{-1}, false))
	case kind < 0:
		x, _ = try.To2(tensor.MinDim(x, -1, false))
	default:
		x, _ = try.To2(tensor.MaxDim(x, -1, false))
	}
	return tensor.Reshape(x, tensor.ReducedShape(t.Shape(), sorted, keepdim))
}
