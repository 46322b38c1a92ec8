package tensor

import (
	"slices"
	"sort"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// SearchSorted returns where in sorted, a vector or as many rows as x has, each element of x would be inserted: int64 of x's
// shape. It is before equal elements, or after them with right;
// NaN goes to the end.
func SearchSorted(sorted, x *Tensor, right bool) (_ *Tensor, err error) {
	const op = "searchsorted"
	defer try.CaughtAs(op, &err)
	try.FailIf(len(sorted.shape) == 0, "the sorted sequence has no dimensions")
	rows := len(sorted.shape) > 1
	if rows {
		outer := sorted.shape[:len(sorted.shape)-1]
		try.FailIf(len(x.shape) != len(sorted.shape) || !slices.Equal(outer, x.shape[:len(outer)]),
			"the sequence of shape %s and the values of shape %s differ in a dimension before the last", shaped(sorted.shape), shaped(x.shape))
	}
	common := promoteOperands(sorted, x)
	if common == dtype.BFloat16 {
		common = dtype.Float32
	}
	b := build(op, x)
	wide := widest(common)
	read := func(t *Tensor) *Tensor { return contiguous(cast(op, cast(op, t.Detach(), common), wide)) }
	seq, values, out := read(sorted), read(x), b.of(dtype.Int64, x.shape...)
	if out.shapeOnly() || x.n == 0 {
		return out, nil
	}
	n, each := seq.shape[len(seq.shape)-1], x.n
	if rows {
		each = x.shape[len(x.shape)-1]
	}
	at := Elems[int64](out)
	if wide == dtype.Float64 {
		search(at, Values[float64](seq), Values[float64](values), n, each, right)
	} else {
		search(at, Values[int64](seq), Values[int64](values), n, each, right)
	}
	alive(seq, values, out)
	return out, nil
}

func search[T float64 | int64](at []int64, seq, values []T, n, each int, right bool) {
	for i := range at {
		row := seq[i/each*n:]
		if each == len(at) {
			row = seq
		}
		v := values[i]
		at[i] = int64(sort.Search(n, func(j int) bool {
			return row[j] > v || !right && row[j] == v
		}))
	}
}
