package tensor

import (
	"fmt"

	"drun/internal/try"
)

// A Share says that a one-dimensional tensor holds some of the elements of a larger one, in row-major order; other
// ranks hold the rest.
type Share struct {
	Shape []int  // of the whole
	From  int    // the first element that this rank holds
	Set   string // names the ranks that hold the whole together
}

// Share returns what t is a share of; nil if it is none.
func (t *Tensor) Share() *Share {
	if t.leaf == nil {
		return nil
	}
	return t.leaf.share
}

// SetShare makes t a share.
func (t *Tensor) SetShare(s *Share) { t.leafState().share = s }

// WholeShape is t's shape or, for a share, that of the whole.
func (t *Tensor) WholeShape() []int {
	if s := t.Share(); s != nil {
		return s.Shape
	}
	return t.shape
}

// CopyWhole copies src into t or, if t is a share, what t holds of src.
func CopyWhole(t, src *Tensor) (err error) {
	defer try.Caught(&err)
	s := t.Share()
	if s == nil {
		return CopyInto(t, src)
	}
	if !sameShape(src.shape, s.Shape) {
		return fmt.Errorf("copy: shape %s does not fit a share of shape %s", ShapeString(src.shape), ShapeString(s.Shape))
	}
	src = try.To(contiguous(src.Detach()))
	part := viewOf(src, 1)
	part.shape[0], part.strides[0] = t.n, 1
	part.off += s.From
	return CopyInto(t.Detach(), part.seal())
}

// Cut returns the part of n elements that rank own of parts holds: equal parts of whole cache lines, of which the
// last are shorter or empty.
func Cut(n, own, parts int) (from, to, each int) {
	each = (n + parts - 1) / parts
	each = (each + flatAlign - 1) / flatAlign * flatAlign
	return min(own*each, n), min((own+1)*each, n), each
}

// within intersects n elements that begin at at with the range from to to: it returns the first common element,
// counted from at, their number, and their offset in the range, 0 if there are none.
func within(at, n, from, to int) (first, count, off int) {
	lo, hi := min(max(at, from), at+n), max(min(at+n, to), at)
	if lo >= hi {
		return lo - at, 0, 0
	}
	return lo - at, hi - lo, lo - from
}

// Shard keeps only part own of the optimizer's state, cut into parts: Step then updates that part of the parameters,
// and leaves the rest to the other ranks of the set. State returns shares.
func (o *Optimizer) Shard(own, parts int, set string) (err error) {
	defer try.Caught(&err)
	made := o.state != nil
	whole := make([][]*Tensor, len(o.flats))
	for i, f := range o.flats {
		whole[i] = f.buffers
		f.from, f.to, f.each = Cut(f.at[len(f.params)], own, parts)
	}
	o.set = set
	if !made {
		return nil
	}
	o.state = nil
	try.Ok(o.prepare())
	for i, f := range o.flats {
		for n, b := range f.buffers {
			copy(b.Bytes(), whole[i][n].Bytes()[f.from*b.dtype.Size():])
			whole[i][n].st.discard()
		}
	}
	return nil
}

// Buffer is adjacent parameters of an optimizer: Data is all of them, of which Step updates those from From to To;
// Each is the length of all parts but the last.
type Buffer struct {
	Data           *Tensor
	From, To, Each int
}

// Buffers returns the buffers of the parameters.
func (o *Optimizer) Buffers() []Buffer {
	all := make([]Buffer, len(o.flats))
	for i, f := range o.flats {
		all[i] = Buffer{f.data, f.from, f.to, f.each}
	}
	return all
}

// Moves reports whether a step of an optimizer updates t.
func (t *Tensor) Moves() bool { return t.moves() }
