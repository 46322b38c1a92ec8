package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel"
)

// lined is a tensor to be reduced over dims, seen as the lines that the kernels process.
type lined struct {
	t     *Tensor // contiguous
	lines kernel.Lines
	order []int // of t's dimensions in the tensor that was given; nil: the same
}

// alongLines views t as lines over dims, which are in order. It copies t only if it is not contiguous, or the
// dimensions alternate too often.
func alongLines(t *Tensor, dims []int) (_ lined, err error) {
	defer try.Caught(&err)
	var l lined
	var ok bool
	if l.lines, ok = lineShape(t.shape, dims); !ok {
		for d := range t.shape {
			if !slices.Contains(dims, d) {
				l.order = append(l.order, d)
			}
		}
		kept := len(l.order)
		l.order = append(l.order, dims...)
		t = try.To(Permute(t.Detach(), l.order))
		l.lines = kernel.Lines{Outer: product(t.shape[:kept]), N: 1, Side: 1, Run: product(t.shape[kept:])}
	}
	l.t, err = contiguous(t)
	return l, err
}

// lineShape joins neighbouring dimensions that are both reduced or both kept,
// and fits what is left into kept, reduced, kept, reduced.
func lineShape(shape, dims []int) (kernel.Lines, bool) {
	var sizes []int
	var reduced []bool
	for d, n := range shape {
		r := slices.Contains(dims, d)
		switch last := len(sizes) - 1; {
		case n == 1:
		case last >= 0 && reduced[last] == r:
			sizes[last] *= n
		default:
			sizes, reduced = append(sizes, n), append(reduced, r)
		}
	}
	l := [4]int{1, 1, 1, 1}
	at := 0
	for i := len(sizes) - 1; i >= 0; i-- { // from the right, where runs are
		if reduced[i] != (at%2 == 0) {
			at++
		}
		if at > 3 {
			return kernel.Lines{}, false
		}
		l[3-at] = sizes[i]
		at++
	}
	return kernel.Lines{Outer: l[0], N: l[1], Side: l[2], Run: l[3]}, true
}

// scaled is (t - mean - low)·scale with one value of each per line, in the dimensions' given order; mean and low may be nil.
func (l *lined) scaled(op string, mean, low, scale *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	out := try.To(newTensor(op, l.t.ctx, l.t.shape, l.t.dtype))
	kernel.ScaleLines(l.t.dtype, l.lines, kernel.Affine{Mean: ptrOr(mean), Low: ptrOr(low), Scale: scale.ptr()}, out.ptr(), l.t.ptr())
	alive(l.t, mean, low, scale)
	if l.order == nil {
		return out, nil
	}
	inverse := make([]int, len(l.order))
	for i, d := range l.order {
		inverse[d] = i
	}
	return Permute(out, inverse)
}

// Starved names the operation whose kernel could not get its memory.
func Starved(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w; use smaller tensors or batches", op, err)
}
