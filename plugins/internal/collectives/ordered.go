package collectives

import (
	"slices"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/dtype"
)

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
	sources := make([][]byte, r.Size)
	for i := range sources {
		sources[i] = parts[i*n : (i+1)*n]
	}
	reduction.Combine(out, sources, op)
}

// Contributions up to this total size are gathered on all ranks, which saves a round.
const gatherLimit = 64 << 10

// allInOrder is a reduce_scatter of even parts and an all_gather.
func (r *Runner) allInOrder(send, recv collective.Buffer, op dtype.ReduceOp) error {
	if n := len(send.Data); n*r.Size <= gatherLimit {
		all := r.Room(n * r.Size)
		if err := r.Library.AllGather(send.Data, all, nil); err != nil {
			return err
		}
		r.combine(recv, all, op)
		return nil
	}
	mine, sizes, err := r.part(send, op)
	if err != nil {
		return err
	}
	return r.Library.AllGather(mine.Data, recv.Data, sizes)
}

// rootInOrder is a reduce_scatter of even parts and a gather.
func (r *Runner) rootInOrder(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	mine, sizes, err := r.part(send, op)
	if err != nil {
		return err
	}
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
