package tensor

import (
	"fmt"
	"math"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// HistC counts elements in bins of equal width from lo to hi, or from the smallest to the largest element if both are
// 0. Elements outside are not counted.
func HistC(t *Tensor, bins int, lo, hi float64) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	const op = "histc"
	edges := try.To(equalEdges(op, t, bins, lo, hi, lo == 0 && hi == 0, 1))
	return histogram(op, t, edges, nil, false)
}

// Histogram counts elements in bins of equal width between the bounds, those of t's elements if bounds is nil; it returns
// the counts and the bins' edges. See HistogramAt.
func Histogram(t *Tensor, bins int, bounds *[2]float64, weight *Tensor, density bool) (counts, edges *Tensor, err error) {
	const op = "histogram"
	defer try.Caught(&err)
	ofData := bounds == nil
	if ofData {
		bounds = new([2]float64)
	}
	edges = try.To(equalEdges(op, t, bins, bounds[0], bounds[1], ofData, 0.5))
	return try.To(histogram(op, t, edges, weight, density)), edges, nil
}

// HistogramAt counts the elements from each edge to the next; the last bin includes its upper edge. Each element counts
// as its weight; density divides by the sum and the bins' widths.
func HistogramAt(t, edges, weight *Tensor, density bool) (*Tensor, error) {
	const op = "histogram"
	if edges.dtype != t.dtype || len(edges.shape) != 1 || edges.n < 2 {
		return nil, fmt.Errorf("%s: edges of type %s and shape %s do not fit elements of type %s: want a vector of two or more", op, edges.dtype, ShapeString(edges.shape), t.dtype)
	}
	return histogram(op, t, edges, weight, density)
}

func equalEdges(op string, t *Tensor, bins int, lo, hi float64, ofData bool, apart float64) (_ *Tensor, err error) {
	defer try.CaughtAs(op, &err)
	try.Ok(NeedFloat(op, t))
	try.FailIf(bins < 1 || bins > MaxValues(), "%s: cannot make %d bins", op, bins)
	if ofData && t.n > 0 {
		lo, hi = try.To(Min(t.Detach())).Element(0).f, try.To(Max(t.Detach())).Element(0).f
	}
	if lo == hi {
		lo, hi = lo-apart, hi+apart
	}
	try.FailIf(!(lo < hi) || math.IsInf(lo, 0) || math.IsInf(hi, 0), "%s: there are no bins from %v to %v", op, lo, hi)
	return Linspace(t.ctx, lo, hi, bins+1, t.dtype)
}

func histogram(op string, t, edges, weight *Tensor, density bool) (_ *Tensor, err error) {
	defer try.CaughtAs(op, &err)
	try.Ok(NeedFloat(op, t))
	if weight != nil && (!sameShape(weight.shape, t.shape) || weight.dtype != t.dtype) {
		return nil, fmt.Errorf("%s: weights of type %s and shape %s do not fit %s of shape %s", op, weight.dtype, ShapeString(weight.shape), t.dtype, ShapeString(t.shape))
	}
	b := build(op, t)
	read := func(x *Tensor) *Tensor { return b.contiguous(b.cast(x.Detach(), dtype.Float64)) }
	x, e, w := read(t), read(edges), t
	if weight != nil {
		w = read(weight)
	}
	defer alive(x, e, w)
	values, at := Values[float64](x), Values[float64](e)
	var weights []float64
	if weight != nil {
		weights = Values[float64](w)
	}
	try.FailIf(!slices.IsSorted(at) || slices.ContainsFunc(at, func(x float64) bool { return x != x }), "%s: the edges must ascend", op)
	counts := make([]float64, len(at)-1)
	last := len(counts)
	for i, x := range values {
		if !(x >= at[0] && x <= at[last]) {
			continue
		}
		bin, found := slices.BinarySearch(at, x)
		for found && bin < last && at[bin+1] == x { // take the last of equal edges
			bin++
		}
		if !found || bin == last {
			bin--
		}
		if weights == nil {
			counts[bin]++
		} else {
			counts[bin] += weights[i]
		}
	}
	if density {
		total := 0.0
		for _, n := range counts {
			total += n
		}
		for i := range counts {
			counts[i] = counts[i] / total / (at[i+1] - at[i])
		}
	}
	out := try.To(FromFloats(t.ctx, counts, []int{len(counts)}, t.dtype))
	noGradient(op, out, t)
	return out, nil
}
