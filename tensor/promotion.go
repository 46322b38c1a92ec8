package tensor

import "drun/kernel/dtype"

// Promote returns the common type of two tensors, as PyTorch does: the
// higher category of bool < integer < float < complex wins; within a
// category the wider type. uint8 with int8 gives int32 (there is no int16),
// float16 with bfloat16 gives float32.
func Promote(a, b dtype.Type) dtype.Type {
	if a == b {
		return a
	}
	ra, rb := a.Kind(), b.Kind()
	switch {
	case ra > rb:
		return a
	case rb > ra:
		return b
	case a.Size() > b.Size():
		return a
	case b.Size() > a.Size():
		return b
	case a.IsFloat(): // float16 and bfloat16
		return dtype.Float32
	}
	return dtype.Int32 // int8 and uint8
}

// promoteOperands returns the type in which two operands are computed. A
// tensor without dimensions does not widen one with dimensions unless its
// category is higher; a plain number (wrapped) does not widen either.
func promoteOperands(a, b *Tensor) dtype.Type {
	if a.dtype == b.dtype {
		return a.dtype
	}
	pa, pb := a.priority(), b.priority()
	if pa == pb {
		return Promote(a.dtype, b.dtype)
	}
	strong, weak := a.dtype, b.dtype
	if pb > pa {
		strong, weak = weak, strong
	}
	return promoteWeak(strong, weak, min(pa, pb) == 0)
}

// promoteWeak is strong unless weak's category is higher; then it is weak, or for a plain number the default of its category.
func promoteWeak(strong, weak dtype.Type, number bool) dtype.Type {
	if weak.Kind() <= strong.Kind() {
		return strong
	}
	if number && weak == dtype.Float64 {
		return dtype.Float32
	}
	return weak
}

// priority ranks operands for promotion: 2 with dimensions, 1 without, 0 a
// plain number.
func (t *Tensor) priority() int {
	switch {
	case t.number:
		return 0
	case len(t.shape) == 0:
		return 1
	}
	return 2
}
