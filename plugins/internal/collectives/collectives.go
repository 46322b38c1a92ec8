// Package collectives carries out the contract's collectives with a library that moves bytes and reduces some types. What
// the library cannot reduce, and everything in a deterministic run, is reduced in rank order, with the bits of the shm
// backend. The plugins for Gloo, MPI and NCCL use it.
package collectives

import (
	"fmt"
	"slices"
	"unsafe"

	"drun/collective"
	"drun/collective/reduction"
	"drun/internal/each"
	"drun/internal/try"
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
	AllToAll(send []byte, sent []int, recv []byte, received []int) error // sizes are given

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

// Numbers are a library's own numbers of the types and operations that it reduces.
type Numbers struct {
	Types      map[dtype.Type]int
	Operations map[dtype.ReduceOp]int
}

// Have reports whether the library has both.
func (n *Numbers) Have(dt dtype.Type, op dtype.ReduceOp) bool {
	_, typed := n.Types[dt]
	_, known := n.Operations[op]
	return typed && known
}

// A Runner carries out collectives for one rank of a group.
type Runner struct {
	Library     Library
	Rank, Size  int
	InRankOrder bool // whatever the library reduces: the run is deterministic
	scratch     []byte
}

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
		return r.Library.AllToAll(send.Data, Bytes(call.Counts, send), recv.Data, Bytes(call.RecvCounts, recv))
	}
	return fmt.Errorf("unknown operation %v", call.Kind)
}

// Bytes converts counts of elements of b's type to counts of bytes; nil stays nil.
func Bytes(counts []int, b collective.Buffer) []int {
	if counts == nil {
		return nil
	}
	return each.Of(counts, func(n int) int { return n * b.DType.Size() })
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

// What follows reduces in rank order: each rank gathers the contributions to its part and combines them.

// scatterInOrder sends all parts but its own once, as any reduce_scatter must.
func (r *Runner) scatterInOrder(send, recv collective.Buffer, counts []int, op dtype.ReduceOp) error {
	sizes := Bytes(collective.Evenly(counts, send.Count(), r.Size), send)
	parts := r.Room(r.Size * sizes[r.Rank])
	if err := r.exchange(send, sizes, parts); err != nil {
		return err
	}
	r.combine(recv, parts, op)
	return nil
}

// exchange sends every rank its part of send, and gathers the ranks' parts for this one, one after the other.
func (r *Runner) exchange(send collective.Buffer, sizes []int, parts []byte) error {
	return r.Library.AllToAll(send.Data, sizes, parts, slices.Repeat(sizes[r.Rank:][:1], r.Size))
}

func (r *Runner) combine(out collective.Buffer, parts []byte, op dtype.ReduceOp) {
	n := len(out.Data)
	sources := each.UpTo(r.Size, func(i int) []byte { return parts[i*n : (i+1)*n] })
	reduction.Combine(out, sources, op)
}

// Contributions up to this total size are gathered on all ranks, which saves a round.
const gatherLimit = 64 << 10

// allInOrder is a reduce_scatter of even parts and an all_gather.
func (r *Runner) allInOrder(send, recv collective.Buffer, op dtype.ReduceOp) (err error) {
	defer try.Caught(&err)
	if n := len(send.Data); n*r.Size <= gatherLimit {
		all := r.Room(n * r.Size)
		try.Ok(r.Library.AllGather(send.Data, all, nil))
		r.combine(recv, all, op)
		return nil
	}
	mine, sizes := try.To2(r.part(send, op))
	return r.Library.AllGather(mine.Data, recv.Data, sizes)
}

// rootInOrder is a reduce_scatter of even parts and a gather.
func (r *Runner) rootInOrder(send, recv collective.Buffer, op dtype.ReduceOp, root int) (err error) {
	defer try.Caught(&err)
	mine, sizes := try.To2(r.part(send, op))
	return r.Library.Gather(mine.Data, recv.Data, sizes, root)
}

// part reduces this rank's part of the ranks' equally large buffers, and returns the size in bytes of each rank's part.
func (r *Runner) part(send collective.Buffer, op dtype.ReduceOp) (mine collective.Buffer, sizes []int, err error) {
	elem := send.DType.Size()
	for rank := range r.Size {
		from, to := reduction.Share(send.Count(), elem, rank, r.Size)
		sizes = append(sizes, (to-from)*elem)
	}
	n := sizes[r.Rank]
	room := r.Room((r.Size + 1) * n)
	mine = collective.Buffer{DType: send.DType, Data: room[:n]}
	parts := room[n:]
	if err := r.exchange(send, sizes, parts); err != nil {
		return mine, nil, err
	}
	r.combine(mine, parts, op)
	return mine, sizes, nil
}
