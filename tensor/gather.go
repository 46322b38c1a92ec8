package tensor

import (
	"fmt"

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
	v := Elems[int64](x)
	for i, k := range v {
		if k >= 0 && k < int64(size) {
			continue
		}
		j := try.To(index(op, int(k), size, dim))
		if !owned {
			x = try.To(Clone(x.Detach()))
			v, owned = Elems[int64](x), true
		}
		v[i] = int64(j)
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
	return takeNamed("index_select", t, a, idx)
}

// takeAt replaces dimension a by the shape of an integer index.
func takeAt(t *Tensor, a int, idx *Tensor) (*Tensor, error) { return takeNamed("index", t, a, idx) }

func takeNamed(op string, t *Tensor, a int, idx *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	ix := try.To(checkedIndex(op, idx, t.shape[a], a))
	var arr [8]int
	b := build(op, t)
	x, out := b.contiguous(t), b.like(append(append(append(arr[:0], t.shape[:a]...), idx.shape...), t.shape[a+1:]...)...)
	outer, rows, inner := around(t.shape, a)
	if !out.shapeOnly() {
		kernel.Take(t.dtype, outer, rows, inner, out.ptr(), x.ptr(), Elems[int64](ix))
	}
	alive(x, ix)
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error {
			g = try.To(contiguous(g))
			z := try.To(n.sumPlace(0, g, out))
			for o := range outer {
				kernel.AddRows(g.dtype, inner, z.ptrAt(o*rows*inner), g.ptrAt(o*ix.n*inner), Elems[int64](n.val(0)))
			}
			alive(g, z)
			return nil
		}, t).save(ix)
	}
	return out, nil
}

// aligned checks index against t for gather and scatter: all dimensions but
// a may be smaller than t's.
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
	ix := try.To(checkedIndex("gather", idx, t.shape[a], a))
	b := build("gather", t)
	x, out := b.contiguous(cut(t, idx.shape, a)), b.like(idx.shape...)
	outer, to, inner := around(idx.shape, a)
	kernel.Gather(t.dtype, outer, to, t.shape[a], inner, out.ptr(), x.ptr(), Elems[int64](ix))
	alive(x, ix)
	if t.dtype.IsFloat() && records(t, nil) {
		record(out, "gather", func(n *node, g *Tensor, out []*Tensor) error {
			out[0] = try.To(Zeros(g.ctx, n.in[0].shape(), g.dtype))
			return scatterInto("gather", out[0], a, n.val(0), g, true)
		}, t).save(ix)
	}
	return out, nil
}

// computing is d if operations work on it; the storage types do not compute.
func computing(d dtype.Type, op string) (dtype.Type, error) {
	if d == dtype.Float16 || d == dtype.BFloat16 || d == dtype.Complex64 {
		return d, StorageOnly(op, d)
	}
	return d, nil
}
