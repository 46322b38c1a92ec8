//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"errors"
	"unsafe"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/sharedmem"
	"drun/kernel/dtype"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/collectives"
)

// engine is a rank's end of a group in Gloo: a context with a connection to
// every other rank.
type engine struct {
	collectives.Runner
	device *C.device // its own reference to what all groups share
	group  *C.group
	host   string // to listen on
	store  collective.Store
	prefix string         // of its keys in the store
	poll   sharedmem.Poll // to wait for other ranks: each has another process besides its plugin

	received C.header // of the message that Next announced
	paired   paired
}

var functions = [C.FUNCTIONS]string{
	C.ALLREDUCE: "allreduce", C.BROADCAST: "broadcast", C.REDUCE: "reduce", C.ALLGATHER: "allgather",
	C.ALLGATHERV: "allgatherv", C.GATHER: "gather", C.GATHERV: "gatherv", C.SCATTER: "scatter", C.SCATTERV: "scatterv",
	C.ALLTOALL: "alltoall", C.ALLTOALLV: "alltoallv", C.BARRIER: "barrier", C.SEND: "send", C.RECV: "recv",
}

// Statistics counts the calls of Gloo's functions.
func (e *engine) Statistics() map[string]int64 {
	var calls [C.FUNCTIONS]C.int64_t
	C.drun_gloo_calls(e.group, &calls[0])
	m := make(map[string]int64)
	for i, n := range calls {
		if n > 0 {
			m["gloo::"+functions[i]] = int64(n)
		}
	}
	return m
}

// Interrupt closes the connections, which ends everything that waits for them.
func (e *engine) Interrupt() { C.drun_gloo_interrupt(e.group) }

// Leave says goodbye to the peers.
func (e *engine) Leave() { C.drun_gloo_leave(e.group) }

// Close ends the connections.
func (e *engine) Close() error {
	e.paired.close()
	e.free()
	return nil
}

func (e *engine) free() {
	if e.group != nil {
		C.drun_gloo_free(e.group)
		e.group = nil
	}
	if e.device != nil {
		C.drun_gloo_device_free(e.device)
		e.device = nil
	}
}

// Peer reports whether a rank has left or its connection failed.
func (e *engine) Peer(rank int) (left bool, failed error) {
	var failure [C.ERR_SIZE]C.char
	state := C.drun_gloo_peer(e.group, C.int(rank), &failure[0])
	if state < 0 {
		return false, errors.New(C.GoString(&failure[0]))
	}
	return state > 0, nil
}

// Send sends a message to a rank.
func (e *engine) Send(to int, h blocking.Header, data []byte) error {
	var failure [C.ERR_SIZE]C.char
	head := C.header{tag: C.int64_t(h.Tag), bytes: C.uint64_t(h.Bytes), dtype: C.uint64_t(h.DType)}
	return failed(C.drun_gloo_send(e.group, C.int(to), &head, pointer(data), &failure[0]), &failure)
}

// Next waits for a message from any rank.
func (e *engine) Next() (from int, h blocking.Header, err error) {
	var failure [C.ERR_SIZE]C.char
	var source C.int
	switch C.drun_gloo_next(e.group, &source, &e.received, &failure[0]) {
	case 0:
		return 0, h, collective.ErrClosed
	case 1:
		r := &e.received
		return int(source), blocking.Header{Key: uint64(r.slot),
			Header: messages.Header{Tag: int64(r.tag), Bytes: uint64(r.bytes), DType: dtype.Type(r.dtype)}}, nil
	}
	return 0, h, errors.New(C.GoString(&failure[0]))
}

// Fetch receives the data of the message that Next announced.
func (e *engine) Fetch(from int, h blocking.Header, data []byte) error {
	if h.Key == 0 {
		copy(data, unsafe.Slice((*byte)(unsafe.Pointer(&e.received.data[0])), h.Bytes))
		return nil
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_fetch(e.group, C.int(from), C.uint64_t(h.Key), pointer(data), C.size_t(len(data)), &failure[0]), &failure)
}

// Stop ends Next.
func (e *engine) Stop() { C.drun_gloo_stop(e.group) }

func failed(rc C.int, failure *[C.ERR_SIZE]C.char) error {
	if rc == 0 {
		return nil
	}
	return errors.New(C.GoString(&failure[0]))
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
