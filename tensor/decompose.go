package tensor

import (
	"fmt"
	"math"

	"drun/kernel"
	"drun/kernel/element"
)

// together lets several results of one operation on t take part in gradients: it records them as parts of one result.
// back gets their gradients, zeros where there are none, and the results themselves; it is a backward function.
func together(op string, t *Tensor, outs []*Tensor, back func(gs, outs []*Tensor) *Tensor) (_ []*Tensor, err error) {
	defer caughtAs(op, &err)
	if !records(t, nil) {
		return outs, nil
	}
	flat := make([]*Tensor, len(outs))
	for i, x := range outs {
		flat[i] = try(View(x, []int{x.n}))
	}
	all := try(join(op, flat, 0))
	record(all, op, func(n *node, g *Tensor, out []*Tensor) (err error) {
		defer caughtAs(op, &err)
		gs, results := make([]*Tensor, len(n.saved)), make([]*Tensor, len(n.saved))
		at := 0
		for i := range results {
			results[i] = n.val(i)
			gs[i] = try(Reshape(part(g, 0, at, results[i].n), results[i].shape))
			at += results[i].n
		}
		out[0] = back(gs, results)
		return nil
	}, t).save(outs...)
	parts, at := make([]*Tensor, len(outs)), 0
	for i, x := range outs {
		parts[i] = try(Clone(try(View(sliceDim(all, 0, at, x.n, 1), x.shape))))
		at += x.n
	}
	return parts, nil
}

// QR returns an orthogonal q and an upper triangular r with t = q r: for (m, n), the first min(m, n) columns of q and rows of r,
// or all if complete.
func QR(t *Tensor, complete bool) (q, r *Tensor, err error) {
	defer caught(&err)
	const op = "qr"
	a := try(readMatrices(op, t))
	m, n := a.rows, a.cols
	k := min(m, n)
	if complete {
		k = m
	}
	ensure(a.room(float64(m) * float64(k)))
	qs, rs := make([]float64, a.count*m*k), make([]float64, a.count*k*n)
	for i := range a.count {
		undo := try(a.scale(i))
		x := at(a.v, i, m*n)
		kernel.QR(m, n, k, x, at(qs, i, m*k))
		copy(at(rs, i, k*n), x)
		unscale(at(rs, i, k*n), undo)
	}
	q = try(a.result(qs, m, k))
	r = try(a.result(rs, k, n))
	plain := t.Detach()
	outs := try(together(op, t, []*Tensor{q, r}, func(gs, outs []*Tensor) *Tensor {
		if k > n {
			ensure(fmt.Errorf("%s: all columns of q of a matrix of shape %s have no gradient; use mode = \"reduced\"", op, ShapeString(plain.shape)))
		}
		return backQR(plain, gs[0], gs[1], outs[0], outs[1])
	}))
	return outs[0], outs[1], nil
}

// backQR is (gq + q c) r⁻ᵀ, where c is the lower triangle of r grᵀ - gqᵀ q, mirrored. For a wide matrix [x, y] with r
// = [u, v], y's gradient is q gv, and x's follows from gq + y gvᵀ.
func backQR(t, gq, gr, q, r *Tensor) *Tensor {
	last := len(t.shape) - 1
	if n, k := t.shape[last], q.shape[len(q.shape)-1]; n > k {
		x, y := part(t, last, 0, k), part(t, last, k, n-k)
		gu, gv := part(gr, last, 0, k), part(gr, last, k, n-k)
		more := try(MatMul(y, transposed(gv)))
		more = try(Add(more, gq))
		left, right := backQR(x, more, gu, q, part(r, last, 0, k)), try(MatMul(q, gv))
		return try(join("qr", []*Tensor{left, right}, last))
	}
	m := try(chain(r).then(times(transposed(gr))).end())
	less := try(chain(transposed(gq)).then(times(q)).end())
	m = try(Sub(m, less))
	lower, strict := try(Tril(m, 0)), try(Tril(m, -1))
	c := try(Add(lower, transposed(strict)))
	sum := try(chain(q).then(times(c)).binary(OpAdd, gq).end())
	return transposed(try(Solve(r, transposed(sum))))
}

// SVD returns u, s and vh with t = u diag(s) vh, s descending, the columns of u and the rows of vh orthonormal: for (m, n)
// the first min(m, n) of them, or all if full.
func SVD(t *Tensor, full bool) (u, s, vh *Tensor, err error) {
	defer caught(&err)
	const op = "svd"
	a := try(readMatrices(op, t))
	if a.rows < a.cols {
		turned := func(x *Tensor) *Tensor { return try(Transpose(x, -2, -1)) }
		vh, s, u = try3(SVD(turned(t), full))
		return turned(u), s, turned(vh), nil
	}
	m, n := a.rows, a.cols
	columns := n
	if full {
		columns = m
	}
	ensure(a.room(float64(m) * float64(columns)))
	us, ss, vs := make([]float64, a.count*m*n), make([]float64, a.count*n), make([]float64, a.count*n*n)
	rests := make([]float64, a.count*m*(columns-n))
	q, turns := make([]float64, m*columns), make([]float64, n*n)
	for i := range a.count {
		undo := try(a.scale(i))
		x := at(a.v, i, m*n)
		kernel.QR(m, n, columns, x, q)
		g := at(vs, i, n*n)
		copy(g, x)
		if !kernel.SVD(n, g, turns, at(ss, i, n)) {
			return nil, nil, nil, a.fault(i, "has singular values that were not found")
		}
		unscale(at(ss, i, n), undo)
		ensure(starved(op, product64(m, n, n, at(us, i, m*n), q, columns, turns)))
		for row := range m {
			copy(at(rests, i*m+row, columns-n), q[row*columns+n:(row+1)*columns])
		}
	}
	u, s, vh = try(a.result(us, m, n)), try(a.result(ss, n)), try(a.result(vs, n, n))
	outs := try(together(op, t, []*Tensor{u, s, vh}, func(gs, outs []*Tensor) *Tensor {
		return backSVD(gs[0], gs[1], gs[2], outs[0], outs[1], outs[2])
	}))
	if u = outs[0]; full && m > n {
		u = try(join(op, []*Tensor{u, try(a.result(rests, m, m-n))}, len(u.shape)-1))
	}
	return u, outs[1], outs[2], nil
}

// product64 is out = a bᵀ of float64: out (m, n), a (m, k) with rows lda apart, b (n, k).
func product64(m, n, k int, out, a []float64, lda int, b []float64) error {
	if m*n == 0 {
		return nil
	}
	return kernel.Gemm(element.Float64, 1, m, n, k, kernel.Matrix{Data: pointer(out), Stride: n},
		kernel.Matrix{Data: pointer(a), Stride: lda}, kernel.Matrix{Data: pointer(b), Stride: max(k, 1), Trans: true}, false, nil)
}

// apart is x[j] - x[i] for each pair of values, 1 on the diagonal: shape (…, n, n).
func apart(x *Tensor) *Tensor {
	d := try(Sub(try(Unsqueeze(x, -2)), try(Unsqueeze(x, -1))))
	fill(mainDiagonal(d), Int(1))
	return d
}

// mainDiagonal is the diagonals of x's matrices, a view.
func mainDiagonal(x *Tensor) *Tensor { return diagonalOf(x, 0, len(x.shape)-2, len(x.shape)-1) }

// skew is x - xᵀ.
func skew(x *Tensor) (*Tensor, error) { return Sub(x, transposed(x)) }

// backSVD is u (k(uᵀ gu) s + s k(vᵀ gv) + diag(gs)) vh, where k(x) is x - xᵀ divided by the differences of the squares of s,
// plus the components of gu and gv outside the spaces of u and v, divided by s.
func backSVD(gu, gs, gvh, u, s, vh *Tensor) *Tensor {
	squares := try(Mul(s, s))
	e := apart(squares)
	row, column := try(Unsqueeze(s, -2)), try(Unsqueeze(s, -1))
	left := try(chain(transposed(u)).then(times(gu)).then(skew).div(e).mul(row).end())
	right := try(chain(vh).then(times(transposed(gvh))).then(skew).div(e).mul(column).end())
	inner := try(Add(left, right))
	kBinary(OpAdd, mainDiagonal(inner), mainDiagonal(inner), gs)
	out := try(chain(u).then(times(inner)).then(times(vh)).end())
	if m, k := u.shape[len(u.shape)-2], u.shape[len(u.shape)-1]; m > k {
		inside := try(chain(transposed(u)).then(times(gu)).end())
		inside = try(MatMul(u, inside))
		more := try(chain(gu).binary(OpSub, inside).div(row).then(times(vh)).end())
		out = try(Add(out, more))
	}
	return out
}

// Eigh returns the eigenvalues of symmetric matrices, ascending, and the eigenvectors as columns. It reads the lower triangle.
func Eigh(t *Tensor) (values, vectors *Tensor, err error) {
	defer caught(&err)
	const op = "eigh"
	a := try(readSquare(op, t))
	n := a.rows
	ws, vs, z := make([]float64, a.count*n), make([]float64, a.count*n*n), make([]float64, n*n)
	for i := range a.count {
		x := at(a.v, i, n*n)
		for r := range n {
			for c := range r {
				x[c*n+r] = x[r*n+c]
			}
		}
		undo := try(a.scale(i))
		if !kernel.Eigh(n, x, at(ws, i, n), z) {
			return nil, nil, a.fault(i, "has eigenvalues that were not found")
		}
		unscale(at(ws, i, n), undo)
		for r := range n {
			for c := range n {
				vs[(i*n+c)*n+r] = z[r*n+c]
			}
		}
	}
	values = try(a.result(ws, n))
	vectors = try(a.result(vs, n, n))
	outs := try(together(op, t, []*Tensor{values, vectors}, func(gs, outs []*Tensor) *Tensor {
		return backEigh(gs[0], gs[1], outs[0], outs[1])
	}))
	return outs[0], outs[1], nil
}

// backEigh is v (diag(gw) + k / e) vᵀ, where e are the differences of the eigenvalues and k is half of vᵀ gv - (vᵀ gv)ᵀ.
func backEigh(gw, gv, w, v *Tensor) *Tensor {
	e := apart(w)
	inner := try(chain(transposed(v)).then(times(gv)).then(skew).scalar(OpMul, Float(0.5)).div(e).end())
	kCopy(mainDiagonal(inner), gw)
	return try(chain(v).then(times(inner)).then(times(transposed(v))).end())
}

// MatrixNorm is a norm of the matrices in two dimensions: "fro" or "nuc", or by kind: for 1 the largest sum of a column's
// magnitudes, for 2 the largest singular value, for infinity the largest sum of a row's magnitudes; for negative kinds the
// smallest.
func MatrixNorm(t *Tensor, name string, kind float64, dims []int, keepdim bool) (_ *Tensor, err error) {
	const op = "norm"
	defer caughtAs(op, &err)
	ensure(needFloat(op, t))
	sorted := try(dimList(op, dims, len(t.shape)))
	if name == "fro" {
		return Norm(t, 2, dims, keepdim)
	}
	var order []int
	for d := range t.shape {
		if d != sorted[0] && d != sorted[1] {
			order = append(order, d)
		}
	}
	x, along := try(Permute(t, append(order, dims...))), -1
	switch {
	case name == "nuc" || name == "" && math.Abs(kind) == 2:
		_, x, _ = try3(SVD(x, false))
	case name == "" && math.Abs(kind) == 1:
		along = -2
		fallthrough
	case name == "" && math.IsInf(kind, 0):
		x = try(chain(x).unary(OpAbs).then(func(x *Tensor) (*Tensor, error) { return Sum(x, []int{along}, false) }).end())
	case name == "":
		return nil, fmt.Errorf(`%s: no norm %v of matrices: it is "fro", "nuc", 1, -1, 2, -2, inf or -inf`, op, kind)
	default:
		return nil, fmt.Errorf(`%s: no norm %q of matrices: it is "fro", "nuc", 1, -1, 2, -2, inf or -inf`, op, name)
	}
	switch {
	case name == "nuc":
		x = try(Sum(x, []int{-1}, false))
	case kind < 0:
		x, _ = try2(MinDim(x, -1, false))
	default:
		x, _ = try2(MaxDim(x, -1, false))
	}
	return Reshape(x, reducedShape(t.shape, sorted, keepdim))
}
