// Package reduction reduces the ranks' elements for plugins whose engine
// cannot, or not with the bits that drun promises. It uses the kernels of the
// shm backend, so the bits are the same.
package reduction

import (
	"unsafe"

	"drun/collective"
	"drun/kernel"
	"drun/kernel/dtype"
)

// Combine reduces the ranks' contributions, in rank order, each as long as out, into out, which may be one of them.
func Combine(out collective.Buffer, sources [][]byte, op dtype.ReduceOp) {
	if len(out.Data) == 0 {
		return
	}
	addresses := make([]unsafe.Pointer, 0, 16)
	for _, s := range sources {
		addresses = append(addresses, unsafe.Pointer(unsafe.SliceData(s)))
	}
	kernel.ReduceRanks(op, out.DType, unsafe.Pointer(unsafe.SliceData(out.Data)), addresses, out.Count())
}

// Convert copies in to out, element by element, into out's type.
func Convert(out, in collective.Buffer) {
	n := out.Count()
	if n == 0 {
		return
	}
	kernel.Cast(out.DType, in.DType, []int{n}, view(out), view(in))
}

func view(b collective.Buffer) kernel.View {
	return kernel.View{Data: unsafe.Pointer(unsafe.SliceData(b.Data)), Strides: []int{1}}
}

// Exact reports whether op is an average of integers, which must come from [Combine]: it needs their exact sum, and
// an engine's sum wraps around.
func Exact(d dtype.Type, op dtype.ReduceOp) bool {
	switch d {
	case dtype.Int64, dtype.Int32, dtype.Int8, dtype.Uint8:
		return op == dtype.Avg
	}
	return false
}

// Divide turns a sum of floats or complex numbers over ranks into their average, with the rounding of [Combine]'s
// Avg.
func Divide(b collective.Buffer, ranks int) {
	if n := b.Count(); ranks&(ranks-1) == 0 && n > 0 && (b.DType == dtype.Float32 || b.DType == dtype.Float64) {
		// The inverse of a power of two is exact, and multiplication is faster.
		kernel.Scale(b.DType, n, unsafe.Pointer(unsafe.SliceData(b.Data)), 1/float64(ranks))
		return
	}
	switch b.DType {
	case dtype.Float32:
		divide(collective.Slice[float32](b), float32(ranks))
	case dtype.Float64:
		divide(collective.Slice[float64](b), float64(ranks))
	case dtype.Complex64:
		divide(collective.Slice[float32](collective.Buffer{DType: dtype.Float32, Data: b.Data}), float32(ranks))
	default:
		panic("reduction: the average of " + b.DType.String() + " does not come of their sum")
	}
}

func divide[T float32 | float64](x []T, by T) {
	for i := range x {
		x[i] /= by
	}
}
