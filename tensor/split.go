package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Split cuts dim into parts of the given sizes, which add up to its size. The parts are views.
func Split(t *Tensor, sizes []int, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	const op = "split"
	a := try.To(splitAxis(op, t, dim))
	total := 0
	for _, n := range sizes {
		if n < 0 || n > t.shape[a]-total {
			total = -1
			break
		}
		total += n
	}
	if total != t.shape[a] {
		return nil, fmt.Errorf("%s: sizes %s do not add up to dimension %d of shape %s", op, ShapeString(sizes), a, ShapeString(t.shape))
	}
	return parts(t, a, sizes), nil
}

// SplitEvery cuts dim into parts of the given size; the last gets what is left.
func SplitEvery(t *Tensor, size, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	const op = "split"
	a := try.To(splitAxis(op, t, dim))
	if size < 0 || size == 0 && t.shape[a] > 0 {
		return nil, fmt.Errorf("%s: parts of size %d do not fill dimension %d of shape %s", op, size, a, ShapeString(t.shape))
	}
	try.Ok(fewParts(op, t, a, (t.shape[a]-1)/max(size, 1)+1))
	return every(t, a, size), nil
}

// fewParts returns an error if there are more parts than a list may have.
func fewParts(op string, t *Tensor, a, n int) error {
	if n > MaxValues() {
		return fmt.Errorf("%s: dimension %d of shape %s in %d parts makes too many tensors", op, a, ShapeString(t.shape), n)
	}
	return nil
}

// Chunk cuts dim into at most n parts of equal size; the last gets what is left.
func Chunk(t *Tensor, n, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	const op = "chunk"
	a := try.To(splitAxis(op, t, dim))
	if n < 1 {
		return nil, fmt.Errorf("%s: dimension %d of shape %s cannot be cut into %d parts", op, a, ShapeString(t.shape), n)
	}
	try.Ok(fewParts(op, t, a, n))
	if t.shape[a] == 0 {
		return parts(t, a, make([]int, n)), nil
	}
	return every(t, a, (t.shape[a]-1)/n+1), nil
}

// every returns at least one part, of the given size or what is left.
func every(t *Tensor, a, size int) []*Tensor {
	var sizes []int
	for left := t.shape[a]; left > 0 || sizes == nil; left -= size {
		sizes = append(sizes, min(size, left))
	}
	return parts(t, a, sizes)
}

func parts(t *Tensor, a int, sizes []int) []*Tensor {
	list, at := make([]*Tensor, len(sizes)), 0
	for i, n := range sizes {
		list[i] = sliceDim(t, a, at, n, 1)
		at += n
	}
	return list
}

// Unbind returns a view for each index of dim, without that dimension.
func Unbind(t *Tensor, dim int) (_ []*Tensor, err error) {
	defer try.Caught(&err)
	a := try.To(splitAxis("unbind", t, dim))
	try.Ok(fewParts("unbind", t, a, t.shape[a]))
	list := make([]*Tensor, t.shape[a])
	for i := range list {
		list[i] = selectDim(t, a, i)
	}
	return list, nil
}

// splitAxis is axis for operations that need a dimension to cut.
func splitAxis(op string, t *Tensor, dim int) (int, error) {
	if len(t.shape) == 0 {
		return 0, fmt.Errorf("%s: a tensor without dimensions cannot be cut", op)
	}
	return Axis(op, dim, len(t.shape))
}

// Repeat tiles copies of t: counts[i] of them along dimension i; further dimensions are put in front.
func Repeat(t *Tensor, counts []int) (*Tensor, error) {
	const op = "repeat"
	pad := len(counts) - len(t.shape)
	if pad < 0 {
		return nil, fmt.Errorf("%s: %d counts for a tensor of %d dimensions (shape %s)", op, len(counts), len(t.shape), ShapeString(t.shape))
	}
	var split, wide, shape []int
	for i, n := range counts {
		size := 1
		if i >= pad {
			size = t.shape[i-pad]
		}
		if n < 0 || size > 0 && n > maxElems/size {
			return nil, fmt.Errorf("%s: counts %s do not fit shape %s", op, ShapeString(counts), ShapeString(t.shape))
		}
		split, wide, shape = append(split, 1, size), append(wide, n, size), append(shape, n*size)
	}
	if len(counts) == 0 {
		return Clone(t)
	}
	// Each dimension as (1, size), stretched to (n, size).
	x, err := chain(t).then(func(x *Tensor) (*Tensor, error) { return Reshape(x, split) }).
		then(func(x *Tensor) (*Tensor, error) { return Expand(x, wide) }).
		then(Clone).then(func(x *Tensor) (*Tensor, error) { return View(x, shape) }).end()
	return x, try.As(op, err)
}

// RepeatInterleave repeats each element n times along dim, or of the flattened tensor if dim is nil; counts holds n for
// each element, or one for all.
func RepeatInterleave(t *Tensor, counts *Tensor, dim *int) (_ *Tensor, err error) {
	const op = "repeat_interleave"
	defer try.CaughtAs(op, &err)
	t, a := try.To2(flatOr(op, t, dim))
	size := t.shape[a]
	if !counts.dtype.IsInt() || len(counts.shape) > 1 || counts.n != 1 && counts.n != size {
		return nil, fmt.Errorf("%s: counts of type %s and shape %s do not fit dimension %d of shape %s: want one integer, or one for each element",
			op, counts.dtype, ShapeString(counts.shape), a, ShapeString(t.shape))
	}
	if size > MaxValues() {
		return nil, fmt.Errorf("%s: dimension %d of shape %s is too large", op, a, ShapeString(t.shape))
	}
	list := try.To(counts.Detach().Scalars())
	total := 0
	for i := range size {
		n := list[i%len(list)].i
		if n < 0 || n > int64(maxElems-total) {
			return nil, fmt.Errorf("%s: an element cannot be repeated %d times", op, n)
		}
		total += int(n)
	}
	index := try.To(newTensor(op, t.ctx, []int{total}, dtype.Int64))
	at := Elems[int64](index)
	for i := range size {
		for range list[i%len(list)].i {
			at[0] = int64(i)
			at = at[1:]
		}
	}
	return takeNamed(op, t, a, index)
}

// flatOr returns t and the dimension dim; t is flattened if dim is nil, and gets a dimension if it has none.
func flatOr(op string, t *Tensor, dim *int) (_ *Tensor, a int, err error) {
	defer try.CaughtAs(op, &err)
	if dim != nil {
		a = try.To(Axis(op, *dim, len(t.shape)))
	}
	if dim == nil || len(t.shape) == 0 {
		t = try.To(Reshape(t, []int{t.n}))
	}
	return t, a, nil
}

// Roll moves elements by shifts[i] along dims[i]; those beyond the end come back at the front. Without dims the flattened
// tensor is rolled.
func Roll(t *Tensor, shifts, dims []int) (_ *Tensor, err error) {
	const op = "roll"
	defer try.CaughtAs(op, &err)
	if len(dims) == 0 && len(shifts) == 1 {
		return View(try.To(Roll(try.To(Reshape(t, []int{t.n})), shifts, []int{0})), t.shape)
	}
	if len(shifts) != len(dims) {
		return nil, fmt.Errorf("%s: %d shifts for %d dimensions", op, len(shifts), len(dims))
	}
	out := t
	for i, d := range dims {
		a := try.To(Axis(op, d, len(t.shape)))
		_, n, _ := around(t.shape, a)
		if t.n == 0 || n == 1 {
			continue
		}
		k := (shifts[i]%n + n) % n
		out = try.To(join(op, []*Tensor{sliceDim(out, a, n-k, k, 1), sliceDim(out, a, 0, n-k, 1)}, a))
	}
	if out == t {
		return Clone(t)
	}
	return out, nil
}
