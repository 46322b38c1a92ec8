package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_reduce_ranks
// #cgo nocallback drun_reduce_ranks
import "C"

import (
	"runtime"
	"unsafe"

	"drun/element"
)

// ReduceRanks computes out[i] = (srcs[0][i] op srcs[1][i]) op ... for n elements of any type (Complex64 only
// sums and averages). Float16 and BFloat16 are reduced in float32 and rounded once. out may be one of srcs.
func ReduceRanks(op element.ReduceOp, dt element.Type, out unsafe.Pointer, srcs []unsafe.Pointer, n int) {
	// As numbers, since C memory must not hold Go pointers; the sources stay alive and in place until the end.
	var few [64]C.uintptr_t
	addresses := few[:0]
	for _, p := range srcs {
		addresses = append(addresses, C.uintptr_t(uintptr(p)))
	}
	C.drun_reduce_ranks(C.int(op), C.int(dt), long(n), mem(out), C.int(len(srcs)), unsafe.SliceData(addresses))
	runtime.KeepAlive(srcs)
}
