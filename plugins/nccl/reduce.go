package nccl

// #include "shim.h"
import "C"

import (
	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/element"
	"drun/plugins/internal/ordered"
)

var types = map[element.Type]C.int{
	element.Float32: C.ncclFloat32, element.Float64: C.ncclFloat64, element.Int64: C.ncclInt64,
	element.Int32: C.ncclInt32, element.Int8: C.ncclInt8, element.Uint8: C.ncclUint8,
	element.Complex64: C.ncclFloat32, // a pair of them, for sums
}

// native is how NCCL reduces, if its results match the contract. It lacks
// bitwise operations, complex numbers and bool; its minimum and maximum of
// floats lose NaNs; it rounds float16 and bfloat16 at every step. Its average
// multiplies by the inverse, so it is asked for the sum instead, except for
// integers, whose sum would wrap around.
func (e *engine) native(dtype element.Type, op element.ReduceOp) (t, o C.int, ok bool) {
	if e.options.deterministic && e.size > 2 || reduction.Exact(dtype, op) {
		return 0, 0, false
	}
	t, ok = types[dtype]
	float := dtype == element.Float32 || dtype == element.Float64
	switch op {
	case element.Sum, element.Avg:
		return t, C.ncclSum, ok
	case element.Product:
		return t, C.ncclProd, ok
	case element.Min:
		return t, C.ncclMin, ok && !float
	case element.Max:
		return t, C.ncclMax, ok && !float
	}
	return 0, 0, false
}

var typeSizes = map[C.int]int{C.ncclFloat32: 4, C.ncclFloat64: 8, C.ncclInt64: 8, C.ncclInt32: 4, C.ncclInt8: 1, C.ncclUint8: 1}

// average turns NCCL's sum into the average.
func (e *engine) average(b collective.Buffer, op element.ReduceOp) {
	if op == element.Avg {
		reduction.Divide(b, e.size)
	}
}

func (e *engine) allReduce(send, recv collective.Buffer, op element.ReduceOp) error {
	if len(send.Data) == 0 {
		return nil
	}
	t, o, ok := e.native(send.DType, op)
	if !ok {
		return e.reducer.AllReduce(send, recv, op)
	}
	rounds, room := chunks(len(send.Data), e.lane.room), e.lane.room
	reached := e.reaches(send.Data, recv.Data)
	if reached {
		rounds = 1
	}
	err := e.lane.run(rounds, func(r *round, i int) {
		if reached {
			r.doInPlace(C.ALL_REDUCE, send.Data, recv.Data, len(send.Data)/typeSizes[t], t, o)
			return
		}
		part := chunk(send.Data, room, i)
		r.copyIn(part, 0)
		r.do(C.ALL_REDUCE, 0, 0, len(part)/typeSizes[t], t, o, 0)
		r.copyOut(chunk(recv.Data, room, i), 0)
	})
	if err == nil {
		e.average(recv, op)
	}
	return err
}

func (e *engine) reduce(send, recv collective.Buffer, op element.ReduceOp, root int) error {
	if len(send.Data) == 0 {
		return nil
	}
	t, o, ok := e.native(send.DType, op)
	if !ok {
		return e.reducer.Reduce(send, recv, op, root)
	}
	room := e.lane.room
	n := chunks(len(send.Data), room)
	err := e.lane.run(n, func(r *round, i int) {
		part := chunk(send.Data, room, i)
		r.copyIn(part, 0)
		r.do(C.REDUCE, 0, 0, len(part)/typeSizes[t], t, o, root)
		if e.rank == root {
			r.copyOut(chunk(recv.Data, room, i), 0)
		}
		e.attend(r, i, n, root)
	})
	if err == nil && e.rank == root {
		e.average(recv, op)
	}
	return err
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

// reduceScatter of parts of different sizes is a group of reduces, one to each
// rank.
func (e *engine) reduceScatter(send, recv collective.Buffer, counts []int, op element.ReduceOp) error {
	t, o, ok := e.native(send.DType, op)
	if !ok {
		return e.reducer.ReduceScatter(send, recv, counts, op)
	}
	sizes := ordered.Bytes(collective.Evenly(counts, send.Count(), e.size), send)
	parts := cut(send.Data, sizes)
	fit := e.fit(e.size)
	err := e.lane.run(chunks(largest(sizes), fit), func(r *round, i int) {
		for rank, part := range parts {
			in := chunk(part, fit, i)
			switch at := rank * fit; {
			case counts == nil:
				r.copyIn(in, rank*len(in))
			case len(in) > 0:
				r.copyIn(in, at)
				r.do(C.REDUCE, at, at, len(in)/typeSizes[t], t, o, rank)
			}
		}
		mine := chunk(recv.Data, fit, i)
		at := e.rank * fit
		if counts == nil {
			at = e.rank * len(mine)
			r.do(C.REDUCE_SCATTER, 0, at, len(mine)/typeSizes[t], t, o, 0)
		}
		r.copyOut(mine, at)
	})
	if err == nil {
		e.average(recv, op)
	}
	return err
}

// mover is the engine as package ordered uses it.
type mover struct{ *engine }

func (m mover) AllGather(send, recv []byte) error { return m.allGather(send, recv) }

func (m mover) AllGatherV(send, recv []byte, sizes []int) error {
	return m.allGatherV(send, recv, sizes)
}

func (m mover) GatherV(send, recv []byte, sizes []int, root int) error {
	return m.gatherV(send, recv, sizes, root)
}

func (m mover) AllToAllV(send []byte, sent []int, recv []byte, received []int) error {
	return m.allToAllV(send, sent, recv, received)
}
