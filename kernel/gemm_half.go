package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_gemm_half
// #cgo nocallback drun_gemm_half
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// GemmHalf is Gemm with operands in bfloat16, added up in float32. c is float32 or bfloat16, which is rounded once;
// a and b are each bfloat16 or float32, which is rounded before. accumulate is for a float32 c; bias is float32.
func GemmHalf(batch, m, n, k int, dt dtype.Type, c Matrix, da dtype.Type, a Matrix, db dtype.Type, b Matrix, accumulate bool, bias unsafe.Pointer) error {
	return had(C.drun_gemm_half(C.int(dt), flag(a.Trans), flag(b.Trans), long(m), long(n), long(k), C.int(da), mem(a.Data),
		long(a.Stride), C.int(db), mem(b.Data), long(b.Stride), mem(c.Data), long(c.Stride), mem(bias), flag(accumulate),
		long(batch), long(a.Batch), long(b.Batch), long(c.Batch)))
}
