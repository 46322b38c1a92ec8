//go:build gloo

package gloo

// #include "shim.h"
import "C"

// mover is the engine as package ordered uses it; counts are in bytes.
type mover struct{ *engine }

func (m mover) AllGather(send, recv []byte) error { return m.gatherAll(send, recv, nil) }

func (m mover) AllGatherV(send, recv []byte, counts []int) error {
	return m.gatherAll(send, recv, counts)
}

func (m mover) gatherAll(send, recv []byte, counts []int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_allgather(m.group, pointer(send), C.size_t(len(send)), pointer(recv), sizes(counts, 1), &failure[0]), &failure)
}

func (m mover) GatherV(send, recv []byte, counts []int, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_gather(m.group, pointer(send), C.size_t(len(send)), pointer(recv), sizes(counts, 1), C.int(root), &failure[0]), &failure)
}

func (m mover) AllToAllV(send []byte, sent []int, recv []byte, received []int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_alltoallv(m.group, pointer(send), sizes(sent, 1), pointer(recv), sizes(received, 1), &failure[0]), &failure)
}
