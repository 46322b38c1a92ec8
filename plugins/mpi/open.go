//go:build mpi

package mpi

// #include "shim.h"
// #cgo CFLAGS: -O2 -Wall
// #cgo pkg-config: ompi-c
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"drun/collective"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/bootstrap"
	"drun/plugins/internal/collectives"
	"drun/plugins/internal/mesh"
)

// Probe reports whether MPI's processes can be started here.
func (b *Backend) Probe(context.Context) error {
	if os.Getenv("PMIX_RANK") != "" {
		return nil
	}
	_, err := program()
	return err
}

// Version is the library's.
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
	type result struct {
		rank, size C.int
		err        error
	}
	joined := make(chan result, 1)
	go func() {
		var r result
		var failure [C.ERR_SIZE]C.char
		r.err = failed(C.drun_mpi_init(&r.rank, &r.size, &failure[0]), &failure)
		joined <- r
	}()
	select {
	case r := <-joined:
		if r.err == nil && (int(r.rank) != world.Rank || int(r.size) != world.Size) {
			return fmt.Errorf("MPI has this process as rank %d of %d, and drun as rank %d of %d: have mpirun start one process a rank", r.rank, r.size, world.Rank, world.Size)
		}
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("not all ranks have come to MPI_Init: %w", context.Cause(ctx))
	}
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
	if p.everywhere && all() && !broken { // else nobody minds
		over := make(chan struct{})
		go func() {
			C.drun_mpi_finalize()
			close(over)
		}()
		select {
		case <-over:
		case <-time.After(time.Until(deadline)):
		}
	}
	p.stop()
}
