package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// Scatter returns t with src's elements where index says: out[index[i][j]][j] = src[i][j] for dim 0. Of several for one
// position the last wins.
func Scatter(t *Tensor, dim int, idx, src *Tensor) (*Tensor, error) {
	return scatter("scatter", t, dim, idx, src, false)
}

// ScatterAdd returns t with src's elements added where index says.
func ScatterAdd(t *Tensor, dim int, idx, src *Tensor) (*Tensor, error) {
	return scatter("scatter_add", t, dim, idx, src, true)
}

// ScatterValue is Scatter of one number.
func ScatterValue(t *Tensor, dim int, idx *Tensor, value Scalar) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "scatter"
	try.Ok(value.fits(op, t.dtype))
	return scatter(op, t, dim, idx, expanded(newNumber(t.ctx, value, t.dtype), idx.shape), false)
}

func scatter(op string, t *Tensor, dim int, idx, src *Tensor, add bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if add && half(t) && half(src) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return scatter(op, t[0], dim, idx, t[1], add) }, t, src)
	}
	a := try.To(Axis(op, dim, len(t.shape)))
	try.Ok(aligned(op, t, idx, a))
	if t.dtype != src.dtype {
		return nil, fmt.Errorf("%s: dtypes %s and %s differ", op, t.dtype, src.dtype)
	}
	if add {
		try.Ok(adds(op, t.dtype))
	}
	if err := aligned(op, src, idx, a); err != nil || len(idx.shape) > 0 && idx.shape[a] > src.shape[a] {
		return nil, fmt.Errorf("%s: an index of shape %s does not fit a source of shape %s", op, ShapeString(idx.shape), ShapeString(src.shape))
	}
	if len(t.shape) == 0 {
		flat := [3]*Tensor{t, idx, src}
		for i, x := range flat {
			flat[i] = try.To(Reshape(x, []int{1}))
		}
		out := try.To(scatter(op, flat[0], 0, flat[1], flat[2], add))
		return Reshape(out, nil)
	}
	ix := try.To(checkedIndex(op, idx, t.shape[a], a))
	out := try.To(Clone(t.Detach()))
	used := sliceDim(src.Detach(), a, 0, idx.shape[a], 1)
	try.Ok(scatterInto(op, out, a, ix, used, add))
	if t.dtype.IsFloat() && records(t, src) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			return backScatter(n, g, out, a, add)
		}, t, src).save(ix)
	}
	return out, nil
}

// adds refuses types that cannot be added up.
func adds(op string, d dtype.Type) error {
	if d == dtype.Bool {
		return fmt.Errorf("%s: not defined for bool tensors; cast with .to()", op)
	}
	_, err := computing(d, op)
	return err
}

func backScatter(n *node, g *Tensor, out []*Tensor, a int, add bool) error {
	b, ix := build(n.op, g), n.val(0)
	if out[0] = g; !add && n.needs(0) { // nothing where src's elements are
		rest := try.To(Clone(g))
		nothing := expanded(newNumber(g.ctx, Int(0), g.dtype), ix.shape)
		try.Ok(scatterInto(n.op, rest, a, ix, nothing, false))
		out[0] = rest
	}
	if !n.needs(1) {
		return nil
	}
	got := try.To(Gather(g, a, ix))
	if sameShape(got.shape, n.in[1].shape()) {
		out[1] = got
		return nil
	}
	z := b.zeros(g.dtype, n.in[1].shape()...)
	out[1] = z
	hole := sliceDim(cut(z, got.shape, a), a, 0, got.shape[a], 1)
	return assign(n.op, hole, got)
}

// scatterInto puts src's elements into z, or adds them, at indices already checked.
func scatterInto(op string, z *Tensor, a int, ix, src *Tensor, add bool) (err error) {
	defer try.Caught(&err)
	part, b := cut(z, ix.shape, a), build(op, z)
	dst, src := b.contiguous(part), b.contiguous(cut(src, ix.shape, a))
	outer, from, inner := around(ix.shape, a)
	run := kernel.Scatter
	if add {
		run = kernel.ScatterAdd
	}
	run(src.dtype, outer, from, z.shape[a], inner, dst.ptr(), src.ptr(), Elems[int64](ix))
	alive(dst, src, ix)
	if dst != part {
		return assign(op, part, dst)
	}
	return nil
}
