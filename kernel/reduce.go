package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_square_sum
// #cgo nocallback drun_square_sum
// #cgo noescape drun_reduce_ranks
// #cgo nocallback drun_reduce_ranks
import "C"

import (
	"runtime"
	"unsafe"

	"drun/kernel/dtype"
)

// ReduceOp is an operation of Reduce.
type ReduceOp int32

const (
	Sum     ReduceOp = C.RSUM  // integers and Bool into Int64
	MinOver ReduceOp = C.RMIN  // n > 0; NaN if any is
	MaxOver ReduceOp = C.RMAX  // n > 0; NaN if any is
	Any     ReduceOp = C.RANY  // into Bool
	All     ReduceOp = C.RALL  // into Bool
	Prod    ReduceOp = C.RPROD // integers and Bool into Int64
)

// result is the type of a reduction's elements.
func (op ReduceOp) result(dt dtype.Type) dtype.Type {
	switch {
	case op == Any || op == All:
		return dtype.Bool
	case (op == Sum || op == Prod) && !dt.IsFloat():
		return dtype.Int64
	}
	return dt
}

// Reduce folds the middle dimension of a contiguous [outer, n, inner] array into out [outer, inner].
func Reduce(op ReduceOp, dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer) {
	for c := begin("reduction"); c.again(whole(op.result(dt), out, outer*inner)); {
		C.drun_reduce(C.int(op), C.int(dt), long(outer), long(n), long(inner), mem(out), mem(in))
	}
}

// ArgReduce finds along the middle dimension the first position of the largest (MaxOver) or smallest
// (MinOver) element, a NaN counting as more extreme than any number; n > 0. indices are [outer, inner].
func ArgReduce(op ReduceOp, dt dtype.Type, outer, n, inner int, indices []int64, in unsafe.Pointer) {
	for c := begin("reduction"); c.again(slice(indices)); {
		C.drun_arg_reduce(C.int(op), C.int(dt), long(outer), long(n), long(inner), index(indices), mem(in))
	}
}

// CumSum adds along the middle dimension; integers and Bool into Int64.
func CumSum(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer) {
	for c := begin("running sum"); c.again(whole(Sum.result(dt), out, outer*n*inner)); {
		C.drun_cumsum(C.int(dt), long(outer), long(n), long(inner), mem(out), mem(in))
	}
}

// CumProd multiplies along the middle dimension; integers and Bool into Int64.
func CumProd(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer) {
	for c := begin("running product"); c.again(whole(Prod.result(dt), out, outer*n*inner)); {
		C.drun_cumprod(C.int(dt), long(outer), long(n), long(inner), mem(out), mem(in))
	}
}

// CumProdGrad computes the gradient dx of CumProd's input x, reals, from that of its output, dy. x may have zeros.
func CumProdGrad(dt dtype.Type, outer, n, inner int, dx, dy, x unsafe.Pointer) {
	for c := begin("running product's gradient"); c.again(whole(dt, dx, outer*n*inner)); {
		C.drun_cumprod_grad(C.int(dt), long(outer), long(n), long(inner), mem(dx), mem(dy), mem(x))
	}
}

// SquareSum returns the sum of the squares of n reals.
func SquareSum(dt dtype.Type, n int, in unsafe.Pointer) float64 {
	var s [1]C.double
	for c := begin("sum of squares"); c.again(slice(s[:])); {
		C.drun_square_sum(C.int(dt), long(n), mem(in), &s[0])
	}
	return float64(s[0])
}

// ReduceRanks computes out[i] = (srcs[0][i] op srcs[1][i]) op ... for n elements of any type (Complex64 only
// sums and averages). Float16 and BFloat16 are reduced in float32 and rounded once. out may be one of srcs.
func ReduceRanks(op dtype.ReduceOp, dt dtype.Type, out unsafe.Pointer, srcs []unsafe.Pointer, n int) {
	// The addresses are passed as numbers, since C memory must not hold Go pointers; the sources stay alive and in place until the end.
	var few [64]C.uintptr_t
	addresses := few[:0]
	for _, p := range srcs {
		addresses = append(addresses, C.uintptr_t(uintptr(p)))
	}
	for c := begin("reduction over ranks"); c.again(array(dt, out, n)); {
		C.drun_reduce_ranks(C.int(op), C.int(dt), long(n), mem(out), C.int(len(srcs)), unsafe.SliceData(addresses))
	}
	runtime.KeepAlive(srcs)
}
