//go:build mpi

package mpi

// #include "shim.h"
// #cgo CFLAGS: -O2 -Wall
// #cgo pkg-config: ompi-c
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/collective"
	"drun/internal/each"
	"drun/kernel/dtype"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/bootstrap"
	"drun/plugins/internal/collectives"
	"drun/plugins/internal/mesh"
)

// engine is a rank's end of a group: a communicator of MPI. The mesh does what MPI does not: it announces messages,
// whose receiver may not know who sends them, and notices that a rank has left, was lost or gave up.
type engine struct {
	*process
	*mesh.Mesh
	collectives.Runner
	group   *C.mpi_group
	store   collective.Store
	prefix  string // of its keys in the store
	host    string
	stopped atomic.Bool
	calls   [functions]atomic.Int64
	keys    atomic.Uint64 // of messages
}

// The functions of MPI that are counted.
const (
	barrier = iota
	bcast
	allReduce
	reduce
	allGather
	gather
	scatter
	allToAll
	sends
	recvs
	functions
)

var names = [functions]string{"MPI_Ibarrier", "MPI_Ibcast", "MPI_Iallreduce", "MPI_Ireduce", "MPI_Iallgather", "MPI_Igather", "MPI_Iscatter", "MPI_Ialltoallv", "MPI_Isend", "MPI_Irecv"}

func (e *engine) Statistics() map[string]int64 {
	m := make(map[string]int64)
	for i, name := range names {
		if n := e.calls[i].Load(); n > 0 {
			m[name] = n
		}
	}
	return m
}

func (e *engine) Split(ctx context.Context, group collective.Group, rank int) (blocking.Engine, error) {
	sub := &engine{process: e.process, store: e.store, prefix: fmt.Sprintf("%s/group %d of %d", e.prefix, group.ID, group.Ranks[0]), host: e.host,
		Runner: collectives.Runner{Rank: rank, Size: len(group.Ranks), InRankOrder: e.InRankOrder}}
	var err error
	// All ranks are there before MPI waits for them.
	if sub.Mesh, err = mesh.Connect(ctx, e.store, sub.prefix, e.host, rank, sub.Size); err != nil {
		return nil, err
	}
	early, err := collective.Run(ctx, func() error {
		ranks := each.Of(group.Ranks, func(r int) C.int { return C.int(r) })
		var failure [C.ERR_SIZE]C.char
		sub.group = C.drun_mpi_split(e.group, &ranks[0], C.int(len(ranks)), C.int(group.ID&0xffffff), &failure[0])
		if sub.group == nil {
			return errors.New(C.GoString(&failure[0]))
		}
		return nil
	})
	if early {
		e.giveUp(e)
	}
	if err != nil {
		sub.Mesh.Interrupt()
		return nil, err
	}
	sub.Library = sub
	return sub, nil
}

// Interrupt ends what is blocked here and, by closing the connections, on the other ranks.
func (e *engine) Interrupt() {
	e.stopped.Store(true)
	e.giveUp(e)
	C.drun_mpi_stop(e.group)
	e.Mesh.Interrupt()
}

// Close frees the communicator; the world's Close also leaves MPI.
func (e *engine) Close() error {
	if e.prefix == "mpi" {
		e.end(e)
	}
	e.Mesh.Interrupt()
	if !e.stopped.Load() && e.prefix != "mpi" {
		C.drun_mpi_free(e.group)
	}
	return nil
}

// Messages up to this size travel with their announcement.
const inlineSize = 1024

// piece is the most that one call of MPI moves: it counts in ints.
const piece = 1 << 30

// Send sends a message to a rank. A large one's announcement has the tag under which MPI carries it.
func (e *engine) Send(to int, h blocking.Header, data []byte) error {
	if len(data) <= inlineSize {
		return e.Mesh.Send(to, h, data)
	}
	key := e.keys.Add(1)
	announced := h
	announced.DType |= large
	if err := e.Mesh.Send(to, announced, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, key), uint64(len(data)))); err != nil {
		return err
	}
	return pieces(data, func(part []byte) error {
		return e.do(sends, func(err *C.char) C.int {
			return C.drun_mpi_send(e.group, pointer(part), C.int(len(part)), C.int(to), tag(key), err)
		})
	})
}

// large marks the announcement of a message that MPI carries: it has the message's key and size.
const large dtype.Type = 0x80

func (e *engine) Next() (from int, h blocking.Header, err error) {
	from, h, err = e.Mesh.Next()
	if err != nil || h.DType&large == 0 {
		return from, h, err
	}
	var about [16]byte
	if err := e.Mesh.Fetch(from, h, about[:]); err != nil {
		return from, h, err
	}
	h.DType &^= large
	h.Key, h.Bytes = binary.LittleEndian.Uint64(about[:8]), binary.LittleEndian.Uint64(about[8:])
	return from, h, nil
}

func (e *engine) Fetch(from int, h blocking.Header, data []byte) error {
	if h.Key == 0 {
		return e.Mesh.Fetch(from, h, data)
	}
	return pieces(data, func(part []byte) error {
		return e.do(recvs, func(err *C.char) C.int {
			return C.drun_mpi_recv(e.group, pointer(part), C.int(len(part)), C.int(from), tag(h.Key), err)
		})
	})
}

// tag is a message's tag in MPI; every MPI has this many. Messages with the same tag are matched in order.
func tag(key uint64) C.int { return C.int(1 + key%32000) }

// pieces calls do for parts of data that are small enough for MPI's counts.
func pieces(data []byte, do func([]byte) error) error {
	for len(data) > 0 {
		n := min(len(data), piece)
		if err := do(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (e *engine) do(function int, call func(err *C.char) C.int) error {
	e.calls[function].Add(1)
	var failure [C.ERR_SIZE]C.char
	return failed(call(&failure[0]), &failure)
}

var errStopped = errors.New("the call was given up")

func failed(rc C.int, failure *[C.ERR_SIZE]C.char) error {
	switch rc {
	case C.DONE:
		return nil
	case C.STOPPED:
		return errStopped
	}
	return errors.New(C.GoString(&failure[0]))
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (b *Backend) Probe(context.Context) error {
	if os.Getenv("PMIX_RANK") != "" {
		return nil
	}
	_, err := program()
	return err
}

func (b *Backend) Version() string { return C.GoString(C.drun_mpi_version()) }

// Open takes part in MPI as the world's rank. A process can do so only once.
func (b *Backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	if world.Size > 1 && world.Store == nil {
		return nil, errors.New("mpi needs a store in which the ranks find each other, and there is none")
	}
	stop, err := findPlace(ctx, world)
	if err != nil {
		return nil, err
	}
	e := &engine{process: &process{stop: stop, everywhere: world.LocalSize != world.Size}, store: world.Store, prefix: "mpi",
		host: "127.0.0.1", Runner: collectives.Runner{Rank: world.Rank, Size: world.Size, InRankOrder: world.Deterministic}}
	if e.everywhere {
		e.host, err = bootstrap.Route()
	}
	if err == nil {
		// All ranks are there before MPI waits for them, which it does without a limit.
		e.Mesh, err = mesh.Connect(ctx, e.store, e.prefix, e.host, e.Rank, e.Size)
	}
	if err == nil {
		err = join(ctx, world)
	}
	if err != nil {
		if e.Mesh != nil {
			e.Mesh.Interrupt()
		}
		stop()
		return nil, err
	}
	e.group = C.drun_mpi_world()
	e.Library = e
	return blocking.New(b.Name(), e, world.Rank, world.Size), nil
}

// join initialises MPI in this process.
func join(ctx context.Context, world collective.World) error {
	// Its handlers for SIGSEGV and the like would replace Go's.
	if err := os.Setenv("OMPI_MCA_opal_signal", ""); err != nil {
		return err
	}
	var rank, size C.int
	early, err := collective.Run(ctx, func() error {
		var failure [C.ERR_SIZE]C.char
		return failed(C.drun_mpi_init(&rank, &size, &failure[0]), &failure)
	})
	switch {
	case early:
		return fmt.Errorf("not all ranks have come to MPI_Init: %w", err)
	case err == nil && (int(rank) != world.Rank || int(size) != world.Size):
		return fmt.Errorf("MPI has this process as rank %d of %d, and drun as rank %d of %d: have mpirun start one process a rank", rank, size, world.Rank, world.Size)
	}
	return err
}

// process is what all groups of a rank share: its part in MPI.
type process struct {
	stop       func() // ends the process that lends the place
	everywhere bool   // on several machines, with places from the mpirun that started drun
	mu         sync.Mutex
	broken     bool      // some call was abandoned: MPI cannot be finalised
	kept       []*engine // engines of abandoned calls, whose memory MPI may still use
}

// giveUp keeps the engine of an abandoned call in memory.
func (p *process) giveUp(e *engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.kept = append(p.kept, e)
}

// drun gives a plugin two seconds to close everything.
const endLimit = 500 * time.Millisecond

// end leaves MPI, if all others do so in time too. Messages still move until they have.
func (p *process) end(e *engine) {
	deadline := time.Now().Add(endLimit)
	all := func() bool {
		for rank := range e.Size {
			if rank == e.Rank {
				continue
			}
			if left, err := e.Peer(rank); !left && err == nil {
				return false
			}
		}
		return true
	}
	for !all() && time.Now().Before(deadline) {
		C.drun_mpi_progress()
		time.Sleep(time.Millisecond)
	}
	p.mu.Lock()
	broken := p.broken
	p.mu.Unlock()
	if p.everywhere && all() && !broken { // otherwise it makes no difference
		ctx, stop := context.WithDeadline(context.Background(), deadline)
		defer stop()
		_, _ = collective.Run(ctx, func() error { C.drun_mpi_finalize(); return nil })
	}
	p.stop()
}
