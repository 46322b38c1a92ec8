package tensor

import (
	"drun/internal/try"
	"drun/kernel/dtype"
)

// bfloat16 is computed in float32: operands are widened, which is exact, and results are rounded once. Gradients in
// flight are float32.

// half reports whether any of these tensors is in bfloat16; nil is none.
func half(ts ...*Tensor) bool {
	for _, t := range ts {
		if t != nil && t.dtype == dtype.BFloat16 {
			return true
		}
	}
	return false
}

// narrow computes f in float32, for operands of which some are in bfloat16; nil stays nil. Its result is rounded to
// bfloat16 if that is the operands' common type.
func narrow(f func(ts []*Tensor) (*Tensor, error), ts ...*Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	wide, dt := try.To2(widened(ts))
	out, err := f(wide)
	if err != nil || out.dtype != dtype.Float32 {
		return out, err
	}
	return Cast(out, dt)
}

// precise is narrow for functions that need float32's digits: while autocast is on, their
// results stay float32.
func precise(f func(ts []*Tensor) (*Tensor, error), ts ...*Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	wide, dt := try.To2(widened(ts))
	out, err := f(wide)
	if err != nil || out.dtype != dtype.Float32 || lowers(ts...) {
		return out, err
	}
	return Cast(out, dt)
}

// widened is ts with bfloat16 tensors as float32, and the common type of the float tensors.
func widened(ts []*Tensor) (_ []*Tensor, _ dtype.Type, err error) {
	defer try.Caught(&err)
	wide, dt := make([]*Tensor, len(ts)), dtype.BFloat16
	for i, t := range ts {
		wide[i] = t
		switch {
		case t == nil:
			continue
		case half(t):
			wide[i] = try.To(Cast(t, dtype.Float32))
		case t.dtype.IsFloat():
			dt = Promote(dt, t.dtype)
		}
	}
	return wide, dt, nil
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
// and return bfloat16; functions that need more digits (softmax, norms, losses, sums, exponentials and
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

// lowered computes a product that has no bfloat16 kernel: f in float32, on operands rounded to bfloat16, with its
// result rounded. Products of such numbers are exact in float32.
func lowered(f func(ts []*Tensor) (*Tensor, error), ts ...*Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	for i, t := range ts {
		if t == nil {
			continue
		}
		ts[i] = try.To(Cast(t, dtype.BFloat16))
	}
	if c := ts[0].ctx; c != nil {
		defer c.Autocast(c.Autocast(false))
	}
	return narrow(f, ts...)
}

// computable is the type of a type's gradients: float32 for storage types.
func computable(d dtype.Type) dtype.Type {
	if d == dtype.Float16 || d == dtype.BFloat16 {
		return dtype.Float32
	}
	return d
}

// halfBinary computes op on operands whose common type is bfloat16.
func halfBinary(op BinaryOp, a, b *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	x := try.To(Cast(a, dtype.BFloat16))
	y := try.To(Cast(b, dtype.BFloat16))
	f := narrow
	if op == OpPow {
		f = precise
	}
	return f(func(t []*Tensor) (*Tensor, error) { return binary(op, t[0], t[1], dtype.Float32) }, x, y)
}

// scales reports whether an operation with a plain number uses it in float32; others round it to bfloat16, as in PyTorch.
func (op BinaryOp) scales() bool { return op == OpMul || op == OpDiv }

// halfScalar computes a, which is in bfloat16, with a number.
func halfScalar(op BinaryOp, a *Tensor, s Scalar, swapped bool) (*Tensor, error) {
	if !op.scales() {
		s = newNumber(a.ctx, s, dtype.BFloat16).at(0)
	}
	f := narrow
	if op == OpPow {
		f = precise
	}
	return f(func(t []*Tensor) (*Tensor, error) { return BinaryScalar(op, t[0], s, swapped) }, a)
}

// halfUnary applies a function to elements in bfloat16.
func halfUnary(op UnaryOp, a *Tensor) (*Tensor, error) {
	f := narrow
	switch op {
	case OpExp, OpExpm1, OpLog, OpLog1p, OpReciprocal, OpTan, OpAsin, OpAcos:
		f = precise
	}
	return f(func(t []*Tensor) (*Tensor, error) { return Unary(op, t[0]) }, a)
}

// halfInPlace makes t, which is in bfloat16, t op y.
func halfInPlace(op BinaryOp, t, y *Tensor) (err error) {
	defer try.Caught(&err)
	name := op.String() + "_"
	x := try.To(cast(name, t, dtype.Float32))
	y = try.To(cast(name, y, dtype.Float32))
	kBinary(op, x, x, y)
	kCast(t, x)
	return nil
}
