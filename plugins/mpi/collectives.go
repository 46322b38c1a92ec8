//go:build mpi

package mpi

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/element"
	"drun/plugins/internal/ordered"
)

// Do carries out a collective. MPI sees data that is not reduced as bytes.
func (e *engine) Do(call *collective.Call) error {
	send, recv := call.Send, call.Recv
	switch call.Kind {
	case collective.Barrier:
		return e.do(barrier, func(err *C.char) C.int { return C.drun_mpi_barrier(e.group, err) })
	case collective.AllReduce:
		return e.allReduce(send, recv, call.Reduce)
	case collective.Reduce:
		return e.reduce(send, recv, call.Reduce, call.Root)
	case collective.ReduceScatter:
		return e.reducer.ReduceScatter(send, recv, call.Counts, call.Reduce)
	case collective.Broadcast:
		if e.rank == call.Root {
			return e.broadcast(send.Data, call.Root)
		}
		return e.broadcast(recv.Data, call.Root)
	case collective.AllGather:
		return e.allGather(send.Data, recv.Data, bytesOf(call.Counts, send))
	case collective.Gather:
		return e.gather(send.Data, recv.Data, bytesOf(call.Counts, send), call.Root)
	case collective.Scatter:
		return e.scatter(send.Data, recv.Data, bytesOf(call.Counts, recv), call.Root)
	case collective.AllToAll:
		return e.allToAll(send.Data, ordered.Bytes(collective.Evenly(call.Counts, send.Count(), e.size), send),
			recv.Data, ordered.Bytes(collective.Evenly(call.RecvCounts, recv.Count(), e.size), recv))
	}
	return fmt.Errorf("unknown operation %v", call.Kind)
}

// bytesOf converts counts of elements to counts of bytes; nil stays nil.
func bytesOf(counts []int, b collective.Buffer) []int {
	if counts == nil {
		return nil
	}
	return ordered.Bytes(counts, b)
}

func (e *engine) broadcast(data []byte, root int) error {
	return pieces(data, func(part []byte) error {
		return e.do(bcast, func(err *C.char) C.int {
			return C.drun_mpi_bcast(e.group, pointer(part), C.int(len(part)), C.int(root), err)
		})
	})
}

// attend makes the root tell the others that it has arrived, since what they send may be taken before that.
func (e *engine) attend(root int) error {
	var here [1]byte
	return e.broadcast(here[:], root)
}

// layout returns, for MPI, the sizes and offsets of the ranks' parts, which lie one after the other; nil for nil.
func layout(sizes []int) (counts, at *C.int, err error) {
	if sizes == nil {
		return nil, nil, nil
	}
	all := make([]C.int, 2*len(sizes))
	sum := 0
	for i, n := range sizes {
		if sum > math.MaxInt32 || n > math.MaxInt32 {
			return nil, nil, errLarge
		}
		all[i], all[len(sizes)+i] = C.int(n), C.int(sum)
		sum += n
	}
	return &all[0], &all[len(sizes)], nil
}

// MPI 3 counts in ints.
var errLarge = fmt.Errorf("parts of more than 2 GiB together are more than MPI counts in one call: gather them in several")

func small(n int) error {
	if n > math.MaxInt32 {
		return errLarge
	}
	return nil
}

func (e *engine) allGather(send, recv []byte, sizes []int) error {
	counts, at, err := layout(sizes)
	if err == nil {
		err = small(len(send))
	}
	if err != nil {
		return err
	}
	return e.do(allGather, func(err *C.char) C.int {
		return C.drun_mpi_allgather(e.group, pointer(send), C.int(len(send)), pointer(recv), counts, at, err)
	})
}

func (e *engine) gather(send, recv []byte, sizes []int, root int) error {
	counts, at, err := layout(sizes)
	if err == nil {
		err = small(len(send))
	}
	if err != nil {
		return err
	}
	err = e.do(gather, func(err *C.char) C.int {
		return C.drun_mpi_gather(e.group, pointer(send), C.int(len(send)), pointer(recv), counts, at, C.int(root), err)
	})
	if err != nil {
		return err
	}
	return e.attend(root)
}

func (e *engine) scatter(send, recv []byte, sizes []int, root int) error {
	counts, at, err := layout(sizes)
	if err == nil {
		err = small(len(recv))
	}
	if err != nil {
		return err
	}
	err = e.do(scatter, func(err *C.char) C.int {
		return C.drun_mpi_scatter(e.group, pointer(send), counts, at, pointer(recv), C.int(len(recv)), C.int(root), err)
	})
	if err != nil {
		return err
	}
	return e.attend(root) // for a rank whose part is empty
}

func (e *engine) allToAll(send []byte, sent []int, recv []byte, received []int) error {
	counts, from, err := layout(sent)
	if err != nil {
		return err
	}
	others, at, err := layout(received)
	if err != nil {
		return err
	}
	return e.do(allToAll, func(err *C.char) C.int {
		return C.drun_mpi_alltoall(e.group, pointer(send), counts, from, pointer(recv), others, at, err)
	})
}

// kinds are the types that MPI reduces. For the others drun has its own rules: half precision is rounded once, bool
// is not a number, and 8-bit sums wrap around, where Open MPI's saturate on some processors.
var kinds = map[element.Type]C.int{element.Float32: C.F32, element.Float64: C.F64, element.Int64: C.I64, element.Int32: C.I32}

// Not min and max: for them drun propagates NaN, and MPI only by chance.
var operations = map[element.ReduceOp]C.int{element.Sum: C.SUM, element.Avg: C.SUM, element.Product: C.PRODUCT}

// library returns how MPI reduces; false if drun does it in rank order.
func (e *engine) library(d element.Type, op element.ReduceOp) (kind, operation C.int, ok bool) {
	if e.deterministic || reduction.Exact(d, op) {
		return 0, 0, false
	}
	kind, known := kinds[d]
	operation, ok = operations[op]
	if !ok && d.IsInt() {
		switch op {
		case element.Min:
			operation, ok = C.MIN, true
		case element.Max:
			operation, ok = C.MAX, true
		}
	}
	return kind, operation, ok && known
}

// both calls do for matching parts of two buffers of the same type; recv may be empty.
func both(send, recv collective.Buffer, do func(send, recv []byte, n int) error) error {
	most := piece / send.DType.Size()
	for at := 0; at < send.Count(); at += most {
		to := min(at+most, send.Count())
		out := recv.Data
		if len(out) > 0 {
			out = recv.Part(at, to).Data
		}
		if err := do(send.Part(at, to).Data, out, to-at); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) allReduce(send, recv collective.Buffer, op element.ReduceOp) error {
	kind, operation, ok := e.library(send.DType, op)
	if !ok {
		if send.Count() == 0 {
			return nil
		}
		return e.reducer.AllReduce(send, recv, op)
	}
	err := both(send, recv, func(in, out []byte, n int) error {
		return e.do(allReduce, func(err *C.char) C.int {
			return C.drun_mpi_allreduce(e.group, pointer(in), pointer(out), C.int(n), kind, operation, err)
		})
	})
	if err == nil && op == element.Avg {
		reduction.Divide(recv, e.size)
	}
	return err
}

func (e *engine) reduce(send, recv collective.Buffer, op element.ReduceOp, root int) error {
	kind, operation, ok := e.library(send.DType, op)
	if e.rank != root {
		recv.Data = nil
	}
	if send.Count() == 0 {
		return nil
	}
	var err error
	if ok {
		err = both(send, recv, func(in, out []byte, n int) error {
			return e.do(reduce, func(err *C.char) C.int {
				return C.drun_mpi_reduce(e.group, pointer(in), pointer(out), C.int(n), kind, operation, C.int(root), err)
			})
		})
		if err == nil && op == element.Avg && e.rank == root {
			reduction.Divide(recv, e.size)
		}
	} else {
		err = e.reducer.Reduce(send, recv, op, root)
	}
	if err != nil || e.size == 1 {
		return err
	}
	return e.attend(root)
}

// mover is the engine as package ordered uses it; counts are in bytes.
type mover struct{ *engine }

func (m mover) AllGather(send, recv []byte) error { return m.allGather(send, recv, nil) }

func (m mover) AllGatherV(send, recv []byte, counts []int) error {
	return m.allGather(send, recv, counts)
}

func (m mover) GatherV(send, recv []byte, counts []int, root int) error {
	return m.gather(send, recv, counts, root)
}

func (m mover) AllToAllV(send []byte, sent []int, recv []byte, received []int) error {
	return m.allToAll(send, sent, recv, received)
}
