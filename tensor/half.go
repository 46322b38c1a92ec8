package tensor

import (
	"drun/internal/try"
	"drun/kernel/dtype"
)

// This file computes with bfloat16: operands are widened to float32, which is exact, and results are rounded once. Gradients
// in flight are float32.

// half reports whether any of these tensors, some of which may be nil, is bfloat16.
func half(ts ...*Tensor) bool {
	for _, t := range ts {
		if t != nil && t.dtype == dtype.BFloat16 {
			return true
		}
	}
	return false
}

// A rounding is what remains to do after an operation whose operands were widened: round its results to dt.
type rounding struct {
	on       bool
	dt       dtype.Type
	autocast *Context // where autocast was on, and must be turned on again
}

// narrow widens any bfloat16 operands for an operation in float32; a nil operand stays nil. The operation's result
// is rounded to bfloat16 if that is the common type of the float operands. Usage: defer narrow(&x, &y).round(&result).
func narrow(ts ...**Tensor) (r rounding) {
	for _, t := range ts {
		r.on = r.on || half(*t)
	}
	if !r.on {
		return r
	}
	r.dt = dtype.BFloat16
	for _, t := range ts {
		switch x := *t; {
		case half(x):
			*t = try.To(Cast(x, dtype.Float32))
		case x != nil && x.dtype.IsFloat():
			r.dt = Promote(r.dt, x.dtype)
		}
	}
	return r
}

// precise is narrow for functions that need float32's precision: while autocast is on, their results stay float32.
func precise(ts ...**Tensor) (r rounding) {
	r = narrow(ts...)
	for _, t := range ts {
		r.on = r.on && !lowers(*t)
	}
	return r
}

// round rounds float32 results; other results stay as they are.
func (r rounding) round(results ...**Tensor) {
	if r.autocast != nil {
		r.autocast.Autocast(true)
	}
	for _, t := range results {
		if r.on && *t != nil && (*t).dtype == dtype.Float32 {
			*t = try.To(Cast(*t, r.dt))
		}
	}
}

// lowers reports whether autocast applies to these operands.
func lowers(ts ...*Tensor) bool {
	for _, t := range ts {
		if t != nil && t.ctx != nil {
			return t.ctx.autocast
		}
	}
	return false
}

// Autocast turns autocast on or off, and returns the previous setting. While it is on, products
// of float32 and bfloat16 (Linear, MatMul, convolutions, attention) round their operands to bfloat16
// and return bfloat16; functions that need more precision (softmax, norms, losses, sums, exponentials and
// logarithms) return float32 for bfloat16. A backward pass follows its forward pass.
func (c *Context) Autocast(on bool) (was bool) {
	was, c.autocast = c.autocast, on
	return was
}

// lowProduct reports whether a product of these operands, some of which may be nil, is computed in bfloat16: they are
// bfloat16, or float32 while autocast is on.
func lowProduct(ts ...*Tensor) bool {
	on := lowers(ts...)
	for _, t := range ts {
		if t != nil && t.dtype != dtype.BFloat16 && !(on && t.dtype == dtype.Float32) {
			return false
		}
	}
	return true
}

// lowered is narrow for a product that has no bfloat16 kernel: it is computed in float32, on operands rounded to bfloat16.
// Products of such numbers are exact in float32. It leaves any other product as it is.
func lowered(ts ...**Tensor) (r rounding) {
	var operands [3]*Tensor
	for i, t := range ts {
		operands[i] = *t
	}
	if !lowProduct(operands[:]...) {
		return r
	}
	for _, t := range ts {
		if *t != nil {
			*t = try.To(Cast(*t, dtype.BFloat16))
		}
	}
	r = narrow(ts...)
	if c := operands[0].ctx; c != nil && c.Autocast(false) {
		r.autocast = c
	}
	return r
}

// computable returns the type of a type's gradients: float32 for storage types.
func computable(d dtype.Type) dtype.Type {
	if d == dtype.Float16 || d == dtype.BFloat16 {
		return dtype.Float32
	}
	return d
}

// halfBinary computes op on operands whose common type is bfloat16.
func halfBinary(op BinaryOp, a, b *Tensor) (result *Tensor) {
	a, b = try.To(Cast(a, dtype.BFloat16)), try.To(Cast(b, dtype.BFloat16))
	if op == OpPow {
		defer precise(&a, &b).round(&result)
	} else {
		defer narrow(&a, &b).round(&result)
	}
	return binary(op, a, b, dtype.Float32)
}

// scales reports whether an operation uses a plain number in float32; others round it to bfloat16, as in PyTorch.
func (op BinaryOp) scales() bool { return op == OpMul || op == OpDiv }

// halfScalar computes op on a, which is bfloat16, and a number.
func halfScalar(op BinaryOp, a *Tensor, s Scalar, swapped bool) (result *Tensor) {
	if !op.scales() {
		s = newNumber(a.ctx, s, dtype.BFloat16).Element(0)
	}
	if op == OpPow {
		defer precise(&a).round(&result)
	} else {
		defer narrow(&a).round(&result)
	}
	return try.To(BinaryScalar(op, a, s, swapped))
}

// halfUnary applies a function to bfloat16 elements.
func halfUnary(op UnaryOp, a *Tensor) (result *Tensor) {
	switch op {
	case OpExp, OpExpm1, OpLog, OpLog1p, OpReciprocal, OpTan, OpAsin, OpAcos:
		defer precise(&a).round(&result)
	default:
		defer narrow(&a).round(&result)
	}
	return try.To(Unary(op, a))
}

// halfInPlace sets t, which is bfloat16, to t op y.
func halfInPlace(op BinaryOp, t, y *Tensor) {
	name := op.String() + "_"
	x := cast(name, t, dtype.Float32)
	y = cast(name, y, dtype.Float32)
	kBinary(op, x, x, y)
	kCast(t, x)
}
