package nccl

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"drun/collective"
	"drun/plugins/internal/blocking"
)

// Messages up to this size travel with their header.
const inlineSize = 1024

// The GPU's processors that a message may take, so that many can be under way
// at once beside a collective.
const messageCTAs = 2

// keys number the messages whose data is fetched.
var keys atomic.Uint64

// Send gives a message to a rank. The data of a large one goes through NCCL
// when the receiver awaits it: what NCCL has been told to send holds up all
// that comes after it. Each direction between two ranks has a communicator of
// its own, made with the first message, so that none waits for another.
func (e *engine) Send(to int, h blocking.Header, data []byte) error {
	if len(data) <= inlineSize {
		return e.Mesh.Send(to, h, data)
	}
	h.Key = keys.Add(1)
	l := e.linked(e.outgoing, to)
	var id uniqueID
	var announced []byte
	if l == nil {
		var err error
		if id, err = newUniqueID(e.device); err != nil {
			return err
		}
		announced = id[:]
	}
	if err := e.Mesh.Send(to, h, announced); err != nil {
		return err
	}
	if _, err := e.Take(to, h.Key); err != nil { // until the data is awaited
		return err
	}
	if l == nil {
		var err error
		if l, err = e.join(e.outgoing, to, id, 0); err != nil {
			return err
		}
	}
	return l.run(chunks(len(data), l.room), func(r *round, i int) {
		part := chunk(data, l.room, i)
		r.copyIn(part, 0)
		r.do(C.SEND, 0, 0, len(part), C.ncclInt8, 0, 1)
	})
}

// Fetch receives the data of the message that Next announced.
func (e *engine) Fetch(from int, h blocking.Header, data []byte) error {
	if h.Key == 0 {
		return e.Mesh.Fetch(from, h, data)
	}
	if err := e.Give(from, h.Key, nil); err != nil {
		return err
	}
	l := e.linked(e.incoming, from)
	if id := e.Came(); len(id) > 0 {
		if len(id) != C.ID_SIZE {
			return errors.New("a message came with an id of another size than NCCL's")
		}
		var err error
		if l, err = e.join(e.incoming, from, uniqueID(id), 1); err != nil {
			return err
		}
	}
	if l == nil {
		return fmt.Errorf("rank %d announced a message without a communicator for it", from)
	}
	return l.run(chunks(len(data), l.room), func(r *round, i int) {
		part := chunk(data, l.room, i)
		r.do(C.RECV, 0, 0, len(part), C.ncclInt8, 0, 0)
		r.copyOut(part, 0)
	})
}

// linked is the lane for messages in one direction, if there is one.
func (e *engine) linked(direction map[int]*lane, peer int) *lane {
	e.mu.Lock()
	defer e.mu.Unlock()
	return direction[peer]
}

// join makes a lane of two ranks: the sender is rank 0.
func (e *engine) join(direction map[int]*lane, peer int, id uniqueID, rank int) (*lane, error) {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	go func() {
		select {
		case <-e.interrupted:
			end(errInterrupted)
		case <-e.Gone(peer):
			end(fmt.Errorf("rank %d is gone", peer))
		case <-ctx.Done():
		}
	}()
	comm, err := newCommunicator(ctx, e.device, id, 2, rank, messageCTAs)
	if err != nil {
		return nil, err
	}
	l, err := newLane(e.device, e.memory, comm, messageRoom, &e.counts)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if collective.IsClosed(e.interrupted) {
		l.interrupt()
	}
	direction[peer] = l
	return l, nil
}

// chunks is in how many pieces of at most size bytes n bytes are cut.
func chunks(n, size int) int { return (n + size - 1) / size }

// chunk is the piece of that number; empty after the end.
func chunk(data []byte, size, number int) []byte {
	from := min(number*size, len(data))
	return data[from:min(from+size, len(data))]
}
