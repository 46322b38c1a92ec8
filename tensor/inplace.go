package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// modified completes an in-place operation: t becomes the result of a new operation on its old value and src. It returns the
// operation's node, nil if gradients are not recorded.
func (t *Tensor) modified(op string, src *Tensor, back backward, saved ...*Tensor) *node {
	switch {
	case !(t.requiresGrad && t.ctx.Recording() || src != nil && records(src, nil)):
		return nil
	case src != nil:
		return record(t, op, back, t, src).save(saved...)
	}
	return record(t, op, back, t).save(saved...)
}

func (t *Tensor) checkInPlace(op string, src *Tensor) (err error) {
	defer try.Caught(&err)
	t.mayModify(op, src)
	if records(src, nil) && !t.dtype.IsFloat() {
		return fmt.Errorf("%s: a tensor of type %s cannot take values that require gradients", op, t.dtype)
	}
	if !promotesInto(t, src) {
		return fmt.Errorf("%s: %s values cannot be written into a tensor of type %s in place; cast with .to()", op, src.dtype, t.dtype)
	}
	return nil
}

// promotesInto reports whether t can hold results of the operands' category:
// arithmetic cannot put floats into integers.
func promotesInto(t, src *Tensor) bool {
	return src.dtype.Kind() <= t.dtype.Kind()
}

// CopyInto is copy_: it copies src's values, broadcast and cast to t's type, into t.
func CopyInto(t, src *Tensor) (err error) {
	defer try.Caught(&err)
	t.mayModify("copy_", src)
	assign("copy_", t, src)
	back := func(_ *node, g *Tensor, out []*Tensor) { out[1] = g }
	t.modified("copy_", src, back).twice(back)
	return nil
}

// Fill is fill_: all elements become value.
func (t *Tensor) Fill(value Scalar) (err error) {
	defer try.Caught(&err)
	t.mayModify("fill_", nil)
	try.Ok(value.fits("fill_", t.dtype))
	fill(t, value)
	t.st.version++
	// Give zeros rather than no gradient, so that the pass continues and checks what was saved before.
	back := func(_ *node, g *Tensor, out []*Tensor) { out[0] = try.To(Zeros(g.ctx, g.shape, g.dtype)) }
	t.modified("fill_", nil, back).twice(back)
	return nil
}

// BinaryInPlace is add_, sub_, mul_ or div_: t becomes t op b.
func BinaryInPlace(op BinaryOp, t, b *Tensor) (err error) {
	defer try.Caught(&err)
	name := op.String() + "_"
	if op > OpDiv {
		return fmt.Errorf("%s: there is no such operation in place", name)
	}
	try.Ok(t.checkInPlace(name, b))
	compute := op.computeType(t.dtype)
	if compute != t.dtype {
		return fmt.Errorf("%s: the result is of type %s and does not fit a tensor of type %s", name, compute, t.dtype)
	}
	var arr [8]int
	shape, err := BroadcastShape(name, arr[:0], t.shape, b.shape)
	if err != nil || !sameShape(shape, t.shape) {
		return fmt.Errorf("%s: shape %s does not broadcast to %s in place", name, ShapeString(b.shape), ShapeString(t.shape))
	}
	to := t.dtype
	if half(t) && b.number && op.scales() {
		to = dtype.Float32
	}
	y := cast(name, b, to)
	if y.st == t.st && (y.off != t.off || !sameShape(y.strides, t.strides)) {
		y = try.To(Clone(y.Detach()))
	}
	// Whatever the backward pass needs of the old value must be saved first.
	info := &binaryGrads[op]
	var saved []*Tensor
	if info.saveInputs && (records(t, b)) {
		value := t.Detach()
		if t.ctx.CreateGraph { // what is saved must be part of the graph
			value = t
		}
		old := try.To(Clone(value))
		if y.st == t.st {
			y = old
		}
		saved = []*Tensor{old, y}
	}
	if half(t) {
		halfInPlace(op, t, y)
	} else {
		kBinary(op, t, t, y)
	}
	t.st.version++
	if n := t.modified(name, b, info.back, saved...); !half(t) && (y == b || saved != nil && y == saved[0] || saved == nil || !records(b, nil)) {
		n.twice(info.back)
	}
	return nil
}

// BinaryScalarInPlace is add_ and the like with a number.
func BinaryScalarInPlace(op BinaryOp, t *Tensor, s Scalar) (err error) {
	defer try.Caught(&err)
	if s.kind.Kind() > t.dtype.Kind() {
		return fmt.Errorf("%s_: %v does not fit a tensor of type %s", op, s, t.dtype)
	}
	try.Ok(s.fits(op.String()+"_", t.dtype))
	return BinaryInPlace(op, t, newNumber(t.ctx, s, computable(t.dtype)))
}

// mayModify fails if an operation may not change t in place with values computed from src, which may be nil. A view may
// not be changed while gradients are recorded, since the viewed tensor would not notice.
func (t *Tensor) mayModify(op string, src *Tensor) {
	recording := t.requiresGrad && t.ctx.Recording()
	switch {
	case t.frozen:
		try.Fail("%s: the tensor is frozen, as all values made at top level are; make it in main()", op)
	case recording && t.node == nil:
		try.Fail("%s: a leaf that requires grad cannot be modified in place while gradients are recorded; do it under tensor.no_grad, or to t.detach()", op)
	}
	for i, s := range t.strides {
		if s == 0 && t.shape[i] > 1 && t.n > 0 {
			try.Fail("%s: the tensor is expanded, so that several elements share memory; clone() it first", op)
		}
	}
	if t.view && (recording || src != nil && records(src, nil)) {
		try.Fail("%s: the tensor is a view, and changing it in place would give the tensor it views wrong gradients; assign to x[...] of that tensor, or clone() first", op)
	}
}
