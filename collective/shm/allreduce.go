package shm

import (
	"drun/collective"
	"drun/collective/reduction"
)

// eager is the size in bytes up to which every rank reduces everything itself: one round, at the price of reading all
// contributions on every rank.
const eager = 4 << 10

// allReduce is all_reduce, and reduce, where only the root keeps the result.
//
// Small: every rank publishes its contribution, one round, and reduces all of them: size*bytes read per rank.
//
// Large: the data is cut into chunks and each chunk into one slice per rank. In step i a rank publishes the other
// ranks' slices of chunk i, reduces its own slice of chunk i-1 from what the others published in the step before, and
// publishes the result; after the round it fetches the other slices of chunk i-1. A rank moves bytes*(size-1)/size in,
// as much out, and reads bytes to reduce; there is one round per chunk, and one more.
func (r *run) allReduce() error {
	send, recv := r.call.Send, r.call.Recv
	keep := r.call.Kind == collective.AllReduce || r.rank == r.call.Root
	if len(send.Data) <= eager {
		n := len(send.Data)
		r.begin()
		copy(r.outbox(r.rank, n), send.Data)
		if err := r.arrive(); err != nil || !keep {
			return err
		}
		for i := range r.sources {
			r.sources[i] = r.outbox(i, n)
		}
		r.reducer.Combine(collective.Buffer{DType: send.DType, Data: recv.Data[:n]}, r.sources, r.call.Reduce)
		return nil
	}
	offset := r.arenaOffset()
	count, size := send.Count(), send.DType.Size()
	chunk := chunkBytes(r.size) / size
	chunks := (count + chunk - 1) / chunk
	part := func(b collective.Buffer, i int) collective.Buffer { return b.Part(i*chunk, min((i+1)*chunk, count)) }
	for step := 0; step <= chunks; step++ {
		r.begin().arena = offset
		if step < chunks && offset == 0 {
			r.publishSlices(part(send, step))
		}
		var reduced []byte
		if step > 0 {
			reduced = r.reduceSlice(part(send, step-1))
		}
		if err := r.arrive(); err != nil {
			return err
		}
		if step > 0 && keep {
			r.collectSlices(part(recv, step-1), reduced)
		}
		if step == 0 {
			switch some, all := r.inArena(); {
			case all:
				return r.allReduceInArena()
			case some: // and they have published nothing: once more, all alike
				offset, step = 0, -1
			}
		}
	}
	return nil
}

// chunkBytes is how much of a large call one step handles: 64 KiB per slice, so that what a rank touches in a step
// stays in its second-level cache, but more for few ranks, since every step needs all of them on a core at once.
func chunkBytes(ranks int) int { return min(stageSize, max(256<<10, ranks<<16)) }

// publishSlices publishes all of a chunk but this rank's own slice.
func (r *run) publishSlices(chunk collective.Buffer) {
	elem := chunk.DType.Size()
	from, to := reduction.Share(chunk.Count(), elem, r.rank, r.size)
	stage := r.stage(r.rank)
	copy(stage, chunk.Data[:from*elem])
	copy(stage[to*elem:], chunk.Data[to*elem:])
}

// reduceSlice reduces this rank's slice of the chunk that was published in the round before, and publishes the result.
func (r *run) reduceSlice(chunk collective.Buffer) []byte {
	elem := chunk.DType.Size()
	from, to := reduction.Share(chunk.Count(), elem, r.rank, r.size)
	out := r.result(r.rank)[:(to-from)*elem]
	r.round-- // the stages of the round before
	for i := range r.sources {
		if i == r.rank {
			r.sources[i] = chunk.Data[from*elem : to*elem]
		} else {
			r.sources[i] = r.stage(i)[from*elem : to*elem]
		}
	}
	r.round++
	r.reducer.Combine(collective.Buffer{DType: chunk.DType, Data: out}, r.sources, r.call.Reduce)
	return out
}

// collectSlices lays the reduced slices of all ranks into chunk.
func (r *run) collectSlices(chunk collective.Buffer, own []byte) {
	elem := chunk.DType.Size()
	for i := range r.size {
		from, to := reduction.Share(chunk.Count(), elem, i, r.size)
		src := own
		if i != r.rank {
			src = r.result(i)
		}
		copy(chunk.Data[from*elem:to*elem], src)
	}
}
