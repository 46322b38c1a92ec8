package tensor

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/tensor"
)

// Value is a tensor as a recipe sees it. It is tensor.Tensor under another name:
// converting between *Value and *tensor.Tensor costs nothing and keeps identity.
type Value tensor.Tensor

var (
	_ starlark.HasSetField = (*Value)(nil)
	_ starlark.HasSetKey   = (*Value)(nil)
	_ starlark.Mapping     = (*Value)(nil)
	_ starlark.Sliceable   = (*Value)(nil)
	_ starlark.Sequence    = (*Value)(nil)
	_ starlark.HasBinary   = (*Value)(nil)
	_ starlark.HasUnary    = (*Value)(nil)
	_ starlark.Comparable  = (*Value)(nil)
	_ starlark.Container   = (*Value)(nil)
	_ lang.Elementwise     = (*Value)(nil)
	_ lang.Truther         = (*Value)(nil)
	_ starlib.Scalar       = (*Value)(nil)
)

// Tensor is v as the tensor package knows it.
func (v *Value) Tensor() *tensor.Tensor { return (*tensor.Tensor)(v) }

// Result converts an operation's results to a builtin's.
func Result(t *tensor.Tensor, err error) (starlark.Value, error) {
	if err != nil {
		return nil, err
	}
	return (*Value)(t), nil
}

// String writes the elements, all of a small tensor, the edges of a larger one.
func (v *Value) String() string { return v.Tensor().String() }

// Type is the name that signatures use.
func (v *Value) Type() string { return "Tensor" }

// Hash refuses: a tensor changes, so it cannot be a key.
func (v *Value) Hash() (uint32, error) {
	return 0, fmt.Errorf("unhashable: a Tensor cannot be a dict key or in a set; use .item() or tuple(t.tolist())")
}

// Freeze makes operations in place errors.
func (v *Value) Freeze() { v.Tensor().Freeze() }

// Truth is that of a tensor's only element. Recipes ask TruthValue instead, which
// can refuse.
func (v *Value) Truth() starlark.Bool {
	ok, err := v.TruthValue()
	return err != nil || starlark.Bool(ok)
}

// TruthValue is an error unless the tensor has exactly one element.
func (v *Value) TruthValue() (bool, error) {
	t := v.Tensor()
	if t.Len() != 1 {
		return false, fmt.Errorf("a Tensor of shape %s has no single truth value: reduce it, for instance with (t != 0).sum() > 0, or compare one element", Shape(t))
	}
	if t.DType() == dtype.Complex64 { // true by either part
		var err error
		if t, err = tensor.Cast(t.Detach(), dtype.Bool); err != nil {
			return false, err
		}
	}
	s, err := t.Item()
	return s.Float() != 0, err
}

// Item is the only element, a pair for complex64; an error if there are several.
func (v *Value) Item() (starlark.Value, error) {
	s, err := v.Tensor().Item()
	if err != nil {
		return nil, err
	}
	if v.Tensor().DType() == dtype.Complex64 {
		read, err := reader(v.Tensor())
		if err != nil {
			return nil, err
		}
		return read(0), nil
	}
	return plain(s), nil
}

// operations are what the operators compute on tensors.
var operations = [...]tensor.BinaryOp{
	syntax.PLUS: tensor.OpAdd, syntax.MINUS: tensor.OpSub, syntax.STAR: tensor.OpMul, syntax.SLASH: tensor.OpDiv,
	syntax.SLASHSLASH: tensor.OpFloorDiv, syntax.PERCENT: tensor.OpMod,
	syntax.AMP: tensor.OpAnd, syntax.PIPE: tensor.OpOr, syntax.CIRCUMFLEX: tensor.OpXor,
	syntax.EQL: tensor.OpEq, syntax.NEQ: tensor.OpNe, syntax.LT: tensor.OpLt, syntax.LE: tensor.OpLe,
	syntax.GT: tensor.OpGt, syntax.GE: tensor.OpGe,
}

// compute is v op y for a tensor or number y, or y op v if swapped; nil for other values.
func (v *Value) compute(op tensor.BinaryOp, y starlark.Value, swapped bool) (starlark.Value, error) {
	if err := v.Tensor().Gone(); err != nil {
		return nil, err
	}
	if y, ok := y.(*Value); ok {
		if err := y.Tensor().Gone(); err != nil {
			return nil, err
		}
		a, b := v.Tensor(), y.Tensor()
		if swapped {
			a, b = b, a
		}
		return Result(tensor.Binary(op, a, b))
	}
	s, ok, err := scalar(y)
	if err != nil || !ok {
		return nil, err
	}
	return Result(tensor.BinaryScalar(op, v.Tensor(), s, swapped))
}

// CompareElementwise returns a bool tensor.
func (v *Value) CompareElementwise(op syntax.Token, y starlark.Value, reversed bool) (starlark.Value, error) {
	z, err := v.compute(operations[op], y, reversed)
	switch {
	case z != nil || err != nil:
		return z, err
	case op == syntax.EQL || op == syntax.NEQ:
		return starlark.Bool(op == syntax.NEQ), nil // nothing else equals a tensor
	}
	return nil, fmt.Errorf("Tensor %s %s not implemented", op, y.Type())
}

// CompareSameType serves comparisons of whole values: list equality, sorted, min.
func (v *Value) CompareSameType(op syntax.Token, y starlark.Value, _ int) (bool, error) {
	z, err := v.CompareElementwise(op, y, false)
	if err != nil {
		return false, err
	}
	ok, err := z.(*Value).TruthValue()
	if err != nil {
		return false, fmt.Errorf("cannot compare whole Tensors of shapes %s and %s with %s: compare them element by element outside the list, tuple or builtin",
			Shape(v.Tensor()), Shape(y.(*Value).Tensor()), op)
	}
	return ok, nil
}

// Has reports whether an element equals x: x in t.
func (v *Value) Has(x starlark.Value) (bool, error) {
	s, ok, err := scalar(x)
	if err != nil || !ok {
		return false, fmt.Errorf("%s in Tensor: want a number", x.Type())
	}
	equal, err := tensor.BinaryScalar(tensor.OpEq, v.Tensor(), s, false)
	if err != nil {
		return false, err
	}
	for _, b := range equal.Bytes() {
		if b != 0 {
			return true, nil
		}
	}
	return false, nil
}

// Binary is v op y, or y op v on the right side.
func (v *Value) Binary(op syntax.Token, y starlark.Value, side starlark.Side) (starlark.Value, error) {
	if int(op) >= len(operations) || operations[op] == 0 && op != syntax.PLUS {
		return nil, nil
	}
	return v.compute(operations[op], y, side == starlark.Right)
}

// Unary is -v, +v and ~v.
func (v *Value) Unary(op syntax.Token) (starlark.Value, error) {
	switch op {
	case syntax.MINUS:
		return Result(tensor.Unary(tensor.OpNeg, v.Tensor()))
	case syntax.PLUS:
		return v, nil
	case syntax.TILDE:
		if v.Tensor().DType() != dtype.Bool {
			return nil, fmt.Errorf("~ needs a bool Tensor, not %s", v.Tensor().DType())
		}
		return Result(tensor.Unary(tensor.OpNot, v.Tensor()))
	}
	return nil, nil
}

// scalar converts a plain number or bool; ok is false for other values.
func scalar(v starlark.Value) (s tensor.Scalar, ok bool, err error) {
	switch v := v.(type) {
	case starlark.Float:
		return tensor.Float(float64(v)), true, nil
	case starlark.Int:
		n, ok := v.Int64()
		if !ok {
			return s, false, fmt.Errorf("%s does not fit into 64 bits", v)
		}
		return tensor.Int(n), true, nil
	case starlark.Bool:
		return tensor.Truth(bool(v)), true, nil
	}
	return s, false, nil
}
