//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"fmt"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/element"
)

// The shim numbers types and operations as package element does: otherwise this does not compile, since a map literal
// cannot repeat a key.
var _ = map[bool]string{false: "", C.FLOAT32 == element.Float32 && C.FLOAT64 == element.Float64 && C.INT64 == element.Int64 &&
	C.INT32 == element.Int32 && C.INT8 == element.Int8 && C.UINT8 == element.Uint8 && C.BOOL == element.Bool &&
	C.FLOAT16 == element.Float16 && C.BFLOAT16 == element.BFloat16 && C.COMPLEX64 == element.Complex64 &&
	C.SUM == element.Sum && C.AVG == element.Avg && C.PRODUCT == element.Product && C.MIN == element.Min &&
	C.MAX == element.Max && C.BAND == element.BAnd && C.BOR == element.BOr && C.BXOR == element.BXor: "agree"}

// Do carries out a collective with Gloo's function of the same name, if it has one.
func (e *engine) Do(call *collective.Call) error {
	send, recv := call.Send, call.Recv
	root := C.int(call.Root)
	var failure [C.ERR_SIZE]C.char
	err := &failure[0]
	var rc C.int
	switch call.Kind {
	case collective.Barrier:
		rc = C.drun_gloo_barrier(e.group, err)
	case collective.AllReduce:
		return e.allReduce(send, recv, call.Reduce)
	case collective.Reduce:
		return e.reduce(send, recv, call.Reduce, call.Root)
	case collective.ReduceScatter:
		return e.reducer.ReduceScatter(send, recv, call.Counts, call.Reduce)
	case collective.Broadcast:
		data := recv
		if e.rank == call.Root {
			data = send
		}
		if len(data.Data) == 0 {
			return nil
		}
		rc = C.drun_gloo_broadcast(e.group, pointer(data.Data), C.size_t(len(data.Data)), root, err)
	case collective.AllGather:
		if len(recv.Data) == 0 {
			return nil
		}
		rc = C.drun_gloo_allgather(e.group, pointer(send.Data), C.size_t(len(send.Data)), pointer(recv.Data), sizes(call.Counts, send.DType.Size()), err)
	case collective.Gather:
		if call.Counts == nil && len(send.Data) == 0 {
			return nil
		}
		rc = C.drun_gloo_gather(e.group, pointer(send.Data), C.size_t(len(send.Data)), pointer(recv.Data), sizes(call.Counts, send.DType.Size()), root, err)
	case collective.Scatter:
		if call.Counts == nil && len(recv.Data) == 0 {
			return nil
		}
		rc = C.drun_gloo_scatter(e.group, pointer(send.Data), pointer(recv.Data), C.size_t(len(recv.Data)), sizes(call.Counts, recv.DType.Size()), root, err)
	case collective.AllToAll:
		if call.Counts == nil && call.RecvCounts == nil {
			if len(send.Data) == 0 {
				return nil
			}
			rc = C.drun_gloo_alltoall(e.group, pointer(send.Data), pointer(recv.Data), C.size_t(len(send.Data)), err)
			break
		}
		rc = C.drun_gloo_alltoallv(e.group, pointer(send.Data), sizes(collective.Evenly(call.Counts, send.Count(), e.size), send.DType.Size()),
			pointer(recv.Data), sizes(collective.Evenly(call.RecvCounts, recv.Count(), e.size), recv.DType.Size()), err)
	default:
		return fmt.Errorf("unknown operation %v", call.Kind)
	}
	return failed(rc, &failure)
}

// sizes converts counts of elements to counts of bytes; nil stays nil.
func sizes(counts []int, elem int) *C.int64_t {
	if counts == nil {
		return nil
	}
	all := make([]C.int64_t, len(counts))
	for i, n := range counts {
		all[i] = C.int64_t(n * elem)
	}
	return &all[0]
}

// half reports whether d is reduced in float32 and rounded once at the end.
func half(d element.Type) bool { return d == element.Float16 || d == element.BFloat16 }

func (e *engine) allReduce(send, recv collective.Buffer, op element.ReduceOp) error {
	if len(send.Data) == 0 {
		return nil
	}
	if e.deterministic || reduction.Exact(send.DType, op) {
		return e.reducer.AllReduce(send, recv, op)
	}
	if half(send.DType) {
		wide := collective.Buffer{DType: element.Float32, Data: e.reducer.Room(4 * send.Count())}
		reduction.Convert(wide, send)
		if err := e.allReduce(wide, wide, op); err != nil {
			return err
		}
		reduction.Convert(recv, wide)
		return nil
	}
	var failure [C.ERR_SIZE]C.char
	rc := C.drun_gloo_allreduce(e.group, C.int(send.DType), C.int(step(op)), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), &failure[0])
	if rc == 0 && op == element.Avg {
		reduction.Divide(recv, e.size)
	}
	return failed(rc, &failure)
}

// step is the operation between two contributions.
func step(op element.ReduceOp) element.ReduceOp {
	if op == element.Avg {
		return element.Sum
	}
	return op
}

func (e *engine) reduce(send, recv collective.Buffer, op element.ReduceOp, root int) error {
	if len(send.Data) == 0 {
		return nil
	}
	if e.deterministic || reduction.Exact(send.DType, op) {
		return e.reducer.Reduce(send, recv, op, root)
	}
	n := send.Count()
	// Gloo needs an output on every rank; only the root has one.
	out := recv
	switch {
	case half(send.DType):
		both := e.reducer.Room(8 * n)
		wide := collective.Buffer{DType: element.Float32, Data: both[:4*n]}
		reduction.Convert(wide, send)
		send, out = wide, collective.Buffer{DType: element.Float32, Data: both[4*n:]}
	case e.rank != root:
		out = collective.Buffer{DType: send.DType, Data: e.reducer.Room(len(send.Data))}
	}
	var failure [C.ERR_SIZE]C.char
	rc := C.drun_gloo_reduce(e.group, C.int(send.DType), C.int(step(op)), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(out.Data), C.size_t(n), C.int(root), &failure[0])
	if rc != 0 || e.rank != root {
		return failed(rc, &failure)
	}
	if op == element.Avg {
		reduction.Divide(out, e.size)
	}
	if out.DType != recv.DType {
		reduction.Convert(recv, out)
	}
	return nil
}
