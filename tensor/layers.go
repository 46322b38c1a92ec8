package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Embedding takes rows of weight (n, dim) by an integer index of any shape.
func Embedding(weight, idx *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if len(weight.shape) != 2 {
		return nil, fmt.Errorf("embedding: the weight must be (n, dim), not shape %s", ShapeString(weight.shape))
	}
	try.To(EmbeddingRows(idx, weight.shape[0]))
	return takeNamed("embedding", weight, 0, idx)
}

// EmbeddingRows returns the elements of an index in order; the slice may be the index's memory.
// It refuses those outside 0 … rows-1: for numbered words a negative index is a mistake.
func EmbeddingRows(idx *Tensor, rows int) (_ []int64, err error) {
	defer try.Caught(&err)
	if !idx.dtype.IsInt() {
		return nil, fmt.Errorf("embedding: indices must be integers, not %s", idx.dtype)
	}
	b := build("embedding", idx)
	x := b.indices(idx)
	for _, k := range Elems[int64](x) {
		switch {
		case k >= 0 && k < int64(rows):
		case rows == 0:
			return nil, fmt.Errorf("embedding: index %d into a table without rows", k)
		default:
			return nil, fmt.Errorf("embedding: index %d is out of range for %d rows: expected 0 to %d", k, rows, rows-1)
		}
	}
	return Elems[int64](x), nil
}

// Dropout sets elements to zero with probability p and divides the others by
// 1-p. The mask comes from g, which moves on.
func Dropout(x *Tensor, p float64, g *Generator) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return Dropout(t[0], p, g) }, x)
	}
	const op = "dropout"
	try.Ok(NeedFloat(op, x))
	if !(p >= 0 && p <= 1) {
		return nil, fmt.Errorf("%s: the probability must be between 0 and 1, not %v", op, p)
	}
	at, keep := g.draw(x.dtype, x.n), 1-p
	apply := func(t *Tensor) (_ *Tensor, err error) {
		defer try.Caught(&err)
		if keep == 0 {
			return zeros(op, t.ctx, t.shape, t.dtype)
		}
		b := build(op, t)
		in, out := b.contiguous(t), b.like(t.shape...)
		at.Dropout(t.dtype, t.n, out.ptr(), in.ptr(), keep)
		alive(in)
		return out, nil
	}
	out := try.To(apply(x))
	if records(x, nil) {
		record(out, op, func(_ *node, g *Tensor, out []*Tensor) (err error) {
			out[0], err = apply(g)
			return err
		}, x)
	}
	return out, nil
}

// OneHot returns int64 vectors of the given number of classes with a single 1; classes below 0 means one more than
// the largest index.
func OneHot(t *Tensor, classes int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if !t.dtype.IsInt() {
		return nil, fmt.Errorf("one_hot: needs integers, not %s", t.dtype)
	}
	if classes < 0 {
		if t.n == 0 {
			return nil, fmt.Errorf("one_hot: the largest index of an empty tensor is unknown; give the number of classes")
		}
		top := try.To(Max(t))
		classes = int(top.at(0).i) + 1
	}
	b := build("one_hot", t)
	ix := b.indices(t)
	out := b.zeros(dtype.Int64, append(slices.Clone(t.shape), classes)...)
	v := Elems[int64](out)
	for i, k := range Elems[int64](ix) {
		if k < 0 || k >= int64(classes) {
			return nil, fmt.Errorf("one_hot: index %d is out of range for %d classes: expected 0 to %d", k, classes, classes-1)
		}
		v[i*classes+int(k)] = 1
	}
	return out, nil
}

// BinCount counts how often each number from 0 on occurs, or adds up the
// weights of its occurrences; the result has at least minlength entries.
func BinCount(t, weights *Tensor, minlength int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "bincount"
	if len(t.shape) != 1 || !t.dtype.IsInt() {
		return nil, fmt.Errorf("%s: needs a one-dimensional integer tensor, not %s of shape %s", op, t.dtype, ShapeString(t.shape))
	}
	b := build(op, t)
	ix, n := b.indices(t), minlength
	for _, k := range Elems[int64](ix) {
		if k < 0 {
			return nil, fmt.Errorf("%s: the numbers must not be negative, and one is %d", op, k)
		}
		if k >= maxElems {
			return nil, fmt.Errorf("%s: %d is too large a number to count up to", op, k)
		}
		n = max(n, int(k)+1)
	}
	if weights == nil {
		weights = try.To(Ones(t.ctx, t.shape, dtype.Int64))
	}
	if !sameShape(weights.shape, t.shape) {
		return nil, fmt.Errorf("%s: weights of shape %s do not fit shape %s", op, ShapeString(weights.shape), ShapeString(t.shape))
	}
	try.To(computing(weights.dtype, op))
	out := b.zeros(weights.dtype, n)
	return out, scatterInto(op, out, 0, ix, weights.Detach(), true)
}
