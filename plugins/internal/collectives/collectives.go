// Package collectives carries out the contract's collectives with a library that moves bytes and reduces some types. What
// the library cannot reduce, and everything in a deterministic run, is reduced in rank order (ordered.go), with the bits
// of the shm backend. The plugins for Gloo, MPI and NCCL use it.
package collectives

import (
	"fmt"
	"unsafe"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/dtype"
)

// A Library is a rank's end of a group. Sizes are those of the ranks' parts, in bytes; nil: all parts are equal. It is
// not asked to move equal parts that are empty, nor to reduce nothing.
type Library interface {
	Barrier() error
	Broadcast(data []byte, root int) error
	AllGather(send, recv []byte, sizes []int) error
	Gather(send, recv []byte, sizes []int, root int) error
	Scatter(send, recv []byte, sizes []int, root int) error
	AllToAll(send []byte, sent []int, recv []byte, received []int) error

	// Reduces reports whether the library's results are those of the contract. Averages are its sums, divided
	// afterwards; of float16 and bfloat16, sums in float32, rounded once.
	Reduces(dt dtype.Type, op dtype.ReduceOp) bool
	AllReduce(send, recv collective.Buffer, op dtype.ReduceOp) error
	// Reduce may find no memory in recv on ranks other than the root.
	Reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error
}

// A ReduceScatterer is a Library that has this function too.
type ReduceScatterer interface {
	ReduceScatter(send, recv collective.Buffer, counts []int, op dtype.ReduceOp) error
}

// A Runner carries out collectives for one rank of a group.
type Runner struct {
	Library     Library
	Rank, Size  int
	InRankOrder bool // whatever the library reduces: the run is deterministic
	scratch     []byte
}

// Do carries out a collective.
func (r *Runner) Do(call *collective.Call) error {
	send, recv := call.Send, call.Recv
	switch call.Kind {
	case collective.Barrier:
		return r.Library.Barrier()
	case collective.AllReduce:
		return r.allReduce(send, recv, call.Reduce)
	case collective.Reduce:
		return r.reduce(send, recv, call.Reduce, call.Root)
	case collective.ReduceScatter:
		return r.reduceScatter(send, recv, call.Counts, call.Reduce)
	case collective.Broadcast:
		data := recv.Data
		if r.Rank == call.Root {
			data = send.Data
		}
		if len(data) == 0 {
			return nil
		}
		return r.Library.Broadcast(data, call.Root)
	case collective.AllGather:
		if len(recv.Data) == 0 {
			return nil
		}
		return r.Library.AllGather(send.Data, recv.Data, Bytes(call.Counts, send))
	case collective.Gather:
		if call.Counts == nil && len(send.Data) == 0 {
			return nil
		}
		return r.Library.Gather(send.Data, recv.Data, Bytes(call.Counts, send), call.Root)
	case collective.Scatter:
		if call.Counts == nil && len(recv.Data) == 0 {
			return nil
		}
		return r.Library.Scatter(send.Data, recv.Data, Bytes(call.Counts, recv), call.Root)
	case collective.AllToAll:
		if call.Counts != nil || call.RecvCounts != nil {
			return r.Library.AllToAll(send.Data, Bytes(collective.Evenly(call.Counts, send.Count(), r.Size), send),
				recv.Data, Bytes(collective.Evenly(call.RecvCounts, recv.Count(), r.Size), recv))
		}
		if len(send.Data) == 0 {
			return nil
		}
		return r.Library.AllToAll(send.Data, nil, recv.Data, nil)
	}
	return fmt.Errorf("unknown operation %v", call.Kind)
}

// Bytes converts counts of elements of b's type to counts of bytes; nil stays nil.
func Bytes(counts []int, b collective.Buffer) []int {
	if counts == nil {
		return nil
	}
	sizes := make([]int, len(counts))
	for i, n := range counts {
		sizes[i] = n * b.DType.Size()
	}
	return sizes
}

// Room returns n bytes of scratch memory, aligned for any element, valid until the next method call.
func (r *Runner) Room(n int) []byte {
	if cap(r.scratch) < n {
		words := make([]uint64, (n+7)/8)
		r.scratch = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	}
	return r.scratch[:n]
}

// native reports whether the library reduces.
func (r *Runner) native(dt dtype.Type, op dtype.ReduceOp) bool {
	return !r.InRankOrder && !reduction.Exact(dt, op) && r.Library.Reduces(dt, op)
}

// divided turns the library's sum into an average.
func (r *Runner) divided(b collective.Buffer, op dtype.ReduceOp, err error) error {
	if err == nil && op == dtype.Avg {
		reduction.Divide(b, r.Size)
	}
	return err
}

func (r *Runner) allReduce(send, recv collective.Buffer, op dtype.ReduceOp) error {
	switch {
	case len(send.Data) == 0:
		return nil
	case !r.native(send.DType, op):
		return r.allInOrder(send, recv, op)
	case reduction.Half(send.DType):
		wide := collective.Buffer{DType: dtype.Float32, Data: r.Room(4 * send.Count())}
		reduction.Convert(wide, send)
		if err := r.allReduce(wide, wide, op); err != nil {
			return err
		}
		reduction.Convert(recv, wide)
		return nil
	}
	return r.divided(recv, op, r.Library.AllReduce(send, recv, reduction.Step(op)))
}

func (r *Runner) reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	if r.Rank != root {
		recv.Data = nil
	}
	switch n := send.Count(); {
	case n == 0:
		return nil
	case !r.native(send.DType, op):
		return r.rootInOrder(send, recv, op, root)
	case reduction.Half(send.DType):
		both := r.Room(8 * n)
		in, out := collective.Buffer{DType: dtype.Float32, Data: both[:4*n]}, collective.Buffer{DType: dtype.Float32, Data: both[4*n:]}
		reduction.Convert(in, send)
		err := r.divided(out, op, r.Library.Reduce(in, out, reduction.Step(op), root))
		if err == nil && r.Rank == root {
			reduction.Convert(recv, out)
		}
		return err
	}
	return r.divided(recv, op, r.Library.Reduce(send, recv, reduction.Step(op), root))
}

func (r *Runner) reduceScatter(send, recv collective.Buffer, counts []int, op dtype.ReduceOp) error {
	library, ok := r.Library.(ReduceScatterer)
	if !ok || !r.native(send.DType, op) {
		return r.scatterInOrder(send, recv, counts, op)
	}
	return r.divided(recv, op, library.ReduceScatter(send, recv, counts, reduction.Step(op)))
}
