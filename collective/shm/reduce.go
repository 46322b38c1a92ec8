package shm

import (
	"unsafe"

	"drun/collective"
)

// combine reduces the sources, all as long as dst, in their order. dst may be
// one of them.
func combine(dst []byte, sources [][]byte, dtype collective.DType, op collective.ReduceOp) {
	switch dtype {
	case collective.Float32:
		floats[float32](dst, sources, op)
	case collective.Float64:
		floats[float64](dst, sources, op)
	case collective.Int64:
		integers[int64](dst, sources, op)
	case collective.Int32:
		integers[int32](dst, sources, op)
	case collective.Int8:
		integers[int8](dst, sources, op)
	case collective.Uint8, collective.Bool:
		integers[uint8](dst, sources, op)
	}
}

type number interface {
	float32 | float64 | int64 | int32 | int8 | uint8
}

func view[T number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

func floats[T float32 | float64](dst []byte, sources [][]byte, op collective.ReduceOp) {
	arithmetic[T](dst, sources, op)
}

func integers[T int64 | int32 | int8 | uint8](dst []byte, sources [][]byte, op collective.ReduceOp) {
	switch op {
	case collective.BAnd:
		fold(dst, sources, func(a, b T) T { return a & b })
	case collective.BOr:
		fold(dst, sources, func(a, b T) T { return a | b })
	case collective.BXor:
		fold(dst, sources, func(a, b T) T { return a ^ b })
	default:
		arithmetic[T](dst, sources, op)
	}
}

func arithmetic[T number](dst []byte, sources [][]byte, op collective.ReduceOp) {
	switch op {
	case collective.Product:
		fold(dst, sources, func(a, b T) T { return a * b })
	case collective.Min:
		fold(dst, sources, func(a, b T) T { return min(a, b) })
	case collective.Max:
		fold(dst, sources, func(a, b T) T { return max(a, b) })
	default:
		sum[T](dst, sources)
		if op == collective.Avg {
			n := T(len(sources))
			for i, v := range view[T](dst) {
				view[T](dst)[i] = v / n
			}
		}
	}
}

func sum[T number](dst []byte, sources [][]byte) {
	out, a, b := view[T](dst), view[T](sources[0]), view[T](sources[1])
	for i := range out {
		out[i] = a[i] + b[i]
	}
}

func fold[T number](dst []byte, sources [][]byte, f func(a, b T) T) {
	out := view[T](dst)
	for i := range out {
		v := view[T](sources[0])[i]
		for _, s := range sources[1:] {
			v = f(v, view[T](s)[i])
		}
		out[i] = v
	}
}
