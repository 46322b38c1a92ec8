//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"drun/collective"
	"drun/kernel/dtype"
)

// The shim numbers types and operations as package dtype does: otherwise this does not compile, since a map literal
// cannot repeat a key.
var _ = map[bool]string{false: "", C.FLOAT32 == dtype.Float32 && C.FLOAT64 == dtype.Float64 && C.INT64 == dtype.Int64 &&
	C.INT32 == dtype.Int32 && C.INT8 == dtype.Int8 && C.UINT8 == dtype.Uint8 && C.BOOL == dtype.Bool &&
	C.FLOAT16 == dtype.Float16 && C.BFLOAT16 == dtype.BFloat16 && C.COMPLEX64 == dtype.Complex64 &&
	C.SUM == dtype.Sum && C.AVG == dtype.Avg && C.PRODUCT == dtype.Product && C.MIN == dtype.Min &&
	C.MAX == dtype.Max && C.BAND == dtype.BAnd && C.BOR == dtype.BOr && C.BXOR == dtype.BXor: "agree"}

func (e *engine) Barrier() error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_barrier(e.group, &failure[0]), &failure)
}

func (e *engine) Broadcast(data []byte, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_broadcast(e.group, pointer(data), C.size_t(len(data)), C.int(root), &failure[0]), &failure)
}

func (e *engine) AllGather(send, recv []byte, counts []int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_allgather(e.group, pointer(send), C.size_t(len(send)), pointer(recv), sizes(counts), &failure[0]), &failure)
}

func (e *engine) Gather(send, recv []byte, counts []int, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_gather(e.group, pointer(send), C.size_t(len(send)), pointer(recv), sizes(counts), C.int(root), &failure[0]), &failure)
}

func (e *engine) Scatter(send, recv []byte, counts []int, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_scatter(e.group, pointer(send), pointer(recv), C.size_t(len(recv)), sizes(counts), C.int(root), &failure[0]), &failure)
}

func (e *engine) AllToAll(send []byte, sent []int, recv []byte, received []int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_alltoallv(e.group, pointer(send), sizes(sent), pointer(recv), sizes(received), &failure[0]), &failure)
}

// sizes converts sizes in bytes for C; nil stays nil.
func sizes(counts []int) *C.int64_t {
	if counts == nil {
		return nil
	}
	all := make([]C.int64_t, len(counts))
	for i, n := range counts {
		all[i] = C.int64_t(n)
	}
	return &all[0]
}

// Reduces is true of all that the contract has: the shim gives Gloo drun's own operations.
func (e *engine) Reduces(dtype.Type, dtype.ReduceOp) bool { return true }

func (e *engine) AllReduce(send, recv collective.Buffer, op dtype.ReduceOp) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_allreduce(e.group, C.int(send.DType), C.int(op), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), &failure[0]), &failure)
}

func (e *engine) Reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	if recv.Data == nil { // Gloo needs an output on every rank
		recv.Data = e.Room(len(send.Data))
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_reduce(e.group, C.int(send.DType), C.int(op), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), C.int(root), &failure[0]), &failure)
}
