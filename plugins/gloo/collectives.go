//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"drun/collective"
	"drun/kernel/element"
)

// The shim numbers types and operations as package element does: otherwise this does not compile, since a map literal
// cannot repeat a key.
var _ = map[bool]string{false: "", C.FLOAT32 == element.Float32 && C.FLOAT64 == element.Float64 && C.INT64 == element.Int64 &&
	C.INT32 == element.Int32 && C.INT8 == element.Int8 && C.UINT8 == element.Uint8 && C.BOOL == element.Bool &&
	C.FLOAT16 == element.Float16 && C.BFLOAT16 == element.BFloat16 && C.COMPLEX64 == element.Complex64 &&
	C.SUM == element.Sum && C.AVG == element.Avg && C.PRODUCT == element.Product && C.MIN == element.Min &&
	C.MAX == element.Max && C.BAND == element.BAnd && C.BOR == element.BOr && C.BXOR == element.BXor: "agree"}

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
	if sent == nil {
		return failed(C.drun_gloo_alltoall(e.group, pointer(send), pointer(recv), C.size_t(len(send)), &failure[0]), &failure)
	}
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
func (e *engine) Reduces(element.Type, element.ReduceOp) bool { return true }

func (e *engine) AllReduce(send, recv collective.Buffer, op element.ReduceOp) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_allreduce(e.group, C.int(send.DType), C.int(op), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), &failure[0]), &failure)
}

func (e *engine) Reduce(send, recv collective.Buffer, op element.ReduceOp, root int) error {
	if recv.Data == nil { // Gloo needs an output on every rank
		recv.Data = e.Room(len(send.Data))
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_reduce(e.group, C.int(send.DType), C.int(op), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), C.int(root), &failure[0]), &failure)
}
