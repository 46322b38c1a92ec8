//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"drun/collective"
	"drun/kernel/dtype"
	"drun/plugins/internal/collectives"
)

// Half precisions come as float32, and averages as sums.
var numbers = collectives.Numbers{
	Types: map[dtype.Type]int{dtype.Float32: C.FLOAT32, dtype.Float64: C.FLOAT64, dtype.Int64: C.INT64, dtype.Int32: C.INT32,
		dtype.Int8: C.INT8, dtype.Uint8: C.UINT8, dtype.Bool: C.BOOL, dtype.Complex64: C.COMPLEX64},
	Operations: map[dtype.ReduceOp]int{dtype.Sum: C.SUM, dtype.Product: C.PRODUCT, dtype.Min: C.MIN, dtype.Max: C.MAX,
		dtype.BAnd: C.BAND, dtype.BOr: C.BOR, dtype.BXor: C.BXOR},
}

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
	return failed(C.drun_gloo_allreduce(e.group, C.int(numbers.Types[send.DType]), C.int(numbers.Operations[op]), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), &failure[0]), &failure)
}

func (e *engine) Reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	if recv.Data == nil { // Gloo needs an output on every rank
		recv.Data = e.Room(len(send.Data))
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_reduce(e.group, C.int(numbers.Types[send.DType]), C.int(numbers.Operations[op]), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), C.int(root), &failure[0]), &failure)
}
