package tensor

import (
	"fmt"
	"math"
	"runtime"
)

// Embedding takes rows of weight (n, dim) by an integer index of any shape.
func Embedding(weight, idx *Tensor) (*Tensor, error) {
	if len(weight.shape) != 2 {
		return nil, fmt.Errorf("embedding: the weight must be (n, dim), not shape %s", shapeString(weight.shape))
	}
	return takeNamed("embedding", weight, 0, idx)
}

// Dropout sets elements to zero with probability p and divides the others by
// 1-p. The mask comes from g, which moves on.
func Dropout(x *Tensor, p float64, g *Generator) (*Tensor, error) {
	const op = "dropout"
	if err := needFloat(op, x); err != nil {
		return nil, err
	}
	if !(p >= 0 && p <= 1) {
		return nil, fmt.Errorf("%s: the probability must be between 0 and 1, not %v", op, p)
	}
	at, keep := g.draw(x.dtype, x.n), 1-p
	apply := func(t *Tensor) (*Tensor, error) {
		if keep == 0 {
			return Zeros(t.ctx, t.shape, t.dtype)
		}
		in, err := contiguous(t)
		if err != nil {
			return nil, err
		}
		out, err := newTensor(op, t.ctx, t.shape, t.dtype)
		if err != nil {
			return nil, err
		}
		at.Dropout(t.dtype.kernel(), t.n, out.ptr(), in.ptr(), keep)
		runtime.KeepAlive(in)
		return out, nil
	}
	out, err := apply(x)
	if err != nil {
		return nil, err
	}
	if records(x, nil) {
		record(out, op, func(_ *node, g *Tensor, out []*Tensor) (err error) {
			out[0], err = apply(g)
			return err
		}, x)
	}
	return out, nil
}

// Attention is softmax(q·kᵀ/√d)·v over the last two dimensions (length,
// width); causal lets position i see positions up to i only.
func Attention(q, k, v *Tensor, causal bool) (*Tensor, error) {
	const op = "attention"
	if err := sameFloat(op, q, k, v); err != nil {
		return nil, err
	}
	nq, nk, nv := len(q.shape), len(k.shape), len(v.shape)
	if nq < 2 || nk < 2 || nv < 2 || q.shape[nq-1] != k.shape[nk-1] || k.shape[nk-2] != v.shape[nv-2] {
		return nil, fmt.Errorf("%s: shapes %s, %s and %s of query, key and value do not fit: expected (…, L, D), (…, S, D) and (…, S, E)",
			op, shapeString(q.shape), shapeString(k.shape), shapeString(v.shape))
	}
	rows, cols := q.shape[nq-2], k.shape[nk-2]
	keyT, err := Transpose(k, -2, -1)
	if err != nil {
		return nil, err
	}
	scaled, err := BinaryScalar(OpMul, q, Float(1/math.Sqrt(float64(max(q.shape[nq-1], 1)))), false)
	if err != nil {
		return nil, err
	}
	scores, err := MatMul(scaled, keyT)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	Discard(scaled)
	if causal {
		hidden, err := futureMask(q.ctx, rows, cols)
		if err != nil {
			return nil, err
		}
		open := scores
		if scores, err = MaskedFill(open, hidden, Float(math.Inf(-1))); err != nil {
			return nil, err
		}
		Discard(open)
	}
	return chained{t: scores, fresh: true}.then(func(t *Tensor) (*Tensor, error) { return Softmax(t, -1) }).
		then(func(t *Tensor) (*Tensor, error) { return MatMul(t, v) }).end()
}

// futureMask is true where the column lies after the row.
func futureMask(c *Context, rows, cols int) (*Tensor, error) {
	m, err := newTensor("attention", c, []int{rows, cols}, Bool)
	if err != nil {
		return nil, err
	}
	v := elems[bool](m)
	for i := range rows {
		for j := range cols {
			v[i*cols+j] = j > i
		}
	}
	return m, nil
}

// OneHot gives int64 vectors of the given number of classes with a single 1;
// classes below 0 means one more than the largest index.
func OneHot(t *Tensor, classes int) (*Tensor, error) {
	if !t.dtype.IsInt() {
		return nil, fmt.Errorf("one_hot: needs integers, not %s", t.dtype)
	}
	if classes < 0 {
		top, err := Max(t)
		if err != nil {
			return nil, fmt.Errorf("one_hot: %w; give the number of classes", err)
		}
		classes = int(top.at(0).i) + 1
	}
	ix, err := cast("one_hot", t, Int64)
	if err != nil {
		return nil, err
	}
	if ix, err = contiguous(ix); err != nil {
		return nil, err
	}
	shape := append(append([]int(nil), t.shape...), classes)
	out, err := Zeros(t.ctx, shape, Int64)
	if err != nil {
		return nil, err
	}
	v := elems[int64](out)
	for i, k := range elems[int64](ix) {
		if k < 0 || k >= int64(classes) {
			return nil, fmt.Errorf("one_hot: index %d is out of range for %d classes: expected 0 to %d", k, classes, classes-1)
		}
		v[i*classes+int(k)] = 1
	}
	return out, nil
}

// BinCount counts how often each number from 0 on occurs, or adds up the
// weights of its occurrences; the result has at least minlength entries.
func BinCount(t, weights *Tensor, minlength int) (*Tensor, error) {
	const op = "bincount"
	if len(t.shape) != 1 || !t.dtype.IsInt() {
		return nil, fmt.Errorf("%s: needs a one-dimensional integer tensor, not %s of shape %s", op, t.dtype, shapeString(t.shape))
	}
	ix, err := cast(op, t, Int64)
	if err != nil {
		return nil, err
	}
	if ix, err = contiguous(ix); err != nil {
		return nil, err
	}
	n := minlength
	for _, k := range elems[int64](ix) {
		if k < 0 {
			return nil, fmt.Errorf("%s: the numbers must not be negative, and one is %d", op, k)
		}
		n = max(n, int(k)+1)
	}
	if weights == nil {
		if weights, err = Ones(t.ctx, t.shape, Int64); err != nil {
			return nil, err
		}
	}
	if !sameShape(weights.shape, t.shape) {
		return nil, fmt.Errorf("%s: weights of shape %s do not fit shape %s", op, shapeString(weights.shape), shapeString(t.shape))
	}
	out, err := Zeros(t.ctx, []int{n}, weights.dtype)
	if err != nil {
		return nil, err
	}
	if _, err := weights.dtype.computing(op); err != nil {
		return nil, err
	}
	return out, scatterAdd(op, out, 0, ix, weights.Detach())
}
