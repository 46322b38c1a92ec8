package nccl

// #include "shim.h"
import "C"

import (
	"slices"

	"drun/collective"
	"drun/kernel/dtype"
	"drun/plugins/internal/collectives"
)

// chunks is the number of pieces of at most size bytes in n bytes.
func chunks(n, size int) int { return (n + size - 1) / size }

// chunk is the piece of that number; empty after the end.
func chunk(data []byte, size, number int) []byte {
	from := min(number*size, len(data))
	return data[from:min(from+size, len(data))]
}

// Barrier reduces a byte that nobody looks at. The methods after it see data that is not reduced as bytes.
func (e *engine) Barrier() error {
	return e.lane.run(1, func(r *round, _ int) { r.do(C.ALL_REDUCE, 0, 0, 1, C.ncclInt8, C.ncclSum, 0) })
}

// attend makes the root, in the last of n rounds, tell the others that it has arrived, since NCCL may take what they send
// before that.
func (e *engine) attend(r *round, i, n, root int) {
	if i == n-1 {
		r.do(C.BROADCAST, e.lane.room, e.lane.room, 1, C.ncclInt8, 0, root)
	}
}

func (e *engine) Broadcast(data []byte, root int) error {
	room := e.lane.room
	return e.lane.run(chunks(len(data), room), func(r *round, i int) {
		part := chunk(data, room, i)
		if e.Rank == root {
			r.copyIn(part, 0)
		}
		r.do(C.BROADCAST, 0, 0, len(part), C.ncclInt8, 0, root)
		if e.Rank != root {
			r.copyOut(part, 0)
		}
	})
}

// fit is how many bytes of each rank one round handles if a slot holds that many parts; whole elements of any type.
func (e *engine) fit(parts int) int { return e.lane.room / parts / 64 * 64 }

// part is a rank's part, if all parts are equal.
func (e *engine) part(data []byte, rank int) []byte {
	n := len(data) / e.Size
	return data[rank*n : (rank+1)*n]
}

func (e *engine) AllGather(send, recv []byte, sizes []int) error {
	if sizes != nil {
		return e.allGatherV(send, recv, sizes)
	}
	fit := e.fit(e.Size)
	return e.lane.run(chunks(len(send), fit), func(r *round, i int) {
		mine := chunk(send, fit, i)
		n := len(mine)
		r.copyIn(mine, e.Rank*n)
		r.do(C.ALL_GATHER, e.Rank*n, 0, n, C.ncclInt8, 0, 0)
		for rank := range e.Size {
			r.copyOut(chunk(e.part(recv, rank), fit, i), rank*n)
		}
	})
}

// allGatherV is a group of broadcasts, one from each rank.
func (e *engine) allGatherV(send, recv []byte, sizes []int) error {
	fit := e.fit(e.Size)
	parts := cut(recv, sizes)
	return e.lane.run(chunks(largest(sizes), fit), func(r *round, i int) {
		r.copyIn(chunk(send, fit, i), e.Rank*fit)
		for rank, part := range parts {
			if out := chunk(part, fit, i); len(out) > 0 {
				r.do(C.BROADCAST, rank*fit, rank*fit, len(out), C.ncclInt8, 0, rank)
				r.copyOut(out, rank*fit)
			}
		}
	})
}

func (e *engine) Gather(send, recv []byte, sizes []int, root int) error {
	if sizes == nil && !has("ncclGather") {
		sizes = slices.Repeat([]int{len(send)}, e.Size)
	}
	if sizes != nil {
		return e.gatherV(send, recv, sizes, root)
	}
	fit := e.fit(e.Size + 1)
	n := chunks(len(send), fit)
	return e.lane.run(n, func(r *round, i int) {
		mine := chunk(send, fit, i)
		r.copyIn(mine, 0)
		r.do(C.GATHER, 0, fit, len(mine), C.ncclInt8, 0, root)
		for rank := range e.Size {
			if e.Rank == root {
				r.copyOut(chunk(e.part(recv, rank), fit, i), fit+rank*len(mine))
			}
		}
		e.attend(r, i, n, root)
	})
}

func (e *engine) gatherV(send, recv []byte, sizes []int, root int) error {
	fit := e.fit(e.Size)
	var parts [][]byte
	if e.Rank == root {
		parts = cut(recv, sizes)
		copy(parts[root], send)
	}
	n := chunks(largest(sizes), fit)
	return e.lane.run(n, func(r *round, i int) {
		if mine := chunk(send, fit, i); e.Rank != root && len(mine) > 0 {
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

func (e *engine) Scatter(send, recv []byte, sizes []int, root int) error {
	if sizes == nil && !has("ncclScatter") {
		sizes = slices.Repeat([]int{len(recv)}, e.Size)
	}
	if sizes != nil {
		return e.scatterV(send, recv, sizes, root)
	}
	fit := e.fit(e.Size + 1)
	return e.lane.run(chunks(len(recv), fit), func(r *round, i int) {
		mine := chunk(recv, fit, i)
		for rank := range e.Size {
			if e.Rank == root {
				r.copyIn(chunk(e.part(send, rank), fit, i), fit+rank*len(mine))
			}
		}
		r.do(C.SCATTER, fit, 0, len(mine), C.ncclInt8, 0, root)
		r.copyOut(mine, 0)
	})
}

func (e *engine) scatterV(send, recv []byte, sizes []int, root int) error {
	fit := e.fit(e.Size)
	var parts [][]byte
	if e.Rank == root {
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
		if mine := chunk(recv, fit, i); e.Rank != root && len(mine) > 0 {
			r.do(C.RECV, 0, 0, len(mine), C.ncclInt8, 0, root)
			r.copyOut(mine, 0)
		}
		e.attend(r, i, n, root) // for a rank whose part is empty
	})
}

// AllToAll sends to and receives from all others in one group. Two ranks have as many rounds with each other as their
// larger part needs.
func (e *engine) AllToAll(send []byte, sent []int, recv []byte, received []int) error {
	fit := e.fit(2 * e.Size)
	half := e.Size * fit
	to, from := cut(send, sent), cut(recv, received)
	copy(from[e.Rank], to[e.Rank])
	to[e.Rank], from[e.Rank] = nil, nil
	longest := 0
	for rank := range e.Size {
		longest = max(longest, len(to[rank]), len(from[rank]))
	}
	return e.lane.run(chunks(longest, fit), func(r *round, i int) {
		for rank := range e.Size {
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

func cut(data []byte, sizes []int) [][]byte {
	parts := make([][]byte, len(sizes))
	for i, n := range sizes {
		parts[i], data = data[:n:n], data[n:]
	}
	return parts
}

// largest is the largest of some sizes; 0 of none.
func largest(sizes []int) int { return slices.Max(append([]int{0}, sizes...)) }

// Averages are sums: NCCL's own multiplies by the inverse.
var numbers = collectives.Numbers{
	Types: map[dtype.Type]int{
		dtype.Float32: C.ncclFloat32, dtype.Float64: C.ncclFloat64, dtype.Int64: C.ncclInt64,
		dtype.Int32: C.ncclInt32, dtype.Int8: C.ncclInt8, dtype.Uint8: C.ncclUint8,
		dtype.Complex64: C.ncclFloat32, // a pair of them, for sums
	},
	Operations: map[dtype.ReduceOp]int{dtype.Sum: C.ncclSum, dtype.Avg: C.ncclSum, dtype.Product: C.ncclProd, dtype.Min: C.ncclMin, dtype.Max: C.ncclMax},
}

// Reduces reports whether NCCL's results match the contract. It lacks bitwise operations, complex numbers and bool; its
// minimum and maximum of floats lose NaNs; it rounds float16 and bfloat16 at every step.
func (e *engine) Reduces(dt dtype.Type, op dtype.ReduceOp) bool {
	return numbers.Have(dt, op) && (dt.IsInt() || op != dtype.Min && op != dtype.Max) && (dt != dtype.Complex64 || op != dtype.Product)
}

// elements is how many of NCCL's elements are in that many bytes.
func elements(bytes int, dt dtype.Type) int {
	if dt == dtype.Complex64 {
		return bytes / 4
	}
	return bytes / dt.Size()
}

func (e *engine) AllReduce(send, recv collective.Buffer, op dtype.ReduceOp) error {
	t, o := numbers.Types[send.DType], numbers.Operations[op]
	rounds, room := chunks(len(send.Data), e.lane.room), e.lane.room
	reached := e.reaches(send.Data, recv.Data)
	if reached {
		rounds = 1
	}
	return e.lane.run(rounds, func(r *round, i int) {
		if reached {
			r.doInPlace(C.ALL_REDUCE, send.Data, recv.Data, elements(len(send.Data), send.DType), t, o)
			return
		}
		part := chunk(send.Data, room, i)
		r.copyIn(part, 0)
		r.do(C.ALL_REDUCE, 0, 0, elements(len(part), send.DType), t, o, 0)
		r.copyOut(chunk(recv.Data, room, i), 0)
	})
}

func (e *engine) Reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	room := e.lane.room
	n := chunks(len(send.Data), room)
	return e.lane.run(n, func(r *round, i int) {
		part := chunk(send.Data, room, i)
		r.copyIn(part, 0)
		r.do(C.REDUCE, 0, 0, elements(len(part), send.DType), numbers.Types[send.DType], numbers.Operations[op], root)
		if e.Rank == root {
			r.copyOut(chunk(recv.Data, room, i), 0)
		}
		e.attend(r, i, n, root)
	})
}

// reaches reports whether NCCL should access host memory directly.
func (e *engine) reaches(buffers ...[]byte) bool {
	if !e.options.ZeroCopy || e.device.addressesHost == 0 {
		return false
	}
	for _, b := range buffers {
		if !e.memory.ready(b) {
			return false
		}
	}
	return true
}

// ReduceScatter of parts of different sizes is a group of reduces, one to each rank.
func (e *engine) ReduceScatter(send, recv collective.Buffer, counts []int, op dtype.ReduceOp) error {
	t, o := numbers.Types[send.DType], numbers.Operations[op]
	sizes := collectives.Bytes(collective.Evenly(counts, send.Count(), e.Size), send)
	parts := cut(send.Data, sizes)
	fit := e.fit(e.Size)
	return e.lane.run(chunks(largest(sizes), fit), func(r *round, i int) {
		for rank, part := range parts {
			in := chunk(part, fit, i)
			switch at := rank * fit; {
			case counts == nil:
				r.copyIn(in, rank*len(in))
			case len(in) > 0:
				r.copyIn(in, at)
				r.do(C.REDUCE, at, at, elements(len(in), send.DType), t, o, rank)
			}
		}
		mine := chunk(recv.Data, fit, i)
		at := e.Rank * fit
		if counts == nil {
			at = e.Rank * len(mine)
			r.do(C.REDUCE_SCATTER, 0, at, elements(len(mine), send.DType), t, o, 0)
		}
		r.copyOut(mine, at)
	})
}
