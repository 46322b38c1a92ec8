package tensor

import (
	"cmp"
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Sort sorts along dim and returns the values and their indices. Equal elements keep their order; NaN counts as
// larger than any number.
func Sort(t *Tensor, dim int, descending bool) (values, indices *Tensor, err error) {
	return ordered("sort", t, dim, -1, descending)
}

// TopK returns the k largest or smallest elements along dim, in order.
func TopK(t *Tensor, k, dim int, largest bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis("topk", dim, len(t.shape)))
	size := 1
	if len(t.shape) > 0 {
		size = t.shape[a]
	}
	if k < 0 || k > size {
		return nil, nil, fmt.Errorf("topk: k = %d is out of range for dimension %d of size %d", k, a, size)
	}
	return ordered("topk", t, dim, k, largest)
}

func ordered(op string, t *Tensor, dim, k int, descending bool) (values, indices *Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(Axis(op, dim, len(t.shape)))
	keys := t.Detach()
	if half(t) {
		keys = try.To(Cast(keys, dtype.Float32))
	}
	try.To(computing(keys.dtype, op))
	if len(t.shape) == 0 {
		values = try.To(Clone(t))
		indices, err = Zeros(t.ctx, nil, dtype.Int64)
		return values, indices, err
	}
	last := len(t.shape) - 1
	b := build(op, t)
	rows := b.contiguous(swapped(keys, a, last))
	order := b.of(dtype.Int64, rows.shape...)
	n := t.shape[a]
	switch keys.dtype {
	case dtype.Float32:
		orderRows(Elems[float32](rows), Elems[int64](order), n, descending)
	case dtype.Float64:
		orderRows(Elems[float64](rows), Elems[int64](order), n, descending)
	case dtype.Int64:
		orderRows(Elems[int64](rows), Elems[int64](order), n, descending)
	case dtype.Int32:
		orderRows(Elems[int32](rows), Elems[int64](order), n, descending)
	case dtype.Int8:
		orderRows(Elems[int8](rows), Elems[int64](order), n, descending)
	default: // uint8 and bool
		orderRows(Elems[uint8](rows), Elems[int64](order), n, descending)
	}
	if k >= 0 {
		order = part(order, last, 0, k)
	}
	indices = try.To(contiguous(swapped(order, a, last)))
	values, err = Gather(t, a, indices)
	return values, indices, err
}

// orderRows writes, for each row of n values, the order that sorts it.
func orderRows[T cmp.Ordered](values []T, order []int64, n int, descending bool) {
	for ; len(values) > 0; values, order = values[n:], order[n:] {
		row, o := values[:n], order[:n]
		for i := range o {
			o[i] = int64(i)
		}
		slices.SortStableFunc(o, func(i, j int64) int {
			c := compareNaNLast(row[i], row[j])
			if descending {
				return -c
			}
			return c
		})
	}
}

// compareNaNLast is cmp.Compare, except that NaN comes last rather than first.
func compareNaNLast[T cmp.Ordered](x, y T) int {
	if (x != x) != (y != y) {
		return cmp.Compare(y, x)
	}
	return cmp.Compare(x, y)
}
