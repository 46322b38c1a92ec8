package shm

import (
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// few is how many elements are added in Go: for so few a call of C takes longer than the sum.
const few = 16

// reducer combines the ranks' contributions. It keeps the list of their
// addresses from call to call.
type reducer struct{ addresses []unsafe.Pointer }

// combine reduces the sources, all as long as dst, in their order. dst may be
// one of them.
func (r *reducer) combine(dst []byte, sources [][]byte, dt dtype.Type, op dtype.ReduceOp) {
	n := len(dst) / dt.Size()
	if n == 0 {
		return
	}
	if n <= few && op == dtype.Sum {
		switch dt {
		case dtype.Float32:
			sum[float32](dst, sources)
			return
		case dtype.Float64:
			sum[float64](dst, sources)
			return
		case dtype.Int64:
			sum[int64](dst, sources)
			return
		}
	}
	r.addresses = r.addresses[:0]
	for _, s := range sources {
		r.addresses = append(r.addresses, unsafe.Pointer(unsafe.SliceData(s)))
	}
	kernel.ReduceRanks(op, dt, unsafe.Pointer(unsafe.SliceData(dst)), r.addresses, n)
}

// sum produces the same bits as the kernel.
func sum[T float32 | float64 | int64](dst []byte, sources [][]byte) {
	out := view[T](dst)
	for i := range out {
		v := view[T](sources[0])[i]
		for _, s := range sources[1:] {
			v += view[T](s)[i]
		}
		if v != v {
			v = nan[T]()
		}
		out[i] = v
	}
}

func view[T float32 | float64 | int64](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// nan is the one NaN that the kernels produce for a float type.
func nan[T float32 | float64 | int64]() T {
	var v T
	switch p := any(&v).(type) {
	case *float32:
		*(*uint32)(unsafe.Pointer(p)) = 0x7FC00000
	case *float64:
		*(*uint64)(unsafe.Pointer(p)) = 0x7FF8000000000000
	}
	return v
}
