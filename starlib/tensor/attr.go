package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
)

// methods are the methods of a tensor, declared in the files named methods_*.go.
var methods = &starlib.Methods{
	Type: "Tensor",
	Doc: `An array of numbers of one type. Arithmetic is + - * / // % and -x, with numbers on either side, broadcasting as in NumPy; comparisons are elementwise.
x[i], x[i, j] and x[a:b] index as in PyTorch; further dimensions and slices in a string: x[":, 0"], x["2:5"] = v. A bool mask or a tensor or list of indices selects too. len(x) and loops go over dimension 0.
Methods that end in _ work in place, others never. Names, arguments and results are PyTorch's.`,
	Attrs: [][2]string{
		{"shape", "the sizes, a tuple"},
		{"ndim", "the number of dimensions"},
		{"T", "the transpose of a matrix: a view with its two dimensions swapped; a vector or a number is itself"},
		{"mT", "the transposes of a batch of matrices: a view with the last two dimensions swapped"},
		{"dtype", `the type of the elements, a string such as "float32"`},
		{"grad", "the gradient, a tensor of the same shape, or None; assignable"},
		{"requires_grad", "whether backward computes a gradient for it; can be set only on tensors that were not computed from others"},
	},
	Defs: concat(shapeDefs, splitDefs, mathDefs, reduceDefs, orderDefs, gradDefs, inPlaceDefs),
}

func concat(lists ...[]*starlib.Def) (all []*starlib.Def) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Attr returns attributes and methods.
func (v *Value) Attr(name string) (starlark.Value, error) {
	t := v.Tensor()
	switch name {
	case "shape":
		return shapeTuple(t.Shape()), nil
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

// AttrNames lists attributes and methods.
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

// dtypeNames are the names of the types as recipes write them.
var dtypeNames = func() (names [256]starlark.Value) {
	for _, d := range dtype.Types() {
		names[d] = starlark.String(d.String())
	}
	return names
}()

// Shape writes t's shape as Python would: (2, 3).
func Shape(t *tensor.Tensor) string { return tensor.ShapeString(t.Shape()) }

func shapeTuple(shape []int) starlark.Tuple {
	t := make(starlark.Tuple, len(shape))
	for i, n := range shape {
		t[i] = starlark.MakeInt(n)
	}
	return t
}
