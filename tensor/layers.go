package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// Embedding looks up rows of weight (n, dim) by an integer index of any shape.
func Embedding(weight, idx *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if len(weight.shape) != 2 {
		try.Fail("embedding: the weight must be (n, dim), not shape %s", ShapeString(weight.shape))
	}
	try.To(EmbeddingRows(idx, weight.shape[0]))
	return takeNamed("embedding", weight, 0, idx), nil
}

// EmbeddingRows returns the elements of an index in order; the slice may be the index's memory.
// It refuses those outside 0 … rows-1: a negative index of a word is a mistake.
func EmbeddingRows(idx *Tensor, rows int) (_ []int64, err error) {
	defer try.Caught(&err)
	if !idx.dtype.IsInt() {
		try.Fail("embedding: indices must be integers, not %s", idx.dtype)
	}
	b := build("embedding", idx)
	x := b.indices(idx)
	for _, k := range Values[int64](x) {
		switch {
		case k >= 0 && k < int64(rows):
		case rows == 0:
			return nil, fmt.Errorf("embedding: index %d into a table without rows", k)
		default:
			return nil, fmt.Errorf("embedding: index %d is out of range for %d rows: expected 0 to %d", k, rows, rows-1)
		}
	}
	return Values[int64](x), nil
}

// Dropout sets elements to zero with probability p and divides the others by 1-p. The mask is drawn from g.
func Dropout(x *Tensor, p float64, g *Generator) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&x).round(&result)
	const op = "dropout"
	try.Ok(NeedFloat(op, x))
	if !(p >= 0 && p <= 1) {
		try.Fail("%s: the probability must be between 0 and 1, not %v", op, p)
	}
	at, keep := g.draw(x.dtype, x.n), 1-p
	apply := func(t *Tensor) (_ *Tensor, err error) {
		defer try.Caught(&err)
		if keep == 0 {
			return zeros(op, t.ctx, t.shape, t.dtype), nil
		}
		b := build(op, t)
		in, out := b.contiguous(t), b.like(t.shape...)
		if d := out.on(); d != nil {
			from := d.read(in)
			d.Dropout(at, t.dtype, t.n, d.write(out), from, keep)
			return out, nil
		}
		at.Dropout(t.dtype, t.n, out.ptr(), in.read(), keep)
		alive(in)
		return out, nil
	}
	out := try.To(apply(x))
	if records(x, nil) {
		n := record(out, op, func(_ *node, g *Tensor, out []*Tensor) {
			out[0] = try.To(apply(g))
		}, x)
		if n.again != nil {
			n.twice(func(n *node, g *Tensor, out []*Tensor) { // the mask, divided by 1-p
				out[0] = try.To(Mul(g, try.To(apply(try.To(Ones(g.ctx, g.shape, g.dtype))))))
			})
		}
	}
	return out, nil
}

// OneHot returns int64 vectors of the given number of classes with a single 1; classes below 0 means one more than
// the largest index.
func OneHot(t *Tensor, classes int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(!t.dtype.IsInt(), "one_hot: needs integers, not %s", t.dtype)
	if classes < 0 {
		try.FailIf(t.n == 0, "one_hot: the largest index of an empty tensor is unknown; give the number of classes")
		top := try.To(Max(t))
		classes = int(top.Element(0).i) + 1
	}
	b := build("one_hot", t)
	ix := b.indices(t)
	for _, k := range Values[int64](ix) {
		if k < 0 || k >= int64(classes) {
			try.Fail("one_hot: index %d is out of range for %d classes: expected 0 to %d", k, classes, classes-1)
		}
	}
	out, ones := b.zeros(dtype.Int64, append(slices.Clone(t.shape), classes)...), b.of(dtype.Int64, ix.shape...)
	one := expanded(newNumber(t.ctx, Int(1), dtype.Int64), ix.shape)
	if d := ones.on(); d == nil || !d.copy(ones, one) { // even where the index is on the host: its vectors need not be
		kCopy(ones, one)
	}
	scatterAt(ix.n, 1, classes, 1, out, ones, ix, false)
	return out, nil
}

// BinCount counts how often each number from 0 on occurs, or adds up the
// weights of its occurrences; the result has at least minlength entries.
func BinCount(t, weights *Tensor, minlength int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "bincount"
	try.FailIf(len(t.shape) != 1 || !t.dtype.IsInt(), "%s: needs a one-dimensional integer tensor, not %s of shape %s", op, t.dtype, shaped(t.shape))
	b := build(op, t)
	ix, n := b.indices(t), minlength
	for _, k := range Values[int64](ix) {
		if k < 0 {
			try.Fail("%s: the numbers must not be negative, but one is %d", op, k)
		}
		if k >= maxElems {
			try.Fail("%s: %d is too large a number to count up to", op, k)
		}
		n = max(n, int(k)+1)
	}
	if weights == nil {
		weights = try.To(Ones(t.ctx, t.shape, dtype.Int64))
	}
	try.FailIf(!sameShape(weights.shape, t.shape), "%s: weights of shape %s do not fit shape %s", op, shaped(weights.shape), shaped(t.shape))
	try.To(computing(weights.dtype, op))
	out := b.zeros(weights.dtype, n)
	scatterInto(op, out, 0, ix, weights.Detach(), true)
	return out, nil
}

// Linear returns x·weightᵀ + bias over the last dimension of x; weight is (out, in), and bias (out) may be nil.
func Linear(x, weight, bias *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	nx := len(x.shape)
	if nx == 0 || len(weight.shape) != 2 || x.shape[nx-1] != weight.shape[1] {
		try.Fail("linear: an input of shape %s does not fit a weight of shape %s: its last size must be the weight's second", ShapeString(x.shape), ShapeString(weight.shape))
	}
	n := weight.shape[0]
	fitsBias("linear", weight, bias, n)
	low, dt := lowProduct(x, weight, bias), dtype.BFloat16
	if !low {
		sameFloat("linear", x, weight, bias)
		dt = x.dtype
	}
	k := weight.shape[1]
	rows := product(x.shape[:nx-1])
	flat := rowsOf(x, rows, k)
	var arr [8]int
	b := build("linear", x)
	w, beta, out := b.contiguous(weight), b.contiguous(bias), b.of(dt, append(append(arr[:0], x.shape[:nx-1]...), n)...)
	if low && beta != nil { // round the bias to bfloat16; it is added in float32
		beta = b.cast(b.cast(beta, dtype.BFloat16), dtype.Float32)
	}
	kGemm("linear", low, factor{t: out, ld: n}, factor{t: flat, ld: max(k, 1)}, factor{t: w, ld: max(k, 1), trans: true}, 1, rows, n, k, beta, false)
	if recordsAny(x, weight, bias) {
		n := record(out, "linear", backLinear, x, weight, bias).save(flat, w)
		if !low {
			n.twice(linearTwice)
		}
	}
	return out, nil
}

// fitsBias checks that the bias of a layer, if it has one, has n elements.
func fitsBias(op string, weight, bias *Tensor, n int) {
	if bias != nil && (len(bias.shape) != 1 || bias.shape[0] != n) {
		try.Fail("%s: a bias of shape %s does not fit a weight of shape %s", op, ShapeString(bias.shape), ShapeString(weight.shape))
	}
}

func backLinear(n *node, g *Tensor, out []*Tensor) {
	x, w, low := n.val(0), n.val(1), n.low()
	g = rowsOf(g, x.shape[0], w.shape[0])
	if n.needs(0) {
		dx := matmul(g.dtype, low, g, w)
		if out[0] = dx; !sameShape(dx.shape, n.in[0].shape()) {
			out[0] = try.To(Reshape(dx, n.in[0].shape()))
		}
	}
	rows, wide, k := g.shape[0], w.shape[0], w.shape[1]
	if n.needs(1) {
		dw, add := n.place(1, g)
		if dw == nil {
			dw = newTensor("linear", g.ctx, w.shape, g.dtype)
			out[1] = dw
		}
		kGemm("linear", low, factor{t: dw, ld: max(k, 1)}, factor{t: g, ld: max(wide, 1), trans: true}, factor{t: x, ld: max(k, 1)},
			1, wide, k, rows, nil, add)
	}
	if n.needs(2) {
		if n.in[2].leaf != nil && n.in[2].leaf.grad == nil {
			if db, _ := n.place(2, g); db != nil {
				kReduce(kernel.Sum, db, g, 1, rows, wide)
				return
			}
		}
		out[2] = reduceDims("sum", kernel.Sum, g, []int{0}, false)
	}
	alive(g)
}

// rowsOf returns t's memory as a contiguous matrix; it is never recorded.
func rowsOf(t *Tensor, rows, cols int) *Tensor {
	if len(t.shape) == 2 && t.contiguous {
		return t
	}
	x := contiguous(t)
	v := viewOf(x, 2)
	v.shape[0], v.shape[1] = rows, cols
	setContiguous(v.strides, v.shape)
	return v.seal()
}

// sameFloat checks that the operands of a layer have the same computing type; nil operands are skipped.
func sameFloat(op string, x *Tensor, others ...*Tensor) {
	if !half(x) {
		try.Ok(NeedFloat(op, x))
	}
	for _, t := range others {
		if t != nil && t.dtype != x.dtype {
			try.Fail("%s: dtypes %s and %s differ; cast with .to()", op, x.dtype, t.dtype)
		}
	}
	try.Ok(NeedFloat(op, x))
}
