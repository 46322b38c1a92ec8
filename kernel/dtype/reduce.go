package dtype

import (
	"fmt"
	"slices"
)

// ReduceOp says how the ranks' elements are combined.
type ReduceOp uint8

// The reduce operations. Sums and products of integers wrap around. Avg is the sum divided by the number of ranks;
// for integers it uses the exact sum, which does not wrap, and truncates towards zero.
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

// ParseReduceOp returns the operation of that name.
func ParseReduceOp(name string) (ReduceOp, bool) {
	i := slices.Index(reduceOps[:], name)
	return ReduceOp(max(i, 0)), i >= 0
}

func (op ReduceOp) String() string {
	if op >= numReduceOps {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return reduceOps[op]
}

// Valid reports whether op can be applied to elements of type d: floats have sum, avg, product, min and max; integers
// these and band, bor and bxor; bool only the latter; complex numbers sum and avg. float16 and bfloat16 are reduced
// in float32 and rounded once.
func (op ReduceOp) Valid(d Type) bool {
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
