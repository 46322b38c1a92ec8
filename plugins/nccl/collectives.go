package nccl

// #include "shim.h"
import "C"

import (
	"fmt"

	"drun/collective"
	"drun/plugins/internal/ordered"
)

// chunks is the number of pieces of at most size bytes in n bytes.
func chunks(n, size int) int { return (n + size - 1) / size }

// chunk is the piece of that number; empty after the end.
func chunk(data []byte, size, number int) []byte {
	from := min(number*size, len(data))
	return data[from:min(from+size, len(data))]
}

// Do carries out a collective. NCCL sees data that is not reduced as bytes.
func (e *engine) Do(call *collective.Call) error {
	send, recv := call.Send, call.Recv
	switch call.Kind {
	case collective.Barrier:
		return e.barrier()
	case collective.AllReduce:
		return e.allReduce(send, recv, call.Reduce)
	case collective.Reduce:
		return e.reduce(send, recv, call.Reduce, call.Root)
	case collective.ReduceScatter:
		return e.reduceScatter(send, recv, call.Counts, call.Reduce)
	case collective.Broadcast:
		if e.rank == call.Root {
			return e.broadcast(send.Data, nil, call.Root)
		}
		return e.broadcast(nil, recv.Data, call.Root)
	case collective.AllGather:
		if call.Counts == nil {
			return e.allGather(send.Data, recv.Data)
		}
		return e.allGatherV(send.Data, recv.Data, ordered.Bytes(call.Counts, send))
	case collective.Gather:
		if call.Counts == nil {
			return e.gather(send.Data, recv.Data, call.Root)
		}
		return e.gatherV(send.Data, recv.Data, ordered.Bytes(call.Counts, send), call.Root)
	case collective.Scatter:
		if call.Counts == nil {
			return e.scatter(send.Data, recv.Data, call.Root)
		}
		return e.scatterV(send.Data, recv.Data, ordered.Bytes(call.Counts, recv), call.Root)
	case collective.AllToAll:
		if call.Counts == nil && call.RecvCounts == nil {
			return e.allToAll(send.Data, recv.Data)
		}
		return e.allToAllV(send.Data, ordered.Bytes(collective.Evenly(call.Counts, send.Count(), e.size), send),
			recv.Data, ordered.Bytes(collective.Evenly(call.RecvCounts, recv.Count(), e.size), recv))
	}
	return fmt.Errorf("unknown operation %v", call.Kind)
}

// barrier reduces a byte that nobody looks at.
func (e *engine) barrier() error {
	return e.lane.run(1, func(r *round, _ int) { r.do(C.ALL_REDUCE, 0, 0, 1, C.ncclInt8, C.ncclSum, 0) })
}

// attend makes the root, in the last of n rounds, tell the others that it has arrived, since what they send may be
// taken before that.
func (e *engine) attend(r *round, i, n, root int) {
	if i == n-1 {
		r.do(C.BROADCAST, e.lane.room, e.lane.room, 1, C.ncclInt8, 0, root)
	}
}

func (e *engine) broadcast(send, recv []byte, root int) error {
	room := e.lane.room
	return e.lane.run(chunks(len(send)+len(recv), room), func(r *round, i int) {
		in, out := chunk(send, room, i), chunk(recv, room, i)
		r.copyIn(in, 0)
		r.do(C.BROADCAST, 0, 0, len(in)+len(out), C.ncclInt8, 0, root)
		r.copyOut(out, 0)
	})
}

// fit is how many bytes of each rank one round handles if a slot holds that many parts; whole elements of any type.
func (e *engine) fit(parts int) int { return e.lane.room / parts / 64 * 64 }

// part is a rank's part, if all parts are equal.
func (e *engine) part(data []byte, rank int) []byte {
	n := len(data) / e.size
	return data[rank*n : (rank+1)*n]
}

func (e *engine) allGather(send, recv []byte) error {
	fit := e.fit(e.size)
	return e.lane.run(chunks(len(send), fit), func(r *round, i int) {
		mine := chunk(send, fit, i)
		n := len(mine)
		r.copyIn(mine, e.rank*n)
		r.do(C.ALL_GATHER, e.rank*n, 0, n, C.ncclInt8, 0, 0)
		for rank := range e.size {
			r.copyOut(chunk(e.part(recv, rank), fit, i), rank*n)
		}
	})
}

// allGatherV is a group of broadcasts, one from each rank.
func (e *engine) allGatherV(send, recv []byte, sizes []int) error {
	fit := e.fit(e.size)
	parts := cut(recv, sizes)
	return e.lane.run(chunks(largest(sizes), fit), func(r *round, i int) {
		r.copyIn(chunk(send, fit, i), e.rank*fit)
		for rank, part := range parts {
			if out := chunk(part, fit, i); len(out) > 0 {
				r.do(C.BROADCAST, rank*fit, rank*fit, len(out), C.ncclInt8, 0, rank)
				r.copyOut(out, rank*fit)
			}
		}
	})
}

func (e *engine) gather(send, recv []byte, root int) error {
	if !has("ncclGather") {
		return e.gatherV(send, recv, even(len(send), e.size), root)
	}
	fit := e.fit(e.size + 1)
	n := chunks(len(send), fit)
	return e.lane.run(n, func(r *round, i int) {
		mine := chunk(send, fit, i)
		r.copyIn(mine, 0)
		r.do(C.GATHER, 0, fit, len(mine), C.ncclInt8, 0, root)
		for rank := range e.size {
			if e.rank == root {
				r.copyOut(chunk(e.part(recv, rank), fit, i), fit+rank*len(mine))
			}
		}
		e.attend(r, i, n, root)
	})
}

func (e *engine) gatherV(send, recv []byte, sizes []int, root int) error {
	fit := e.fit(e.size)
	var parts [][]byte
	if e.rank == root {
		parts = cut(recv, sizes)
		copy(parts[root], send)
	}
	n := chunks(largest(sizes), fit)
	return e.lane.run(n, func(r *round, i int) {
		if mine := chunk(send, fit, i); e.rank != root && len(mine) > 0 {
			r.copyIn(mine, 0)
			r.do(C.SEND, 0, 0, len(mine), C.ncclInt8, 0, root)
		}
		for rank, part := range parts {
			if out := chunk(part, fit, i); rank != root && len(out) > 0 {
				r.do(C.RECV, 0, rank*fit, len(out), C.ncclInt8, 0, rank)
				r.copyOut(out, rank*fit)
			}
		}
		e.attend(r, i, n, root)
	})
}

func (e *engine) scatter(send, recv []byte, root int) error {
	if !has("ncclScatter") {
		return e.scatterV(send, recv, even(len(recv), e.size), root)
	}
	fit := e.fit(e.size + 1)
	return e.lane.run(chunks(len(recv), fit), func(r *round, i int) {
		mine := chunk(recv, fit, i)
		for rank := range e.size {
			if e.rank == root {
				r.copyIn(chunk(e.part(send, rank), fit, i), fit+rank*len(mine))
			}
		}
		r.do(C.SCATTER, fit, 0, len(mine), C.ncclInt8, 0, root)
		r.copyOut(mine, 0)
	})
}

func (e *engine) scatterV(send, recv []byte, sizes []int, root int) error {
	fit := e.fit(e.size)
	var parts [][]byte
	if e.rank == root {
		parts = cut(send, sizes)
		copy(recv, parts[root])
	}
	n := chunks(largest(sizes), fit)
	return e.lane.run(n, func(r *round, i int) {
		for rank, part := range parts {
			if in := chunk(part, fit, i); rank != root && len(in) > 0 {
				r.copyIn(in, rank*fit)
				r.do(C.SEND, rank*fit, 0, len(in), C.ncclInt8, 0, rank)
			}
		}
		if mine := chunk(recv, fit, i); e.rank != root && len(mine) > 0 {
			r.do(C.RECV, 0, 0, len(mine), C.ncclInt8, 0, root)
			r.copyOut(mine, 0)
		}
		e.attend(r, i, n, root) // for a rank whose part is empty
	})
}

func (e *engine) allToAll(send, recv []byte) error {
	if !has("ncclAlltoAll") {
		sizes := even(len(send)/e.size, e.size)
		return e.allToAllV(send, sizes, recv, sizes)
	}
	fit := e.fit(2 * e.size)
	half := e.size * fit
	return e.lane.run(chunks(len(send)/e.size, fit), func(r *round, i int) {
		n := len(chunk(e.part(send, 0), fit, i))
		for rank := range e.size {
			r.copyIn(chunk(e.part(send, rank), fit, i), rank*n)
			r.copyOut(chunk(e.part(recv, rank), fit, i), half+rank*n)
		}
		r.do(C.ALL_TO_ALL, 0, half, n, C.ncclInt8, 0, 0)
	})
}

// allToAllV sends to and receives from all others in one group. Two ranks have
// as many rounds with each other as their larger part needs.
func (e *engine) allToAllV(send []byte, sent []int, recv []byte, received []int) error {
	fit := e.fit(2 * e.size)
	half := e.size * fit
	to, from := cut(send, sent), cut(recv, received)
	copy(from[e.rank], to[e.rank])
	to[e.rank], from[e.rank] = nil, nil
	longest := 0
	for rank := range e.size {
		longest = max(longest, len(to[rank]), len(from[rank]))
	}
	return e.lane.run(chunks(longest, fit), func(r *round, i int) {
		for rank := range e.size {
			if in := chunk(to[rank], fit, i); len(in) > 0 {
				r.copyIn(in, rank*fit)
				r.do(C.SEND, rank*fit, 0, len(in), C.ncclInt8, 0, rank)
			}
			if out := chunk(from[rank], fit, i); len(out) > 0 {
				r.do(C.RECV, 0, half+rank*fit, len(out), C.ncclInt8, 0, rank)
				r.copyOut(out, half+rank*fit)
			}
		}
	})
}

// cut cuts data into consecutive parts.
func cut(data []byte, sizes []int) [][]byte {
	parts := make([][]byte, len(sizes))
	for i, n := range sizes {
		parts[i], data = data[:n:n], data[n:]
	}
	return parts
}

func even(n, ranks int) []int {
	sizes := make([]int, ranks)
	for i := range sizes {
		sizes[i] = n
	}
	return sizes
}

func largest(sizes []int) int {
	most := 0
	for _, n := range sizes {
		most = max(most, n)
	}
	return most
}
