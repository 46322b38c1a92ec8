// Package reduction reduces the ranks' elements for the shm and hier backends, and for plugins whose engine cannot do so
// or gives other bits than drun promises. The bits are the same for all.
package reduction

import (
	"math"
	"unsafe"

	"drun/collective"
	"drun/kernel"
	"drun/kernel/dtype"
)

// few is the most elements that are added in Go: a call of C would take longer than the sum.
const few = 16

// A Reducer reduces the ranks' contributions. It keeps the list of their addresses from call to call.
type Reducer struct{ addresses []unsafe.Pointer }

// Combine reduces with a Reducer of its own.
func Combine(out collective.Buffer, sources [][]byte, op dtype.ReduceOp) {
	r := Reducer{make([]unsafe.Pointer, 0, 16)}
	r.Combine(out, sources, op)
}

// Combine reduces the ranks' contributions, in rank order, each as long as out, into out, which may be one of them.
func (r *Reducer) Combine(out collective.Buffer, sources [][]byte, op dtype.ReduceOp) {
	n := out.Count()
	if n == 0 {
		return
	}
	if n <= few && op == dtype.Sum {
		switch out.DType {
		case dtype.Float32:
			sum[float32](out, sources, math.Float32frombits(0x7FC00000))
			return
		case dtype.Float64:
			sum[float64](out, sources, math.Float64frombits(0x7FF8000000000000))
			return
		case dtype.Int64:
			sum[int64](out, sources, 0)
			return
		}
	}
	r.addresses = r.addresses[:0]
	for _, s := range sources {
		r.addresses = append(r.addresses, unsafe.Pointer(unsafe.SliceData(s)))
	}
	kernel.ReduceRanks(op, out.DType, unsafe.Pointer(unsafe.SliceData(out.Data)), r.addresses, n)
}

// sum produces the same bits as the kernel; nan is the one NaN that the kernels produce for the type.
func sum[T float32 | float64 | int64](out collective.Buffer, sources [][]byte, nan T) {
	dst := collective.Slice[T](out)
	for i := range dst {
		v := view[T](sources[0])[i]
		for _, s := range sources[1:] {
			v += view[T](s)[i]
		}
		if v != v {
			v = nan
		}
		dst[i] = v
	}
}

func view[T float32 | float64 | int64](b []byte) []T {
	return collective.Slice[T](collective.Buffer{Data: b})
}

// Convert copies in to out, element by element, into out's type.
func Convert(out, in collective.Buffer) {
	n := out.Count()
	if n == 0 {
		return
	}
	kernel.Cast(out.DType, in.DType, []int{n}, flat(out), flat(in))
}

func flat(b collective.Buffer) kernel.View {
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

// Half reports whether d is reduced in float32 and rounded once at the end.
func Half(d dtype.Type) bool { return d == dtype.Float16 || d == dtype.BFloat16 }

// Step is the operation between two contributions.
func Step(op dtype.ReduceOp) dtype.ReduceOp {
	if op == dtype.Avg {
		return dtype.Sum
	}
	return op
}

// Share is the part of count elements of elem bytes that one of the ranks reduces: whole cache lines, so that no two write to
// the same one.
func Share(count, elem, rank, ranks int) (from, to int) {
	line := 64 / elem
	per := (count + ranks - 1) / ranks
	per = (per + line - 1) / line * line
	return min(rank*per, count), min((rank+1)*per, count)
}

// Divide turns a sum of floats or complex numbers over ranks into their average, with the rounding of [Combine]'s Avg.
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
		panic("reduction: the average of " + b.DType.String() + " does not follow from their sum")
	}
}

func divide[T float32 | float64](x []T, by T) {
	for i := range x {
		x[i] /= by
	}
}
