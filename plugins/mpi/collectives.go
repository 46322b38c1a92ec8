//go:build mpi

package mpi

// #include "shim.h"
import "C"

import (
	"errors"
	"math"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/plugins/internal/collectives"
)

// Barrier and the methods after it see data that is not reduced as bytes.
func (e *engine) Barrier() error {
	return e.do(barrier, func(err *C.char) C.int { return C.drun_mpi_barrier(e.group, err) })
}

func (e *engine) Broadcast(data []byte, root int) error {
	return pieces(data, func(part []byte) error {
		return e.do(bcast, func(err *C.char) C.int {
			return C.drun_mpi_bcast(e.group, pointer(part), C.int(len(part)), C.int(root), err)
		})
	})
}

// attend makes the root tell the others that it has arrived, since MPI may take what they send before that.
func (e *engine) attend(root int) error {
	var here [1]byte
	return e.Broadcast(here[:], root)
}

// layout returns, for MPI, the sizes and offsets of the ranks' parts, which lie one after the other; nil for nil. own is
// what this rank has.
func layout(sizes []int, own []byte) (counts, at *C.int, err error) {
	if len(own) > math.MaxInt32 {
		return nil, nil, errLarge
	}
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
var errLarge = errors.New("parts of more than 2 GiB together are more than MPI counts in one call: gather them in several")

func (e *engine) AllGather(send, recv []byte, sizes []int) error {
	counts, at, err := layout(sizes, send)
	if err != nil {
		return err
	}
	return e.do(allGather, func(err *C.char) C.int {
		return C.drun_mpi_allgather(e.group, pointer(send), C.int(len(send)), pointer(recv), counts, at, err)
	})
}

func (e *engine) Gather(send, recv []byte, sizes []int, root int) (err error) {
	defer try.Caught(&err)
	counts, at := try.To2(layout(sizes, send))
	try.Ok(e.do(gather, func(err *C.char) C.int {
		return C.drun_mpi_gather(e.group, pointer(send), C.int(len(send)), pointer(recv), counts, at, C.int(root), err)
	}))
	return e.attend(root)
}

func (e *engine) Scatter(send, recv []byte, sizes []int, root int) (err error) {
	defer try.Caught(&err)
	counts, at := try.To2(layout(sizes, recv))
	try.Ok(e.do(scatter, func(err *C.char) C.int {
		return C.drun_mpi_scatter(e.group, pointer(send), counts, at, pointer(recv), C.int(len(recv)), C.int(root), err)
	}))
	return e.attend(root) // for a rank whose part is empty
}

func (e *engine) AllToAll(send []byte, sent []int, recv []byte, received []int) (err error) {
	defer try.Caught(&err)
	counts, from := try.To2(layout(sent, nil))
	others, at := try.To2(layout(received, nil))
	return e.do(allToAll, func(err *C.char) C.int {
		return C.drun_mpi_alltoall(e.group, pointer(send), counts, from, pointer(recv), others, at, err)
	})
}

// numbers has the types and operations that MPI reduces. For others drun has its own rules: half precision is rounded
// once, bool is not a number, and 8-bit sums wrap around, where Open MPI's saturate on some processors.
var numbers = collectives.Numbers{
	Types:      map[dtype.Type]int{dtype.Float32: C.F32, dtype.Float64: C.F64, dtype.Int64: C.I64, dtype.Int32: C.I32},
	Operations: map[dtype.ReduceOp]int{dtype.Sum: C.SUM, dtype.Avg: C.SUM, dtype.Product: C.PRODUCT, dtype.Min: C.MIN, dtype.Max: C.MAX},
}

// Reduces reports whether MPI reduces. It does not take the minimum or maximum of floats: drun propagates NaN, and MPI
// does so only by chance.
func (e *engine) Reduces(d dtype.Type, op dtype.ReduceOp) bool {
	return numbers.Have(d, op) && (d.IsInt() || op != dtype.Min && op != dtype.Max)
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

func (e *engine) AllReduce(send, recv collective.Buffer, op dtype.ReduceOp) error {
	return both(send, recv, func(in, out []byte, n int) error {
		return e.do(allReduce, func(err *C.char) C.int {
			return C.drun_mpi_allreduce(e.group, pointer(in), pointer(out), C.int(n), C.int(numbers.Types[send.DType]), C.int(numbers.Operations[op]), err)
		})
	})
}

func (e *engine) Reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	err := both(send, recv, func(in, out []byte, n int) error {
		return e.do(reduce, func(err *C.char) C.int {
			return C.drun_mpi_reduce(e.group, pointer(in), pointer(out), C.int(n), C.int(numbers.Types[send.DType]), C.int(numbers.Operations[op]), C.int(root), err)
		})
	})
	if err != nil || e.Size == 1 {
		return err
	}
	return e.attend(root)
}
