package tensor

import (
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// layout says where the parameters of one type are in a buffer, one after the other; the gaps between them hold zeros.
type layout struct {
	Params []*Tensor
	at     []int // the offset of each, and last the end
}

// flatAlign is the alignment of parameters' offsets, in elements.
const flatAlign = 16

func aligned16(n int) int { return (n + flatAlign - 1) / flatAlign * flatAlign }

func layoutOf(params []*Tensor) layout {
	l := layout{params, []int{0}}
	for i, p := range params {
		l.at = append(l.at, aligned16(l.at[i]+p.n))
	}
	return l
}

// At returns the offset of parameter i; for the number of parameters, the end.
func (l *layout) At(i int) int { return l.at[i] }

// Window returns the part of a buffer of this layout that belongs to parameter i.
func (l *layout) Window(buffer *Tensor, i int) *Tensor {
	return try.To(OnStorage(buffer.ctx, buffer.st, l.at[i], l.Params[i].shape, buffer.dtype))
}

// Part returns what a rank has of parameter i if it holds the elements from from up to to, in a buffer of their own; set names
// the ranks that hold the rest.
func (l *layout) Part(buffer *Tensor, i, from, to int, set string) *Tensor {
	p := l.Params[i]
	first, n, off := within(l.at[i], p.n, from, to)
	t := try.To(OnStorage(buffer.ctx, buffer.st, off, []int{n}, buffer.dtype))
	t.SetShare(&Share{Shape: slices.Clone(p.shape), From: first, Set: set})
	return t
}

// moveInto makes values and slot, of this layout, the memory of the parameters and of their gradients.
func (l *layout) moveInto(values, slots *Tensor) {
	for i, p := range l.Params {
		w := l.Window(values, i)
		kCopy(w, p)
		p.st, p.off, p.contiguous = w.st, w.off, true
		copy(p.strides, w.strides)
		p.leafState().slot = l.Window(slots, i)
	}
}

// A Flat is an optimizer's parameters of one type in one buffer, and their gradients in another of the same layout.
type Flat struct {
	layout
	Data, Grads *Tensor
}

// NewFlat moves parameters, and any gradients, into new buffers.
func NewFlat(params []*Tensor) (_ *Flat, err error) {
	defer try.Caught(&err)
	f, p0 := &Flat{layout: layoutOf(params)}, params[0]
	n := f.at[len(params)]
	f.Data = try.To(NewFlatBuffer(p0, n, p0.dtype))
	if p0.ctx.GradStorage != nil && p0.ctx.device == nil { // a device could not write there
		s := try.To(p0.ctx.GradStorage(n * p0.dtype.Size()))
		s.flat = true
		f.Grads = try.To(OnStorage(p0.ctx, s, 0, []int{n}, p0.dtype))
		fill(f.Grads, Int(0))
	} else {
		f.Grads = try.To(newFlatBuffer(p0.ctx, pool, n, p0.dtype))
	}
	f.moveInto(f.Data, f.Grads)
	for _, p := range params {
		p.leaf.owner = f
		if p.grad != nil {
			try.Ok(p.SetGrad(p.grad))
		}
	}
	return f, nil
}

// Optimized reports whether an optimizer has t among its parameters.
func (t *Tensor) Optimized() bool { return t.leaf != nil && t.leaf.owner != nil }

// Claimed reports whether an optimizer has t among its parameters, or a hook waits for its gradient.
func (t *Tensor) Claimed() bool { return t.leaf != nil && (t.leaf.owner != nil || t.leaf.ready != nil) }

// Owns reports whether parameter i is still in this buffer.
func (f *Flat) Owns(i int) bool { return f.Params[i].leaf.owner == f }

// NewFlatBuffer makes a buffer of n zeros for an optimizer; it is on disk if beside is.
func NewFlatBuffer(beside *Tensor, n int, dt dtype.Type) (*Tensor, error) {
	p := pool
	if OnDisk(beside) {
		p = beside.st.pool
	}
	return newFlatBuffer(beside.ctx, p, n, dt)
}

func newFlatBuffer(c *Context, p *Pool, n int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	s := &Storage{flat: true}
	try.Ok(s.allocFrom(p, "optimizer", n*dt.Size()))
	t := try.To(OnStorage(c, s, 0, []int{n}, dt))
	zero(t)
	return t, nil
}

// Coalesce joins tensors that are adjacent in an optimizer's buffer, so that one call can work on many. The results
// are flat and cover the same elements, including the gaps of zeros between them; other contiguous tensors are
// returned as they are; nil if there would be more than most. All ts must be contiguous.
func Coalesce(ts []*Tensor, most int) []*Tensor {
	out := make([]*Tensor, 0, min(most, len(ts)))
	for i := 0; i < len(ts); {
		if len(out) == most {
			return nil
		}
		first, end, j := ts[i], ts[i].off+ts[i].n, i+1
		for ; j < len(ts) && ts[j].st == first.st && first.st.flat && ts[j].dtype == first.dtype &&
			ts[j].off == aligned16(end); j++ {
			end = ts[j].off + ts[j].n
		}
		if j == i+1 {
			out = append(out, first)
		} else {
			v := viewOf(first, 1)
			v.shape[0], v.strides[0] = end-first.off, 1
			out = append(out, v.seal())
		}
		i = j
	}
	return out
}
