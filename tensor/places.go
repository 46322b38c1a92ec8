package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// A pick is a tensor in an index: integers for dimension dim, or a mask for as many dimensions from there on as it has.
type pick struct {
	dim int
	t   *Tensor
}

// places describes the elements that the tensors of an index select. The dimensions that they apply to are joined into one, and
// the tensors into one of indices along it.
type places struct {
	order  []int // of the dimensions, so that the indexed ones are neighbours; nil: unchanged
	merged []int // the shape, with the indexed dimensions merged
	dim    int   // the merged dimension
	index  *Tensor
}

// span returns how many dimensions p indexes.
func (p pick) span() int {
	if p.t.dtype == dtype.Bool {
		return len(p.t.shape)
	}
	return 1
}

// find joins the tensors of an index into t. As in PyTorch, the indexed dimensions come first if others are between them.
func find(op string, t *Tensor, picks []pick) (_ *places, err error) {
	defer try.Caught(&err)
	p := &places{dim: picks[0].dim}
	var named []int
	size := 1
	for _, k := range picks {
		try.Ok(k.fits(t))
		length := 1
		for d := k.dim; d < k.dim+k.span(); d++ {
			named = append(named, d)
			length *= t.shape[d]
		}
		var next *Tensor
		if k.t.dtype == dtype.Bool {
			next, err = nonzero("index", k.t)
		} else {
			next, err = checkedIndex("index", k.t, length, k.dim)
		}
		if err == nil && p.index != nil {
			if _, e := BroadcastShape("index", nil, p.index.shape, next.shape); e != nil {
				return nil, fmt.Errorf("index: tensors of shapes %s and %s in one index do not broadcast", ShapeString(p.index.shape), ShapeString(next.shape))
			}
			next, err = chain(p.index).scalar(OpMul, Int(int64(length))).binary(OpAdd, next).end()
		}
		if err != nil {
			return nil, try.As(op, err)
		}
		p.index = next
		size *= length
	}
	first, count := named[0], len(named)
	if named[count-1]-first != count-1 { // others are between them
		p.order, p.dim, first = slices.Clone(named), 0, 0
		for d := range t.shape {
			if !slices.Contains(named, d) {
				p.order = append(p.order, d)
			}
		}
	}
	shape := t.shape
	if p.order != nil {
		shape = make([]int, len(t.shape))
		for i, d := range p.order {
			shape[i] = t.shape[d]
		}
	}
	p.merged = append(append(slices.Clone(shape[:first]), size), shape[first+count:]...)
	return p, nil
}

// fits checks a mask's shape.
func (p pick) fits(t *Tensor) error {
	if n := len(p.t.shape); p.t.dtype == dtype.Bool && (n == 0 || p.dim+n > len(t.shape) || !sameShape(p.t.shape, t.shape[p.dim:p.dim+n])) {
		return maskMismatch(t, p.dim, p.t)
	}
	return nil
}

// of returns t in the order and shape of the places; ordered is the view of t before its dimensions are merged.
func (p *places) of(t *Tensor) (flat, ordered *Tensor, err error) {
	defer try.Caught(&err)
	if ordered = t; p.order != nil {
		ordered = try.To(Permute(t, p.order))
	}
	if sameShape(ordered.shape, p.merged) {
		return ordered, ordered, nil
	}
	flat, err = Reshape(ordered, p.merged)
	return flat, ordered, err
}

// take returns a copy of the elements.
func (p *places) take(t *Tensor) (_ *Tensor, err error) {
	defer try.CaughtAs("index", &err)
	flat, _ := try.To2(p.of(t))
	return takeAt(flat, p.dim, p.index), nil
}

// put writes v, broadcast, to the places of t, or adds it there, in the order of the index, without recording.
func (p *places) put(op string, t, v *Tensor, add bool) (err error) {
	defer try.CaughtAs(op, &err)
	t = t.Detach()
	flat, ordered := try.To2(p.of(t))
	shape := slices.Concat(flat.shape[:p.dim], p.index.shape, flat.shape[p.dim+1:])
	if got, err := BroadcastShape(op, nil, shape, v.shape); err != nil || !sameShape(got, shape) {
		return fmt.Errorf("%s: shape %s does not broadcast to %s", op, ShapeString(v.shape), ShapeString(shape))
	}
	b := build(op, flat)
	from := b.cast(v.Detach(), t.dtype)
	if from.st == t.st { // reading what is being written
		from = try.To(Clone(from))
	}
	dst := b.contiguous(flat)
	src := b.contiguous(expanded(from, shape))
	outer, rows, inner := around(flat.shape, p.dim)
	if add { // the kernel needs an index for each element
		rowed := try.To(View(p.index, []int{p.index.n, 1}))
		rowed = b.contiguous(expanded(rowed, []int{outer, p.index.n, inner}))
		scatterAt(outer, p.index.n, rows, inner, dst, src, rowed, true)
	} else if d := dst.on(); d != nil {
		in, index := d.read(src), d.read(p.index)
		d.Scatter(t.dtype, outer, p.index.n, rows, inner, d.change(dst), in, index, false)
	} else {
		kernel.Put(t.dtype, outer, rows, inner, dst.ptr(), src.read(), Values[int64](p.index))
	}
	alive(dst, src, p.index)
	if SharesStorage(dst, t) {
		t.st.version++
		return nil
	}
	assign(op, ordered, try.To(View(dst, ordered.shape)))
	return nil
}

// backPut is the gradient of writing elements at items: t's gradient is zero there, unless the elements were added; theirs
// is the gradient there.
func backPut(items []IndexItem, p places, add bool) backward {
	items, p.index = slices.Clone(items), nil
	return func(n *node, g *Tensor, out []*Tensor) {
		at := p
		at.index = n.val(0)
		part, _ := indexView(g, items)
		if n.needs(1) {
			out[1] = try.To(at.take(part))
		}
		if out[0] = g; add {
			return
		}
		rest := try.To(Clone(g))
		hole, _ := indexView(rest, items)
		out[0] = rest
		try.Ok(at.put(n.op, hole, newNumber(g.ctx, Int(0), g.dtype), false))
	}
}

// putTwice is backPut of recorded operations; without p the items name a view.
func putTwice(items []IndexItem, p *places, add bool) backward {
	return func(n *node, g *Tensor, out []*Tensor) {
		if n.needs(1) {
			out[1] = try.To(Index(g, items))
		}
		if out[0] = g; add || !n.needs(0) {
			return
		}
		rest := try.To(Full(g.ctx, g.shape, Truth(true), dtype.Bool))
		hole, _ := indexView(rest, items)
		if p == nil {
			fill(hole, Truth(false))
		} else {
			try.Ok(p.put(n.op, hole, newNumber(g.ctx, Truth(false), dtype.Bool), false))
		}
		out[0] = try.To(Where(rest, g, newNumber(g.ctx, Int(0), g.dtype)))
	}
}
