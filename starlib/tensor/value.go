package tensor

import (
	"bytes"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/std"
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

// Tensor returns v as the tensor package knows it.
func (v *Value) Tensor() *tensor.Tensor { return (*tensor.Tensor)(v) }

// Result converts an operation's results to a builtin's.
func Result(t *tensor.Tensor, err error) (starlark.Value, error) {
	if err != nil {
		return nil, err
	}
	return (*Value)(t), nil
}

// Made tells a debugger of the tensor that an operation has made or changed, if it wants to know. starlib calls it for builtins.
func (v *Value) Made(by string, recv starlark.Value, args ...starlark.Value) {
	c := v.Tensor().Context()
	if c == nil || c.Made == nil {
		return
	}
	var inputs []*tensor.Tensor
	for _, x := range append(args[:len(args):len(args)], recv) {
		if t, ok := x.(*Value); ok && t != v {
			inputs = append(inputs, t.Tensor())
		}
	}
	c.Made(strings.TrimPrefix(by, "Tensor."), v.Tensor(), inputs)
}

// String returns the elements: all of a small tensor, the edges of a larger one.
func (v *Value) String() string { return v.Tensor().String() }

// Type returns the name that signatures use.
func (v *Value) Type() string { return "Tensor" }

// Hash returns an error: a tensor can change, so it cannot be a key.
func (v *Value) Hash() (uint32, error) {
	return 0, fmt.Errorf("unhashable: a Tensor cannot be a dict key or in a set; use .item() or tuple(t.tolist())")
}

// Freeze makes in-place operations errors.
func (v *Value) Freeze() { v.Tensor().Freeze() }

// Truth returns the truth value of a tensor's only element. Conditions in recipes call TruthValue instead, which
// can return an error.
func (v *Value) Truth() starlark.Bool {
	ok, err := v.TruthValue()
	return err != nil || starlark.Bool(ok)
}

// TruthValue returns an error unless the tensor has exactly one element.
func (v *Value) TruthValue() (bool, error) {
	t := v.Tensor()
	if t.Len() != 1 {
		return false, fmt.Errorf("a Tensor of shape %s has no single truth value: reduce it, for instance with (t != 0).sum() > 0, or compare one element", Shape(t))
	}
	if t.DType() == dtype.Complex64 { // true if either part is not 0
		var err error
		if t, err = tensor.Cast(t.Detach(), dtype.Bool); err != nil {
			return false, err
		}
	}
	s, err := t.Item()
	return s.Float() != 0, err
}

// Item returns the only element, a pair for complex64; an error unless there is exactly one.
func (v *Value) Item() (_ starlark.Value, err error) {
	defer try.Caught(&err)
	s := try.To(v.Tensor().Item())
	if v.Tensor().DType() == dtype.Complex64 {
		read := try.To(reader(v.Tensor()))
		return read(0), nil
	}
	return plain(s), nil
}

var operations = [...]tensor.BinaryOp{
	syntax.PLUS: tensor.OpAdd, syntax.MINUS: tensor.OpSub, syntax.STAR: tensor.OpMul, syntax.SLASH: tensor.OpDiv,
	syntax.SLASHSLASH: tensor.OpFloorDiv, syntax.PERCENT: tensor.OpMod,
	syntax.AMP: tensor.OpAnd, syntax.PIPE: tensor.OpOr, syntax.CIRCUMFLEX: tensor.OpXor,
	syntax.EQL: tensor.OpEq, syntax.NEQ: tensor.OpNe, syntax.LT: tensor.OpLt, syntax.LE: tensor.OpLe,
	syntax.GT: tensor.OpGt, syntax.GE: tensor.OpGe,
}

// compute returns v op y for a tensor or number y, or y op v if swapped; nil for other values.
func (v *Value) compute(op tensor.BinaryOp, y starlark.Value, swapped bool) (starlark.Value, error) {
	z, err := v.computed(op, y, swapped)
	if z, ok := z.(*Value); ok {
		z.Made(op.String(), v, y)
	}
	return z, err
}

func (v *Value) computed(op tensor.BinaryOp, y starlark.Value, swapped bool) (starlark.Value, error) {
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

func (v *Value) CompareElementwise(op syntax.Token, y starlark.Value, reversed bool) (starlark.Value, error) {
	z, err := v.compute(operations[op], y, reversed)
	switch {
	case z != nil || err != nil:
		return z, err
	case op == syntax.EQL || op == syntax.NEQ:
		return starlark.Bool(op == syntax.NEQ), nil // no other value equals a tensor
	}
	return nil, fmt.Errorf("Tensor %s %s not implemented", op, y.Type())
}

// CompareSameType is called to compare whole values: by list equality, sorted, min.
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
	return bytes.IndexByte(equal.Content(), 1) >= 0, nil
}

// Binary is v op y, or y op v on the right side.
func (v *Value) Binary(op syntax.Token, y starlark.Value, side starlark.Side) (starlark.Value, error) {
	if int(op) >= len(operations) || operations[op] == 0 && op != syntax.PLUS {
		return nil, nil
	}
	return v.compute(operations[op], y, side == starlark.Right)
}

func (v *Value) Unary(op syntax.Token) (starlark.Value, error) {
	switch op {
	case syntax.MINUS:
		return Result(tensor.Unary(tensor.OpNeg, v.Tensor()))
	case syntax.PLUS:
		return v, nil
	case syntax.TILDE:
		if d := v.Tensor().DType(); d.IsInt() && d != dtype.Bool {
			return v.compute(tensor.OpXor, starlark.MakeInt(-1), false)
		} else if d != dtype.Bool {
			return nil, fmt.Errorf("~ needs a Tensor of bools or integers, not %s", d)
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

// methods are the methods of a tensor, declared in the files named methods_*.go.
var methods = &starlib.Methods{
	Type: "Tensor",
	Doc: `An array of numbers of one type. Arithmetic is + - * / // % and -x, with numbers on either side, broadcasting as in NumPy; comparisons are elementwise.
x[i], x[i, j] and x[a:b] index as in PyTorch; slices of several dimensions, or to assign to, are written in a string: x[":, 0"], x["2:5"] = v. A bool mask, or a tensor or list of indices, also selects elements. len(x) and loops are about dimension 0.
Methods whose names end in _ work in place, others never. Names, arguments and results are PyTorch's.`,
	Attrs: [][2]string{
		{"shape", "the sizes, a tuple"},
		{"ndim", "the number of dimensions"},
		{"T", "the transpose of a matrix: a view with its two dimensions swapped; for a vector or a number, the tensor itself"},
		{"mT", "the transposes of a batch of matrices: a view with the last two dimensions swapped"},
		{"dtype", `the type of the elements, a string such as "float32"`},
		{"grad", "the gradient, a tensor of the same shape, or None; assignable"},
		{"requires_grad", "whether backward computes a gradient for it; can be set only on tensors that were not computed from others"},
	},
	Defs: concat(shapeDefs, splitDefs, mathDefs, reduceDefs, orderDefs, gradDefs, inPlaceDefs),
	More: func() []*starlib.Def { return std.Defs("methods") },
}

func concat(lists ...[]*starlib.Def) (all []*starlib.Def) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Library returns the library of the tensor's rank.
func (v *Value) Library() starlib.Library { return v.Tensor().Context().Library.(starlib.Library) }

func (v *Value) Attr(name string) (starlark.Value, error) {
	t := v.Tensor()
	switch name {
	case "shape":
		return IntTuple(t.Shape()), nil
	case "ndim":
		return starlark.MakeInt(t.Dim()), nil
	case "T":
		switch t.Dim() {
		case 0, 1:
			return v, nil
		case 2:
			return Result(tensor.Transpose(t, 0, 1))
		}
		return nil, fmt.Errorf("T is for matrices, not shape %s: mT swaps the last two dimensions, permute() reorders all of them", Shape(t)) //nolint:staticcheck // its name
	case "mT":
		if t.Dim() < 2 {
			return nil, fmt.Errorf("mT needs at least two dimensions, not shape %s", Shape(t))
		}
		return Result(tensor.Transpose(t, -2, -1))
	case "dtype":
		return dtypeNames[t.DType()], nil
	case "grad":
		if g := t.Grad(); g != nil {
			return (*Value)(g), nil
		}
		return starlark.None, nil
	case "requires_grad":
		return starlark.Bool(t.RequiresGrad()), nil
	}
	return methods.Attr(v, name)
}

func (v *Value) AttrNames() []string { return methods.AttrNames() }

// SetField assigns grad or requires_grad.
func (v *Value) SetField(name string, value starlark.Value) error {
	t := v.Tensor()
	switch name {
	case "grad":
		if value == starlark.None {
			return t.SetGrad(nil)
		}
		g, ok := value.(*Value)
		if !ok {
			return fmt.Errorf("grad: want a Tensor or None, got %s", value.Type())
		}
		return t.SetGrad(g.Tensor())
	case "requires_grad":
		on, ok := value.(starlark.Bool)
		if !ok {
			return fmt.Errorf("requires_grad: want True or False, got %s", value.Type())
		}
		return setRequiresGrad(t, bool(on))
	case "shape", "ndim", "dtype", "T", "mT":
		return fmt.Errorf("%s cannot be assigned; reshape() and to() give another tensor", name)
	}
	return starlark.NoSuchAttrError(fmt.Sprintf("Tensor has no field %s to assign; it has grad and requires_grad", name))
}

func setRequiresGrad(t *tensor.Tensor, on bool) error {
	if t.Frozen() {
		return fmt.Errorf("requires_grad: the tensor was made at top level and is frozen; make it in main(), or clone() it there")
	}
	return t.SetRequiresGrad(on)
}

// dtypeNames holds the names of the types as recipes write them.
var dtypeNames = func() (names [256]starlark.Value) {
	for _, d := range dtype.Types() {
		names[d] = starlark.String(d.String())
	}
	return names
}()

// Shape formats t's shape as Python does: (2, 3).
func Shape(t *tensor.Tensor) string { return tensor.ShapeString(t.Shape()) }

// IntTuple is a tuple of integers, such as a shape.
func IntTuple(ns []int) starlark.Tuple {
	return each.Of(ns, func(n int) starlark.Value { return starlark.MakeInt(n) })
}
