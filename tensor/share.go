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
	src = contiguous(src.Detach())
	part := viewOf(src, 1)
	part.shape[0], part.strides[0] = t.n, 1
	part.off += s.From
	return CopyInto(t.Detach(), part.seal())
}

// Cut returns the part of n elements that rank own of parts holds: equal parts of whole cache lines, of which the
// last are shorter or empty.
func Cut(n, own, parts int) (from, to, each int) {
	each = (n + parts - 1) / parts
	each = aligned16(each)
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

// Moves reports whether a step of an optimizer updates t: it has a gradient, and has not been frozen since.
func (t *Tensor) Moves() bool { return t.grad != nil && t.requiresGrad }
