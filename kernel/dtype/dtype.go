// Package dtype defines the element types of tensors and buffers, and the operations that reduce them over ranks. It
// is shared by the kernels, tensors, backends and their plugins. Its numbers are part of the plugins' protocol, and
// equal those in the C headers of kernel and plugins/gloo.
package dtype

import "fmt"

// Type is the type of an element.
type Type uint8

// The element types. All can be moved; [ReduceOp.Valid] says which can be reduced. Float16 and Complex64 are for
// storage, casts and communication; the others can be computed with, BFloat16 in float32.
const (
	None Type = iota // of a call without data: barrier
	Float32
	Float64
	Int64
	Int32
	Int8
	Uint8
	Bool // one byte, 0 or 1
	Float16
	BFloat16
	Complex64
	numTypes
)

// Kind is a type's category. Where types are mixed, the higher kind wins.
type Kind uint8

// The kinds, in the order of promotion.
const (
	Truth Kind = iota
	Integer
	Real
	Complex
)

var types = [numTypes]struct {
	name string
	size int
	kind Kind
}{
	None:    {"-", 1, Truth},
	Float32: {"float32", 4, Real}, Float64: {"float64", 8, Real},
	Int64: {"int64", 8, Integer}, Int32: {"int32", 4, Integer}, Int8: {"int8", 1, Integer}, Uint8: {"uint8", 1, Integer},
	Bool: {"bool", 1, Truth}, Float16: {"float16", 2, Real}, BFloat16: {"bfloat16", 2, Real}, Complex64: {"complex64", 8, Complex},
}

// Types lists every element type.
func Types() []Type {
	return []Type{Float32, Float64, Int64, Int32, Int8, Uint8, Bool, Float16, BFloat16, Complex64}
}

// Parse finds a type by its name, as in "float32".
func Parse(name string) (Type, error) {
	for _, t := range Types() {
		if types[t].name == name {
			return t, nil
		}
	}
	return None, fmt.Errorf("unknown dtype %q: use float32, float64, int64, int32, int8, uint8, bool, float16, bfloat16 or complex64", name)
}

func (t Type) Valid() bool { return t > None && t < numTypes }

// Size returns the size of an element in bytes.
func (t Type) Size() int {
	if t >= numTypes {
		return 1
	}
	return types[t].size
}

// Kind returns the category of a valid type.
func (t Type) Kind() Kind { return types[t].kind }

// IsFloat reports whether t is a real floating-point type, which may require gradients.
func (t Type) IsFloat() bool { return t.Kind() == Real }

// IsInt reports whether t is an integer type; bool is not one.
func (t Type) IsInt() bool { return t.Kind() == Integer }

func (t Type) String() string {
	if t >= numTypes {
		return fmt.Sprintf("dtype(%d)", uint8(t))
	}
	return types[t].name
}
