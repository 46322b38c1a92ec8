package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// checkedIndex returns contiguous int64 indices, checked against size; negative ones count from the end.
func checkedIndex(op string, idx *Tensor, size, dim int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if !idx.dtype.IsInt() {
		return nil, fmt.Errorf("%s: indices must be integers, not %s", op, idx.dtype)
	}
	b := build(op, idx)
	x := b.indices(idx)
	if x.shapeOnly() {
		return x, nil
	}
	owned := x != idx
	for i, k := range Values[int64](x) {
		if k >= 0 && k < int64(size) {
			continue
		}
		j := try.To(index(op, int(k), size, dim))
		if !owned {
			x, owned = try.To(Clone(x.Detach())), true
		}
		Elems[int64](x)[i] = int64(j)
	}
	return x, nil
}

// IndexSelect takes the entries of dim that a one-dimensional index names.
func IndexSelect(t *Tensor, dim int, idx *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis("index_select", dim, len(t.shape)))
	if len(t.shape) == 0 || len(idx.shape) > 1 {
		return nil, fmt.Errorf("index_select: needs a tensor with dimensions and a one-dimensional index, not shapes %s and %s",
			ShapeString(t.shape), ShapeString(idx.shape))
	}
	if len(idx.shape) == 0 {
		idx = try.To(Unsqueeze(idx, 0))
	}
	return takeNamed("index_select", t, a, idx), nil
}

// takeAt takes the entries of dimension a that an integer index names; the index's shape replaces the dimension.
func takeAt(t *Tensor, a int, idx *Tensor) *Tensor { return takeNamed("index", t, a, idx) }

func takeNamed(op string, t *Tensor, a int, idx *Tensor) *Tensor {
	ix := try.To(checkedIndex(op, idx, t.shape[a], a))
	var arr [8]int
	b := build(op, t)
	x, out := b.contiguous(t), b.like(append(append(append(arr[:0], t.shape[:a]...), idx.shape...), t.shape[a+1:]...)...)
	outer, rows, inner := around(t.shape, a)
	if d := out.on(x, ix); d != nil {
		from, index := d.read(x), d.read(ix)
		d.Take(t.dtype, outer, rows, inner, ix.n, d.write(out), from, index)
	} else if !out.shapeOnly() {
		kernel.Take(t.dtype, outer, rows, inner, out.ptr(), x.read(), Values[int64](ix))
	}
	alive(x, ix)
	if t.dtype.IsFloat() && records(t, nil) {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			g = contiguous(g)
			z := n.sumPlace(0, g, out)
			if d := z.on(); d != nil {
				from, index := d.read(g), d.read(n.val(0))
				to := d.change(z)
				for o := range outer {
					d.AddRows(g.dtype, inner, ix.n, to.Plus(o*rows*inner), from.Plus(o*ix.n*inner), index)
				}
				return
			}
			for o := range outer {
				kernel.AddRows(g.dtype, inner, z.ptrAt(o*rows*inner), g.readAt(o*ix.n*inner), Values[int64](n.val(0)))
			}
			alive(g, z)
		}, t).save(ix)
		if n.again != nil {
			n.linear(func(in []*Tensor) *Tensor { return takeNamed(op, in[0], a, ix) })
		}
	}
	return out
}

// aligned checks index against t for gather and scatter: all dimensions but a may be smaller than t's.
func aligned(op string, t, idx *Tensor, a int) error {
	ok := len(t.shape) == len(idx.shape)
	for i := range idx.shape {
		ok = ok && (i == a || idx.shape[i] <= t.shape[i])
	}
	if !ok {
		return fmt.Errorf("%s: an index of shape %s does not fit shape %s in the dimensions other than %d",
			op, ShapeString(idx.shape), ShapeString(t.shape), a)
	}
	return nil
}

// cut narrows t to shape in all dimensions but a, without recording.
func cut(t *Tensor, shape []int, a int) *Tensor {
	v := viewOf(t, len(t.shape))
	copy(v.shape, shape)
	copy(v.strides, t.strides)
	if len(shape) > 0 {
		v.shape[a] = t.shape[a]
	}
	return v.seal()
}

// Gather takes out[i][j] = t[index[i][j]][j] for dim 0, and so on.
func Gather(t *Tensor, dim int, idx *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis("gather", dim, len(t.shape)))
	try.Ok(aligned("gather", t, idx, a))
	if len(t.shape) == 0 {
		return Clone(t)
	}
	return gather(t, a, try.To(checkedIndex("gather", idx, t.shape[a], a))), nil
}

// gather is Gather of indices that are in range and contiguous.
func gather(t *Tensor, a int, ix *Tensor) *Tensor {
	if len(t.shape) == 0 {
		return try.To(Clone(t))
	}
	b := build("gather", t)
	x, out := b.contiguous(cut(t, ix.shape, a)), b.like(ix.shape...)
	outer, to, inner := around(ix.shape, a)
	if d := out.on(x, ix); d != nil {
		from, index := d.read(x), d.read(ix)
		d.Gather(t.dtype, outer, to, t.shape[a], inner, d.write(out), from, index)
	} else {
		kernel.Gather(t.dtype, outer, to, t.shape[a], inner, out.ptr(), x.read(), Values[int64](ix))
	}
	alive(x, ix)
	if t.dtype.IsFloat() && records(t, nil) {
		n := record(out, "gather", func(n *node, g *Tensor, out []*Tensor) {
			out[0] = try.To(Zeros(g.ctx, n.in[0].shape(), g.dtype))
			scatterInto("gather", out[0], a, n.val(0), g, true)
		}, t).save(ix)
		if n.again != nil {
			n.linear(func(in []*Tensor) *Tensor { return gather(in[0], a, ix) })
		}
	}
	return out
}

// computing returns d if it can be computed with; storage types are an error.
func computing(d dtype.Type, op string) (dtype.Type, error) {
	if d == dtype.Float16 || d == dtype.BFloat16 || d == dtype.Complex64 {
		return d, StorageOnly(op, d)
	}
	return d, nil
}

// Scatter returns t with src's elements written at index: out[index[i][j]][j] = src[i][j] for dim 0. Of several for
// one position the last wins.
func Scatter(t *Tensor, dim int, idx, src *Tensor) (*Tensor, error) {
	return scatter("scatter", t, dim, idx, src, false)
}

// ScatterAdd returns t with src's elements added at index.
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

func scatter(op string, t *Tensor, dim int, idx, src *Tensor, add bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	if add && half(t) && half(src) {
		defer narrow(&t, &src).round(&result)
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
	scatterInto(op, out, a, ix, used, add)
	if t.dtype.IsFloat() && records(t, src) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) {
			backScatter(n, g, out, a, add)
		}, t, src).save(ix).twice(func(n *node, g *Tensor, out []*Tensor) {
			ix := n.val(0)
			if out[0] = g; !add && n.needs(0) {
				out[0] = try.To(ScatterValue(g, a, ix, Int(0)))
			}
			if n.needs(1) {
				got, pads := gather(g, a, ix), []int(nil)
				for d, size := range slices.Backward(src.shape) {
					pads = append(pads, 0, size-got.shape[d])
				}
				out[1] = try.To(Pad(got, pads, Int(0)))
			}
		})
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

func backScatter(n *node, g *Tensor, out []*Tensor, a int, add bool) {
	b, ix := build(n.op, g), n.val(0)
	if out[0] = g; !add && n.needs(0) { // zero where src's elements were written
		rest := try.To(Clone(g))
		nothing := expanded(newNumber(g.ctx, Int(0), g.dtype), ix.shape)
		scatterInto(n.op, rest, a, ix, nothing, false)
		out[0] = rest
	}
	if !n.needs(1) {
		return
	}
	got := gather(g, a, ix)
	if sameShape(got.shape, n.in[1].shape()) {
		out[1] = got
		return
	}
	z := b.zeros(g.dtype, n.in[1].shape()...)
	out[1] = z
	hole := sliceDim(cut(z, got.shape, a), a, 0, got.shape[a], 1)
	assign(n.op, hole, got)
}

// scatterAt is [kernel.Scatter], or with add [kernel.ScatterAdd].
func scatterAt(outer, from, to, inner int, dst, src, ix *Tensor, add bool) {
	d := dst.on()
	switch {
	case d != nil && add:
		in, index := d.read(src), d.read(ix)
		d.ScatterAdd(dst.dtype, outer, from, to, inner, d.change(dst), in, index)
	case d != nil:
		in, index := d.read(src), d.read(ix)
		d.Scatter(dst.dtype, outer, from, to, inner, d.change(dst), in, index, true)
	case add:
		kernel.ScatterAdd(dst.dtype, outer, from, to, inner, dst.ptr(), src.read(), Values[int64](ix))
	default:
		kernel.Scatter(dst.dtype, outer, from, to, inner, dst.ptr(), src.read(), Values[int64](ix))
	}
	alive(dst, src, ix)
}

// scatterInto writes src's elements into z, or adds them, at indices that have been checked.
func scatterInto(op string, z *Tensor, a int, ix, src *Tensor, add bool) {
	part, b := cut(z, ix.shape, a), build(op, z)
	dst, src := b.contiguous(part), b.contiguous(cut(src, ix.shape, a))
	outer, from, inner := around(ix.shape, a)
	scatterAt(outer, from, z.shape[a], inner, dst, src, ix, add)
	if dst != part {
		assign(op, part, dst)
	}
}
