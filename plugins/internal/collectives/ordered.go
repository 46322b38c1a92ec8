// Package ordered reduces in rank order over engines that move bytes: each
// rank gathers the contributions to its part and combines them, so that the
// result has the bits of the shm backend. The plugins for Gloo, MPI and NCCL
// use it for what their library cannot reduce, and when a run asks for determinism.
package ordered

import (
	"unsafe"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/element"
)

// A Mover is a rank's end of a group. Counts are in bytes.
type Mover interface {
	AllGather(send, recv []byte) error
	AllGatherV(send, recv []byte, counts []int) error
	GatherV(send, recv []byte, counts []int, root int) error
	AllToAllV(send []byte, sent []int, recv []byte, received []int) error
}

// A Reducer reduces for one rank of a group.
type Reducer struct {
	Mover      Mover
	Rank, Size int
	scratch    []byte
}

// Room returns n bytes of scratch memory, aligned for any element, valid until the next method call.
func (r *Reducer) Room(n int) []byte {
	if cap(r.scratch) < n {
		words := make([]uint64, (n+7)/8)
		r.scratch = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	}
	return r.scratch[:n]
}

// Bytes converts counts of elements of b's type to counts of bytes.
func Bytes(counts []int, b collective.Buffer) []int {
	sizes := make([]int, len(counts))
	for i, n := range counts {
		sizes[i] = n * b.DType.Size()
	}
	return sizes
}

// ReduceScatter sends all parts but its own once, as any reduce_scatter must.
func (r *Reducer) ReduceScatter(send, recv collective.Buffer, counts []int, op element.ReduceOp) error {
	sizes := Bytes(collective.Evenly(counts, send.Count(), r.Size), send)
	parts := r.Room(r.Size * sizes[r.Rank])
	if err := r.exchange(send, sizes, parts); err != nil {
		return err
	}
	r.combine(recv, parts, op)
	return nil
}

// exchange sends every rank its part of send, and gathers the ranks' parts for this one, one after the other.
func (r *Reducer) exchange(send collective.Buffer, sizes []int, parts []byte) error {
	received := make([]int, r.Size)
	for i := range received {
		received[i] = sizes[r.Rank]
	}
	return r.Mover.AllToAllV(send.Data, sizes, parts, received)
}

func (r *Reducer) combine(out collective.Buffer, parts []byte, op element.ReduceOp) {
	n := len(out.Data)
	sources := make([][]byte, r.Size)
	for i := range sources {
		sources[i] = parts[i*n : (i+1)*n]
	}
	reduction.Combine(out, sources, op)
}

// Contributions up to this total size are gathered on all ranks, which saves a round.
const gatherLimit = 64 << 10

// AllReduce is a reduce_scatter of even parts and an all_gather.
func (r *Reducer) AllReduce(send, recv collective.Buffer, op element.ReduceOp) error {
	if n := len(send.Data); n*r.Size <= gatherLimit {
		all := r.Room(n * r.Size)
		if err := r.Mover.AllGather(send.Data, all); err != nil {
			return err
		}
		r.combine(recv, all, op)
		return nil
	}
	mine, sizes, err := r.part(send, op)
	if err != nil {
		return err
	}
	return r.Mover.AllGatherV(mine.Data, recv.Data, sizes)
}

// Reduce is a reduce_scatter of even parts and a gather.
func (r *Reducer) Reduce(send, recv collective.Buffer, op element.ReduceOp, root int) error {
	mine, sizes, err := r.part(send, op)
	if err != nil {
		return err
	}
	return r.Mover.GatherV(mine.Data, recv.Data, sizes, root)
}

// part reduces this rank's part of the ranks' equally large buffers, and returns the size in bytes of each rank's part.
func (r *Reducer) part(send collective.Buffer, op element.ReduceOp) (mine collective.Buffer, sizes []int, err error) {
	elem := send.DType.Size()
	for rank := range r.Size {
		from, to := cut(send.Count(), elem, rank, r.Size)
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

// cut returns where rank's part of count elements begins and ends; parts begin on cache lines.
func cut(count, elem, rank, ranks int) (from, to int) {
	line := max(1, 64/elem)
	per := (count + ranks - 1) / ranks
	per = (per + line - 1) / line * line
	return min(rank*per, count), min((rank+1)*per, count)
}
