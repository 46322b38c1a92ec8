// Package reduction computes what the ranks' elements become, for the plugins
// whose engine cannot, or not with the bits that drun promises. It is the
// kernels that the shm backend uses, so the bits are the same.
package reduction

import (
	"unsafe"

	"drun/collective"
	"drun/kernel"
)

var dtypes = [...]kernel.DType{
	collective.Float32: kernel.Float32, collective.Float64: kernel.Float64, collective.Int64: kernel.Int64,
	collective.Int32: kernel.Int32, collective.Int8: kernel.Int8, collective.Uint8: kernel.Uint8,
	collective.Bool: kernel.Bool, collective.Float16: kernel.Float16, collective.BFloat16: kernel.BFloat16,
	collective.Complex64: kernel.Complex64,
}

var ops = [...]kernel.RankOp{
	collective.Sum: kernel.RankSum, collective.Avg: kernel.RankAvg, collective.Product: kernel.RankProduct,
	collective.Min: kernel.RankMin, collective.Max: kernel.RankMax, collective.BAnd: kernel.RankBand,
	collective.BOr: kernel.RankBor, collective.BXor: kernel.RankBxor,
}

// Combine makes out of the ranks' contributions, in their order, each as long
// as out. out may be one of them.
func Combine(out collective.Buffer, sources [][]byte, op collective.ReduceOp) {
	if len(out.Data) == 0 {
		return
	}
	addresses := make([]unsafe.Pointer, 0, 16)
	for _, s := range sources {
		addresses = append(addresses, unsafe.Pointer(unsafe.SliceData(s)))
	}
	kernel.ReduceRanks(ops[op], dtypes[out.DType], unsafe.Pointer(unsafe.SliceData(out.Data)), addresses, out.Count())
}

// Convert copies in to out, element by element, into out's type.
func Convert(out, in collective.Buffer) {
	n := out.Count()
	if n == 0 {
		return
	}
	kernel.Cast(dtypes[out.DType], dtypes[in.DType], []int{n}, view(out), view(in))
}

func view(b collective.Buffer) kernel.View {
	return kernel.View{Data: unsafe.Pointer(unsafe.SliceData(b.Data)), Strides: []int{1}}
}

// Exact reports whether d's elements are integers whose average must come of
// [Combine]: it is that of their exact sum, and an engine's sum wraps around.
func Exact(d collective.DType, op collective.ReduceOp) bool {
	switch d {
	case collective.Int64, collective.Int32, collective.Int8, collective.Uint8:
		return op == collective.Avg
	}
	return false
}

// Divide makes a sum of floats or complex numbers over ranks their average, with
// the rounding of [Combine]'s Avg.
func Divide(b collective.Buffer, ranks int) {
	if n := b.Count(); ranks&(ranks-1) == 0 && n > 0 && (b.DType == collective.Float32 || b.DType == collective.Float64) {
		// The inverse of a power of two is exact, and a product is faster.
		kernel.Scale(dtypes[b.DType], n, unsafe.Pointer(unsafe.SliceData(b.Data)), 1/float64(ranks))
		return
	}
	switch b.DType {
	case collective.Float32:
		divide(collective.Slice[float32](b), float32(ranks))
	case collective.Float64:
		divide(collective.Slice[float64](b), float64(ranks))
	case collective.Complex64:
		divide(collective.Slice[float32](collective.Buffer{DType: collective.Float32, Data: b.Data}), float32(ranks))
	default:
		panic("reduction: the average of " + b.DType.String() + " does not come of their sum")
	}
}

func divide[T float32 | float64](x []T, by T) {
	for i := range x {
		x[i] /= by
	}
}
