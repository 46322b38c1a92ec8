package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_reduce
// #cgo nocallback drun_reduce
// #cgo noescape drun_arg_reduce
// #cgo nocallback drun_arg_reduce
// #cgo noescape drun_cumsum
// #cgo nocallback drun_cumsum
// #cgo noescape drun_square_sum
// #cgo nocallback drun_square_sum
import "C"

import (
	"unsafe"

	"drun/element"
)

// ReduceOp is an operation of Reduce.
type ReduceOp int32

const (
	Sum     ReduceOp = C.RSUM // integers and Bool into Int64
	MinOver ReduceOp = C.RMIN // n > 0; NaN if any is
	MaxOver ReduceOp = C.RMAX // n > 0; NaN if any is
	Any     ReduceOp = C.RANY // into Bool
	All     ReduceOp = C.RALL // into Bool
)

// Reduce folds the middle dimension of a contiguous [outer, n, inner] array into out [outer, inner].
func Reduce(op ReduceOp, dt element.Type, outer, n, inner int, out, in unsafe.Pointer) {
	C.drun_reduce(C.int(op), C.int(dt), long(outer), long(n), long(inner), mem(out), mem(in))
}

// ArgReduce finds along the middle dimension the first position of the largest (MaxOver) or smallest
// (MinOver) element, a NaN counting as more extreme than any number; n > 0. index [outer, inner] or
// values [outer, inner] may be nil.
func ArgReduce(op ReduceOp, dt element.Type, outer, n, inner int, indices []int64, values, in unsafe.Pointer) {
	C.drun_arg_reduce(C.int(op), C.int(dt), long(outer), long(n), long(inner), index(indices), mem(values), mem(in))
}

// CumSum adds along the middle dimension; integers and Bool into Int64.
func CumSum(dt element.Type, outer, n, inner int, out, in unsafe.Pointer) {
	C.drun_cumsum(C.int(dt), long(outer), long(n), long(inner), mem(out), mem(in))
}

// SquareSum returns the sum of the squares of n reals.
func SquareSum(dt element.Type, n int, in unsafe.Pointer) float64 {
	var s C.double
	C.drun_square_sum(C.int(dt), long(n), mem(in), &s)
	return float64(s)
}
