package nccl

// #include "shim.h"
import "C"

import (
	"drun/collective"
	"drun/kernel/dtype"
	"drun/plugins/internal/collectives"
)

var types = map[dtype.Type]C.int{
	dtype.Float32: C.ncclFloat32, dtype.Float64: C.ncclFloat64, dtype.Int64: C.ncclInt64,
	dtype.Int32: C.ncclInt32, dtype.Int8: C.ncclInt8, dtype.Uint8: C.ncclUint8,
	dtype.Complex64: C.ncclFloat32, // a pair of them, for sums
}

// Reduces reports whether NCCL's results match the contract. It lacks
// bitwise operations, complex numbers and bool; its minimum and maximum of
// floats lose NaNs; it rounds float16 and bfloat16 at every step.
func (e *engine) Reduces(dt dtype.Type, op dtype.ReduceOp) bool {
	_, typed := types[dt]
	_, known := operations[op]
	if op == dtype.Min || op == dtype.Max {
		return typed && dt.IsInt()
	}
	return typed && known && (dt != dtype.Complex64 || op != dtype.Product)
}

// NCCL's average multiplies by the inverse, so it is asked for the sum instead.
var operations = map[dtype.ReduceOp]C.int{dtype.Sum: C.ncclSum, dtype.Avg: C.ncclSum, dtype.Product: C.ncclProd, dtype.Min: C.ncclMin, dtype.Max: C.ncclMax}

// elements is how many of NCCL's elements are in so many bytes.
func elements(bytes int, dt dtype.Type) int {
	if dt == dtype.Complex64 {
		return bytes / 4
	}
	return bytes / dt.Size()
}

func (e *engine) AllReduce(send, recv collective.Buffer, op dtype.ReduceOp) error {
	t, o := types[send.DType], operations[op]
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
		r.do(C.REDUCE, 0, 0, elements(len(part), send.DType), types[send.DType], operations[op], root)
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

// ReduceScatter of parts of different sizes is a group of reduces, one to each
// rank.
func (e *engine) ReduceScatter(send, recv collective.Buffer, counts []int, op dtype.ReduceOp) error {
	t, o := types[send.DType], operations[op]
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
