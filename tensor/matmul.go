package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// MatMul returns the matrix product, with PyTorch's rules: vectors are taken as a row on the left and a column on the
// right, and leading dimensions are batches that broadcast.
func MatMul(a, b *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	na, nb := len(a.shape), len(b.shape)
	if na == 0 || nb == 0 {
		return nil, fmt.Errorf("matmul: shapes %s and %s: both need at least one dimension", ShapeString(a.shape), ShapeString(b.shape))
	}
	ka, kb := a.shape[na-1], b.shape[max(nb-2, 0)]
	if ka != kb {
		return nil, fmt.Errorf("matmul: shapes %s and %s do not match: %d columns on the left, %d rows on the right",
			ShapeString(a.shape), ShapeString(b.shape), ka, kb)
	}
	low := lowProduct(a, b)
	if a.dtype != b.dtype && !low {
		return nil, fmt.Errorf("matmul: dtypes %s and %s differ; cast one with .to()", a.dtype, b.dtype)
	}
	dt := dtype.BFloat16
	if !low {
		dt = try.To(computing(a.dtype, "matmul"))
	}
	if na == 2 && nb == 2 {
		return matmul(dt, low, a, b), nil
	}
	x, y := chain(a), chain(b)
	if na == 1 {
		x = x.then(func(t *Tensor) (*Tensor, error) { return Unsqueeze(t, 0) })
	}
	if nb == 1 {
		y = y.then(func(t *Tensor) (*Tensor, error) { return Unsqueeze(t, 1) })
	}
	var out *Tensor
	if nb <= 2 && na > 2 { // many rows by one matrix: one large product
		out = matmul(dt, low, try.To(Reshape(a, []int{product(a.shape[:na-1]), ka})), y.t)
		out = try.To(Reshape(out, append(slices.Clone(a.shape[:na-1]), out.shape[1])))
	} else {
		out = matmul(dt, low, x.t, y.t)
	}
	if nb == 1 {
		out = try.To(Squeeze(out, -1))
	}
	if na == 1 {
		d := -2
		if nb == 1 {
			d = -1
		}
		out = try.To(Squeeze(out, d))
	}
	return out, nil
}

// matmul multiplies tensors of at least two dimensions with matching sizes; low multiplies them as bfloat16.
func matmul(dt dtype.Type, low bool, a, b *Tensor) *Tensor {
	na, nb := len(a.shape), len(b.shape)
	m, k, n := a.shape[na-2], a.shape[na-1], b.shape[nb-1]
	var arr, arr2 [8]int
	batch, err := BroadcastShape("matmul", arr[:0], a.shape[:na-2], b.shape[:nb-2])
	if err != nil {
		try.Fail("matmul: the batches of shapes %s and %s do not broadcast", ShapeString(a.shape), ShapeString(b.shape))
	}
	out := newTensor("matmul", a.ctx, append(append(arr2[:0], batch...), m, n), dt)
	multiply(low, out, a, b, batch, m, n, k)
	if records(a, b) {
		n := record(out, "matmul", backMatMul, a, b).save(a, b)
		if !low {
			n.twice(matmulTwice)
		}
	}
	return out
}

// low reports whether an operation was a product in bfloat16, as the products of its gradient then are.
func (n *node) low() bool { return n.dtype == dtype.BFloat16 }

func backMatMul(n *node, g *Tensor, out []*Tensor) {
	low := n.low()
	if n.needs(0) {
		out[0] = matmul(g.dtype, low, g, transposed(n.val(1)))
	}
	if n.needs(1) && !n.turnedGrad(low, g) {
		out[1] = matmul(g.dtype, low, transposed(n.val(0)), g)
	}
}

// turnedGrad writes the gradient of a transposed leaf, the right operand, directly into the leaf's gradient, as for the
// tied weights of a language model's head: otherwise it would be computed separately and copied column by column. It does
// so only if no other part of that gradient can come in between, so that the parts are added in the same order.
func (n *node) turnedGrad(low bool, g *Tensor) bool {
	m, x := n.in[1].node, n.val(0)
	if m == nil || m.op != "transpose" || m.uses != 1 || m.grad != nil || m.in[0].leaf == nil || low || n.ctx.watched() ||
		!x.contiguous || !g.contiguous || len(x.shape) != 2 || x.n == 0 || g.n == 0 {
		return false
	}
	t, v := m.in[0].leaf, n.val(1)
	if len(t.shape) != 2 || !t.contiguous || v.strides[0] != 1 || v.shape[0] != t.shape[1] || v.shape[1] != t.shape[0] {
		return false
	}
	if s := n.in[0].node; m.seq+1 != n.seq && (m.seq+2 != n.seq || s == nil || s.seq+1 != n.seq || s.op != "reshape") {
		return false
	}
	rows, k := x.shape[0], x.shape[1]
	if t.grad != nil && (rows > kernel.GemmBlock || t.grad.st == x.st) || t.leaf != nil && t.leaf.slot != nil && t.leaf.slot.st == x.st {
		return false // several blocks would be added one by one
	}
	try.Ok(m.check())
	dst, add := m.place(0, g)
	if dst == nil {
		return false
	}
	m.done = true
	kGemm(n.op, false, factor{t: dst, ld: k}, factor{t: g, ld: g.shape[1], trans: true}, factor{t: x, ld: k},
		1, g.shape[1], k, rows, nil, add)
	return true
}

// transposed swaps the last two dimensions; it is never recorded.
func transposed(t *Tensor) *Tensor { return swapped(t, len(t.shape)-2, len(t.shape)-1) }

// multiply writes a·b into out, which is contiguous.
func multiply(low bool, out, a, b *Tensor, batch []int, m, n, k int) {
	if out.n == 0 {
		return
	}
	x := matrix(a)
	y := matrix(b)
	var bufA, bufB [MaxDims]int
	okA := x.batchStride(bufA[:len(batch)], batch)
	okB := y.batchStride(bufB[:len(batch)], batch)
	c := factor{t: out, ld: n, batchStep: m * n}
	count := product(batch)
	if okA && okB {
		kGemm("matmul", low, c, x, y, count, m, n, k, nil, false)
		return
	}
	for i := range count {
		c.off, x.off, y.off = i*m*n, 0, 0
		for d, rest := len(batch)-1, i; d >= 0; d-- {
			x.off += rest % batch[d] * bufA[d]
			y.off += rest % batch[d] * bufB[d]
			rest /= batch[d]
		}
		kGemm("matmul", low, c, x, y, 1, m, n, k, nil, false)
	}
}

// matrix finds out how the last two dimensions can be read without a copy: as rows of adjacent elements, or, transposed, as columns.
func matrix(t *Tensor) factor {
	nd := len(t.shape)
	rows, cols := t.shape[nd-2], t.shape[nd-1]
	rs, cs := t.strides[nd-2], t.strides[nd-1]
	switch {
	case (cs == 1 || cols == 1) && (rs >= cols || rows == 1):
		return factor{t: t, ld: max(rs, cols)}
	case (rs == 1 || rows == 1) && (cs >= rows || cols == 1):
		return factor{t: t, ld: max(cs, rows), trans: true}
	}
	return factor{t: contiguous(t), ld: cols}
}

// batchStride writes the strides of the leading dimensions, broadcast
// to batch, and sets batchStep if a single stride covers all of them.
func (f *factor) batchStride(strides, batch []int) bool {
	pad := len(batch) - (len(f.t.shape) - 2)
	for i := range batch {
		strides[i] = 0
		if i >= pad && f.t.shape[i-pad] != 1 {
			strides[i] = f.t.strides[i-pad]
		}
	}
	span, found := 0, false
	for i := len(batch) - 1; i >= 0; i-- {
		switch {
		case batch[i] == 1:
		case !found:
			f.batchStep, span, found = strides[i], strides[i]*batch[i], true
		case strides[i] != span:
			return false
		default:
			span *= batch[i]
		}
	}
	return true
}
