package shm

import (
	"unsafe"

	"drun/collective"
	"drun/kernel"
)

var kernelDTypes = [...]kernel.DType{
	collective.Float32: kernel.Float32, collective.Float64: kernel.Float64, collective.Int64: kernel.Int64,
	collective.Int32: kernel.Int32, collective.Int8: kernel.Int8, collective.Uint8: kernel.Uint8,
	collective.Bool: kernel.Bool, collective.Float16: kernel.Float16, collective.BFloat16: kernel.BFloat16,
	collective.Complex64: kernel.Complex64,
}

var kernelOps = [...]kernel.RankOp{
	collective.Sum: kernel.RankSum, collective.Avg: kernel.RankAvg, collective.Product: kernel.RankProduct,
	collective.Min: kernel.RankMin, collective.Max: kernel.RankMax, collective.BAnd: kernel.RankBand,
	collective.BOr: kernel.RankBor, collective.BXor: kernel.RankBxor,
}

// few is how many elements are added here: for so few the way into C takes
// longer than the sum.
const few = 16

// reducer combines the ranks' contributions. It keeps the list of their
// addresses from call to call.
type reducer struct{ addresses []unsafe.Pointer }

// combine reduces the sources, all as long as dst, in their order. dst may be
// one of them.
func (r *reducer) combine(dst []byte, sources [][]byte, dtype collective.DType, op collective.ReduceOp) {
	n := len(dst) / dtype.Size()
	if n == 0 {
		return
	}
	if n <= few && op == collective.Sum {
		switch dtype {
		case collective.Float32:
			sum[float32](dst, sources)
			return
		case collective.Float64:
			sum[float64](dst, sources)
			return
		case collective.Int64:
			sum[int64](dst, sources)
			return
		}
	}
	r.addresses = r.addresses[:0]
	for _, s := range sources {
		r.addresses = append(r.addresses, unsafe.Pointer(unsafe.SliceData(s)))
	}
	kernel.ReduceRanks(kernelOps[op], kernelDTypes[dtype], unsafe.Pointer(unsafe.SliceData(dst)), r.addresses, n)
}

// sum gives the same bits as the kernel.
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

// nan is the NaN of a float type, of which the kernels make only one.
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
