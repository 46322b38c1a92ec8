package collective

import "fmt"

// DType is the type of a buffer's elements.
type DType uint8

// The element types. All can be moved; which can be reduced says [ReduceOp.Valid].
const (
	NoDType DType = iota // a call without data: barrier
	Float32
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

var dtypes = [numDTypes]struct {
	name string
	size int
}{
	{"-", 1}, {"float32", 4}, {"float64", 8}, {"int64", 8}, {"int32", 4}, {"int8", 1},
	{"uint8", 1}, {"bool", 1}, {"float16", 2}, {"bfloat16", 2}, {"complex64", 8},
}

// DTypes lists every element type.
func DTypes() []DType {
	return []DType{Float32, Float64, Int64, Int32, Int8, Uint8, Bool, Float16, BFloat16, Complex64}
}

// Valid reports whether d is an element type.
func (d DType) Valid() bool { return d > NoDType && d < numDTypes }

// Size is the size of an element in bytes.
func (d DType) Size() int {
	if d >= numDTypes {
		return 1
	}
	return dtypes[d].size
}

func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// ReduceOp says how the ranks' elements become one.
type ReduceOp uint8

// The reduce operations. Sums and products of integers wrap around. Avg is the
// sum divided by the number of ranks; for integers that of the exact sum, which
// does not wrap, truncated towards zero.
const (
	Sum ReduceOp = iota
	Avg
	Product
	Min
	Max
	BAnd
	BOr
	BXor
	numReduceOps
)

var reduceOps = [numReduceOps]string{"sum", "avg", "product", "min", "max", "band", "bor", "bxor"}

// ReduceOps lists every reduce operation.
func ReduceOps() []ReduceOp { return []ReduceOp{Sum, Avg, Product, Min, Max, BAnd, BOr, BXor} }

// ParseReduceOp gives the operation of that name.
func ParseReduceOp(name string) (ReduceOp, bool) {
	for i, s := range reduceOps {
		if s == name {
			return ReduceOp(i), true
		}
	}
	return 0, false
}

func (op ReduceOp) String() string {
	if op >= numReduceOps {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return reduceOps[op]
}

// Valid reports whether op can be applied to elements of type d: floats have
// sum, avg, product, min and max; integers these and band, bor and bxor; bool
// only the latter; complex numbers sum and avg. float16 and bfloat16 are
// reduced in float32 and rounded once.
func (op ReduceOp) Valid(d DType) bool {
	switch d {
	case Float32, Float64, Float16, BFloat16:
		return op <= Max
	case Int64, Int32, Int8, Uint8:
		return op <= BXor
	case Bool:
		return op >= BAnd && op <= BXor
	case Complex64:
		return op <= Avg
	}
	return false
}
