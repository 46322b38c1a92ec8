package tensor

import "fmt"

// DType is the type of a tensor's elements.
type DType uint8

// The element types. Float16, BFloat16 and Complex64 are for storage and
// casts; the others compute.
const (
	Float32 DType = iota
	Float64
	Int64
	Int32
	Int8
	Uint8
	Bool
	Float16
	BFloat16
	Complex64
	numDTypes
)

var dtypeInfo = [numDTypes]struct {
	name string
	size int
	rank int // promotion category: 0 bool, 1 integer, 2 float, 3 complex
}{
	Float32: {"float32", 4, 2}, Float64: {"float64", 8, 2},
	Int64: {"int64", 8, 1}, Int32: {"int32", 4, 1}, Int8: {"int8", 1, 1}, Uint8: {"uint8", 1, 1},
	Bool: {"bool", 1, 0}, Float16: {"float16", 2, 2}, BFloat16: {"bfloat16", 2, 2}, Complex64: {"complex64", 8, 3},
}

// Size is the size of one element in bytes.
func (d DType) Size() int { return dtypeInfo[d].size }

func (d DType) String() string { return dtypeInfo[d].name }

// IsFloat is true of the real floating-point types, which may require
// gradients.
func (d DType) IsFloat() bool { return dtypeInfo[d].rank == 2 }

// IsInt is true of the integer types; bool is not one.
func (d DType) IsInt() bool { return dtypeInfo[d].rank == 1 }

// ParseDType finds a type by its name, as in "float32".
func ParseDType(name string) (DType, error) {
	for d, info := range dtypeInfo {
		if info.name == name {
			return DType(d), nil
		}
	}
	return 0, fmt.Errorf("unknown dtype %q: use float32, float64, int64, int32, int8, uint8, bool, float16, bfloat16 or complex64", name)
}

// Promote gives the common type of two tensors, as PyTorch does: the higher
// category of bool < integer < float < complex wins; inside a category the
// wider type. uint8 with int8 gives int32's narrower neighbour int32 (there
// is no int16), float16 with bfloat16 gives float32.
func Promote(a, b DType) DType {
	if a == b {
		return a
	}
	ra, rb := dtypeInfo[a].rank, dtypeInfo[b].rank
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
		return Float32
	}
	return Int32 // int8 and uint8
}

// promoteOperands gives the type in which two operands are computed. A
// tensor without dimensions does not widen one with dimensions unless its
// category is higher; a plain number (wrapped) does not widen either.
func promoteOperands(a, b *Tensor) DType {
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

// promoteWeak is strong unless weak's category is higher; then weak's type,
// which for a plain number is the default of its category.
func promoteWeak(strong, weak DType, number bool) DType {
	if dtypeInfo[weak].rank <= dtypeInfo[strong].rank {
		return strong
	}
	if number && weak == Float64 {
		return Float32
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
