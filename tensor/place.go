package tensor

import "drun/internal/try"

// This file delivers gradients without a copy: an operation's backward function may overwrite a gradient that nothing
// else refers to, write a leaf's gradient where the optimizer wants it, or add to a part of another node's.

// ours reports whether t is a gradient in flight to which only the caller refers.
func (t *Tensor) ours() bool {
	if !t.st.temp || t.st.holds != 1 {
		return false
	}
	for i, s := range t.strides {
		if s == 0 && t.shape[i] > 1 {
			return false
		}
	}
	return true
}

// overwrite returns g itself if its memory can be reused for the result of an elementwise
// function of it, else a new tensor: whoever watches is shown both.
func overwrite(op string, g *Tensor) *Tensor {
	if g.contiguous && g.ours() && !g.ctx.watched() {
		return g
	}
	return newTensor(op, g.ctx, g.shape, g.dtype)
}

// place returns the memory where the gradient of input i belongs, and whether a part is already there, to which the
// rest must be added. It is nil if there is no such memory; otherwise the caller must write to it. g and the saved
// tensors can be read meanwhile.
func (n *node) place(i int, g *Tensor) (dst *Tensor, add bool) {
	t := n.in[i].leaf
	switch {
	case t == nil || t.dtype != g.dtype:
		return nil, false
	case t.grad != nil:
		dst, add = t.grad, true
	case t.leaf != nil && t.leaf.slot != nil:
		dst = t.leaf.slot
	default:
		return nil, false
	}
	if !dst.contiguous || dst.st == g.st || dst.dtype != g.dtype {
		return nil, false
	}
	for _, s := range n.saved {
		if s.t != nil && s.t.st == dst.st {
			return nil, false
		}
	}
	t.grad = dst
	dst.st.version++
	n.placed |= 1 << i
	return dst, add
}

// sumPlace is place for a function that always adds: the memory holds zeros if no part is there yet. If there is no
// such memory it makes a new tensor and puts it into out.
func (n *node) sumPlace(i int, g *Tensor, out []*Tensor) *Tensor {
	if dst, add := n.place(i, g); dst != nil {
		if !add {
			zero(dst)
		}
		return dst
	}
	out[i] = zeros(n.op, g.ctx, n.in[i].shape(), g.dtype)
	return out[i]
}

// pending returns the gradient, in row-major order, that waits at input i for its other parts, if this operation's
// part may be added to it in place; else nil.
func (n *node) pending(i int, g *Tensor) *Tensor {
	m := n.in[i].node
	if m == nil || m.grad == nil || n.ctx.watched() { // Watch must see the part by itself
		return nil
	}
	if w := m.grad; w.contiguous && w.dtype == g.dtype && w.dtype == computable(m.dtype) && w.ours() {
		return w
	}
	return nil
}

// layerGrads begins the backward pass of a layer of input, weight and bias: g in
// row-major order, and the places for the gradients that are needed. The caller
// must write the input's gradient, out[0] unless it is in place, and add to the others.
func (n *node) layerGrads(g *Tensor, out []*Tensor) (dy, dweight, dbias *Tensor) {
	b := build(n.op, g)
	dy = b.contiguous(g)
	if n.needs(0) && out[0] == nil {
		out[0] = b.like(n.in[0].shape()...)
	}
	if n.needs(1) {
		dweight = n.sumPlace(1, dy, out)
	}
	if n.needs(2) {
		dbias = n.sumPlace(2, dy, out)
	}
	return dy, dweight, dbias
}

// wholeOfParts is for an operation on three parts of one tensor, such as attention on queries, keys and values from one
// product: it makes zeros for that tensor's gradient, and returns the parts to which back adds. Nil if they are not usable,
// or if anything else may add to that gradient or to a part's, which would change the order of the additions.
func (n *node) wholeOfParts(g *Tensor, usable func(part *Tensor) bool) (parts [3]*Tensor) {
	var m [3]*node
	for i := range m {
		if m[i] = n.in[i].node; m[i] == nil || m[i].part == nil || m[i].uses != 1 || m[i].grad != nil || m[i].in[0].node != m[0].in[0].node {
			return parts
		}
	}
	p := m[0].in[0].node
	if p == nil || p.uses != 3 || p.grad != nil || p.dtype != g.dtype || n.ctx.watched() || m[0].seq > max(m[1].seq, m[2].seq) {
		return parts // the part that comes first keeps the sign of a zero, which queries' gradients may have
	}
	for i := range m {
		try.Ok(m[i].check())
	}
	z := p.spread(g)
	var found [3]*Tensor
	for i := range m {
		if found[i] = m[i].part(z); !usable(found[i]) {
			z.st.discard()
			return parts
		}
		for _, other := range found[:i] {
			if other.off == found[i].off || !sameShape(other.shape, found[i].shape) || !sameShape(other.strides, found[i].strides) {
				z.st.discard()
				return parts
			}
		}
	}
	if 3*found[0].n != z.n {
		zero(z)
	}
	z.st.temp = true
	z.st.hold()
	p.grad = z
	for i := range m {
		m[i].done = true
	}
	return found
}

// spread returns a new tensor for the gradient of n's result, with the same strides.
func (n *node) spread(g *Tensor) *Tensor {
	z := newTensor(n.op, g.ctx, n.shape, computable(n.dtype))
	if n.strides != nil {
		copy(z.strides, n.strides)
		z.contiguous = false
	}
	return z
}

// addPart adds g to a part of the gradient of n's result.
func (n *node) addPart(g *Tensor, part func(*Tensor) *Tensor) {
	first := n.grad == nil
	if first || !n.grad.ours() {
		z := n.spread(g)
		if first {
			zero(z)
		} else {
			kCopy(z, n.grad)
			n.dropGrad()
		}
		z.st.temp = true
		z.st.hold()
		n.grad = z
	}
	if first {
		assign(n.op, part(n.grad), g)
	} else {
		addInto(part(n.grad), g)
	}
}

// bytesOf returns the bytes of a tensor that fills its memory without gaps.
func bytesOf(t *Tensor) []byte {
	flat := *t
	flat.contiguous = true
	return flat.Bytes()
}

// dense reports whether t's elements fill their memory without gaps, in any order of dimensions.
func dense(t *Tensor) bool {
	last := 0
	for i, s := range t.strides {
		if s == 0 && t.shape[i] > 1 {
			return false
		}
		last += (t.shape[i] - 1) * s
	}
	return t.n > 0 && last == t.n-1
}
