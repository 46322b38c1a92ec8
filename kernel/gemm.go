package kernel

// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Matrix is a row-major matrix operand: element (i, j) of the stored matrix at i*Stride + j. Trans means that
// the product takes its transpose. Batch is the distance in elements to the next product's matrix, 0 to use
// the same one again.
type Matrix struct {
	Data   unsafe.Pointer
	Stride int
	Trans  bool
	Batch  int
}

// GemmBlock is how many values of k are added up before they are added to c.
const GemmBlock = 256

// Gemm computes c = a b for each of batch products, where a is m x k and b is k x n after transposition and
// c m x n (not transposed). accumulate adds to c; bias, if not nil, holds n elements added to every row.
// Reals and integers; k = 0 gives zeros (or the bias). The error is an OutOfMemory.
func Gemm(dt dtype.Type, batch, m, n, k int, c, a, b Matrix, accumulate bool, bias unsafe.Pointer) error {
	p := begin("product")
	for p.again(c.output(dt, batch, m, n, accumulate)) {
		p.err = had(C.drun_gemm(C.int(dt), flag(a.Trans), flag(b.Trans), long(m), long(n), long(k), mem(a.Data), long(a.Stride),
			mem(b.Data), long(b.Stride), mem(c.Data), long(c.Stride), mem(bias), flag(accumulate), long(batch),
			long(a.Batch), long(b.Batch), long(c.Batch)))
	}
	return p.err
}

// GemmHalf is Gemm with operands in bfloat16, added up in float32. c is float32, or bfloat16, to which sums are rounded
// once; a and b are each bfloat16, or float32, which is rounded first. accumulate needs a float32 c; bias is float32.
func GemmHalf(batch, m, n, k int, dt dtype.Type, c Matrix, da dtype.Type, a Matrix, db dtype.Type, b Matrix, accumulate bool, bias unsafe.Pointer) error {
	p := begin("product")
	for p.again(c.output(dt, batch, m, n, accumulate)) {
		p.err = had(C.drun_gemm_half(C.int(dt), flag(a.Trans), flag(b.Trans), long(m), long(n), long(k), C.int(da), mem(a.Data),
			long(a.Stride), C.int(db), mem(b.Data), long(b.Stride), mem(c.Data), long(c.Stride), mem(bias), flag(accumulate),
			long(batch), long(a.Batch), long(b.Batch), long(c.Batch)))
	}
	return p.err
}
