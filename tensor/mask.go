package tensor

import (
	"bytes"
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Where returns a's elements where cond is true and b's where it is false; all three broadcast.
func Where(cond, a, b *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if cond.dtype != dtype.Bool {
		try.Fail("where: the condition must be a bool tensor, not %s", cond.dtype)
	}
	compute := promoteOperands(a, b)
	var arr, arr2 [8]int
	shape := try.To(BroadcastShape("where", arr[:0], a.shape, b.shape))
	shape = try.To(BroadcastShape("where", arr2[:0], cond.shape, shape))
	made := build("where", cond)
	if made.ctx == nil {
		made.ctx = a.ctx
	}
	x, y, out := made.cast(a, compute), made.cast(b, compute), made.of(compute, shape...)
	kWhere(out, cond, x, y)
	if compute.IsFloat() && records(a, b) {
		record(out, "where", backWhere, a, b).save(cond).twice(backWhere)
	}
	return out, nil
}

func backWhere(n *node, g *Tensor, out []*Tensor) {
	zero := newNumber(g.ctx, Int(0), g.dtype)
	if n.needs(0) {
		out[0] = try.To(Where(n.val(0), g, zero))
	}
	if n.needs(1) {
		out[1] = try.To(Where(n.val(0), zero, g))
	}
}

// MaskedFill returns t with value where mask is true.
func MaskedFill(t, mask *Tensor, value Scalar) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if mask.dtype != dtype.Bool {
		try.Fail("masked_fill: the mask must be a bool tensor, not %s", mask.dtype)
	}
	try.Ok(value.fits("masked_fill", t.dtype))
	out, err := Where(mask, newNumber(t.ctx, value, t.dtype), t)
	return out, try.As("masked_fill", err)
}

// Clamp limits elements to lo … hi; a nil bound does not limit. NaN stays NaN.
func Clamp(t *Tensor, lo, hi *Scalar) (_ *Tensor, err error) {
	defer try.CaughtAs("clamp", &err)
	if lo == nil && hi == nil {
		return nil, fmt.Errorf("clamp: at least one of min and max must be given")
	}
	plain := t.Detach()
	limited := chain(plain)
	if lo != nil {
		limited = limited.scalar(OpMaximum, *lo)
	}
	if hi != nil {
		limited = limited.scalar(OpMinimum, *hi)
	}
	out := try.To(limited.end())
	if !out.dtype.IsFloat() || !records(t, nil) {
		return out, nil
	}
	// The gradient passes where t is within the limits.
	inside := try.To(Binary(OpEq, out, plain))
	record(out, "clamp", backMasked, t).save(inside).twice(backMasked)
	return out, nil
}

// backMasked passes the gradient where the saved mask is true.
func backMasked(n *node, g *Tensor, out []*Tensor) {
	out[0] = try.To(Where(n.val(0), g, newNumber(g.ctx, Int(0), g.dtype)))
}

// IsNaN tells which elements are not a number.
func IsNaN(t *Tensor) (*Tensor, error) {
	return classify("is_nan", t, false, func(x *Tensor) (*Tensor, error) { return Binary(OpNe, x, x) })
}

// IsInf tells which elements are infinite.
func IsInf(t *Tensor) (*Tensor, error) {
	return classify("is_inf", t, false, func(x *Tensor) (*Tensor, error) {
		return chain(x).unary(OpAbs).scalar(OpEq, Float(math.Inf(1))).end()
	})
}

// IsFinite tells which elements are neither infinite nor NaN.
func IsFinite(t *Tensor) (*Tensor, error) {
	return classify("is_finite", t, true, func(x *Tensor) (*Tensor, error) {
		return chain(x).unary(OpAbs).scalar(OpLt, Float(math.Inf(1))).end()
	})
}

// classify applies test to t's elements if they are floats; for integers all results are the value integers.
func classify(op string, t *Tensor, integers bool, test func(*Tensor) (*Tensor, error)) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&t).round(&result)
	try.To(computing(t.dtype, op))
	if !t.dtype.IsFloat() {
		return full(op, t.ctx, t.shape, Truth(integers), dtype.Bool), nil
	}
	out, err := test(t.Detach())
	return out, try.As(op, err)
}

// triangle keeps the elements on one side of a diagonal of the last two dimensions.
func triangle(op string, compare BinaryOp, t *Tensor, diagonal int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	nd := len(t.shape)
	try.FailIf(nd < 2, "%s: needs at least two dimensions, not shape %s", op, shaped(t.shape))
	rows, cols := t.shape[nd-2], t.shape[nd-1]
	diagonal = min(max(diagonal, -rows), cols) // further out, all or nothing is kept
	row := sequence(op, t.ctx, Int(int64(diagonal)), rows, Int(1), dtype.Int64)
	col := sequence(op, t.ctx, Int(0), cols, Int(1), dtype.Int64)
	row = try.To(View(row, []int{rows, 1}))
	keep := try.To(Binary(compare, col, row))
	return Where(keep, t, newNumber(t.ctx, Int(0), t.dtype))
}

// Tril keeps the lower triangle of the last two dimensions.
func Tril(t *Tensor, diagonal int) (*Tensor, error) { return triangle("tril", OpLe, t, diagonal) }

// Triu keeps the upper triangle of the last two dimensions.
func Triu(t *Tensor, diagonal int) (*Tensor, error) { return triangle("triu", OpGe, t, diagonal) }

// nonzero lists the flat indices where a contiguous bool mask is true.
func nonzero(op string, mask *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	b := build(op, mask)
	m := b.contiguous(mask)
	count := m.n - bytes.Count(m.Content(), []byte{0})
	out := b.of(dtype.Int64, count)
	v := Elems[int64](out)
	for i, on := range Values[bool](m) {
		if on {
			v[0] = int64(i)
			v = v[1:]
		}
	}
	return out, nil
}

func maskMismatch(t *Tensor, dim int, mask *Tensor) error {
	return fmt.Errorf("index: a mask of shape %s does not fit shape %s from dimension %d on",
		ShapeString(mask.shape), ShapeString(t.shape), dim)
}
