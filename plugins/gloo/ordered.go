//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"drun/collective"
	"drun/plugins/internal/reduction"
)

// reduceScatter lets every rank gather the contributions to its part and
// combine them in rank order. As many bytes go over the network as in any
// reduce_scatter: each rank sends all parts but its own once. (Gloo's own,
// ReduceScatterHalvingDoubling, is of its first generation: its buffers must
// be there before a peer's data comes, and has no limit of time.)
func (e *engine) reduceScatter(send, recv collective.Buffer, counts []int, op collective.ReduceOp) error {
	elem := send.DType.Size()
	counts = evenly(counts, send, e.size)
	mine := counts[e.rank]
	parts := e.room(e.size * mine * elem)
	if err := e.exchange(send, counts, parts, mine); err != nil {
		return err
	}
	e.combine(recv, parts, op)
	return nil
}

// exchange gives every rank its part of send, and gathers the ranks' parts of
// mine elements, one after the other.
func (e *engine) exchange(send collective.Buffer, counts []int, parts []byte, mine int) error {
	received := make([]int, e.size)
	for i := range received {
		received[i] = mine
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_alltoallv(e.group, pointer(send.Data), sizes(counts, send), pointer(parts), sizes(received, send), &failure[0]), &failure)
}

func (e *engine) combine(out collective.Buffer, parts []byte, op collective.ReduceOp) {
	n := len(out.Data)
	sources := make([][]byte, e.size)
	for i := range sources {
		sources[i] = parts[i*n : (i+1)*n]
	}
	reduction.Combine(out, sources, op)
}

// Up to this size of all contributions together they are gathered everywhere,
// which saves a round.
const gatherLimit = 64 << 10

func (e *engine) orderedAllReduce(send, recv collective.Buffer, op collective.ReduceOp) error {
	var failure [C.ERR_SIZE]C.char
	if n := len(send.Data); n*e.size <= gatherLimit {
		all := e.room(n * e.size)
		rc := C.drun_gloo_allgather(e.group, pointer(send.Data), C.size_t(n), pointer(all), nil, &failure[0])
		if rc == 0 {
			e.combine(recv, all, op)
		}
		return failed(rc, &failure)
	}
	mine, counts, err := e.orderedPart(send, op)
	if err != nil {
		return err
	}
	rc := C.drun_gloo_allgather(e.group, pointer(mine.Data), C.size_t(len(mine.Data)), pointer(recv.Data), sizes(counts, send), &failure[0])
	return failed(rc, &failure)
}

func (e *engine) orderedReduce(send, recv collective.Buffer, op collective.ReduceOp, root int) error {
	mine, counts, err := e.orderedPart(send, op)
	if err != nil {
		return err
	}
	var failure [C.ERR_SIZE]C.char
	rc := C.drun_gloo_gather(e.group, pointer(mine.Data), C.size_t(len(mine.Data)), pointer(recv.Data), sizes(counts, send), C.int(root), &failure[0])
	return failed(rc, &failure)
}

// orderedPart reduces this rank's part of the ranks' equal buffers, and tells
// how many elements each rank's part has.
func (e *engine) orderedPart(send collective.Buffer, op collective.ReduceOp) (mine collective.Buffer, counts []int, err error) {
	elem := send.DType.Size()
	for rank := range e.size {
		from, to := reduction.Ordered(send.Count(), elem, rank, e.size)
		counts = append(counts, to-from)
	}
	n := counts[e.rank] * elem
	room := e.room((e.size + 1) * n)
	mine = collective.Buffer{DType: send.DType, Data: room[:n]}
	parts := room[n:]
	if err := e.exchange(send, counts, parts, counts[e.rank]); err != nil {
		return mine, nil, err
	}
	e.combine(mine, parts, op)
	return mine, counts, nil
}
