package nccl

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"drun/collective"
)

// uniqueID is NCCL's identifier, by which the ranks of a communicator meet.
type uniqueID [C.ID_SIZE]byte

func newUniqueID(d *C.device) (id uniqueID, err error) {
	var why [C.ERR_SIZE]C.char
	if C.drun_unique_id(d, (*C.char)(unsafe.Pointer(&id[0])), &why[0]) != C.DONE {
		return id, errors.New(C.GoString(&why[0]))
	}
	return id, nil
}

// cell is where NCCL stores a communicator, sometimes later and from its own thread: so it lies in C's memory.
type cell struct{ at *C.ncclComm_t }

func newCell() cell {
	return cell{(*C.ncclComm_t)(C.calloc(1, C.size_t(unsafe.Sizeof(C.ncclComm_t(nil)))))}
}

// take returns the communicator, once nobody writes to the cell any more.
func (c cell) take() C.ncclComm_t {
	comm := *c.at
	C.free(unsafe.Pointer(c.at))
	return comm
}

func newCommunicator(ctx context.Context, d *C.device, id uniqueID, ranks, rank int) (C.ncclComm_t, error) {
	cell := newCell()
	var why [C.ERR_SIZE]C.char
	rc := C.drun_comm(d, (*C.char)(unsafe.Pointer(&id[0])), C.int(ranks), C.int(rank), cell.at, &why[0])
	comm := *cell.at
	err := errors.New(C.GoString(&why[0]))
	if rc == C.DONE {
		err = awaitDone(ctx, comm, fmt.Sprintf("joining NCCL as rank %d of %d", rank, ranks), nil)
	}
	if err != nil {
		abandon(d, comm)
		return nil, err
	}
	return cell.take(), nil
}

// split makes the communicator of the ranks with the same color, in the order of key. All ranks of the lane take part;
// one without a color gets nil. If it fails, the lane is unusable.
func (l *lane) split(ctx context.Context, color, key int) (C.ncclComm_t, error) {
	l.using.Lock()
	cell := newCell()
	var why [C.ERR_SIZE]C.char
	err := errInterrupted
	if !collective.IsClosed(l.stopped) {
		err = l.result(C.drun_comm_split(l.device, l.comm, C.int(color), C.int(key), cell.at, &why[0]), &why)
	}
	if err == nil {
		// The new communicator is there when the old one is ready.
		err = awaitDone(ctx, l.comm, "splitting the communicator", l.stopped)
	}
	l.using.Unlock()
	if err != nil {
		l.interrupt()
		return nil, err
	}
	return cell.take(), nil
}

// awaitDone waits until a communicator has done what it was asked to.
func awaitDone(ctx context.Context, comm C.ncclComm_t, doing string, stopped <-chan struct{}) error {
	sleep := collective.NewSleep(ctx)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		switch state, err := state(comm, doing); {
		case err != nil:
			return err
		case state == C.DONE:
			return nil
		}
		if collective.IsClosed(stopped) {
			return errInterrupted
		}
		slice, err := sleep.Next()
		if err != nil {
			return fmt.Errorf("%s was given up: %w", doing, err)
		}
		time.Sleep(min(slice, pause))
	}
}

func state(comm C.ncclComm_t, doing string) (C.int, error) {
	var why [C.ERR_SIZE]C.char
	what := C.CString(doing)
	defer C.free(unsafe.Pointer(what))
	rc := C.drun_comm_state(comm, what, &why[0])
	if rc == C.FAILED {
		return rc, errors.New(C.GoString(&why[0]))
	}
	return rc, nil
}

// abandon aborts a communicator that cannot be used.
func abandon(d *C.device, comm C.ncclComm_t) {
	if comm != nil {
		var why [C.ERR_SIZE]C.char
		C.drun_comm_abort(d, comm, &why[0])
	}
}

// How long a rank that closes a communicator waits for data that is still being sent to the others; drun gives a
// plugin two seconds to close everything.
const finalizeLimit = time.Second

// finish finalises a communicator; false if that takes too long.
func finish(d *C.device, comm C.ncclComm_t) bool {
	var why [C.ERR_SIZE]C.char
	if C.drun_comm_finalize(d, comm, &why[0]) != C.DONE {
		return false
	}
	ctx := collective.Within(context.Background(), finalizeLimit)
	return awaitDone(ctx, comm, "finalizing", nil) == nil && C.drun_comm_destroy(d, comm, &why[0]) == C.DONE
}
