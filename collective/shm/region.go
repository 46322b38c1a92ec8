// Package shm is the built-in backend: the ranks of one machine over shared memory.
//
// All calls consist of rounds. In a round every rank publishes something in its own memory, says that it has arrived,
// and waits until all have; then it reads what the others published. What is published alternates between two buffers
// by the round's parity, so that a fast rank never overwrites what a slow one still reads: to reach the round after
// next, the slow rank must have arrived at the next one, and so have read this one. Small calls are one round; large
// ones are cut into chunks that stay in the cache, a round each.
//
// Contributions are reduced in rank order, each element by one rank, and the result is copied to the others: every rank
// has the same bits, on every run.
package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/try"
)

const magic = 0x64_72_75_6e_73_68_30_31 // "drunsh01"

// The region: a header, then areas, one for each group; see layout.
type regionHeader struct {
	magic uint64
	size  uint64        // ranks of the world
	next  atomic.Uint64 // offset of the next area; areas are not reused
}

const headerSize = 1 << 16

// Create makes the shared memory of a world of size ranks. The ranks' processes inherit the file; when the last one has
// ended nothing is left.
func Create(size int) (_ *os.File, err error) {
	defer try.Caught(&err)
	try.FailIf(size < 1 || size > MaxRanks, "the shm backend takes 1 to %d ranks, not %d", MaxRanks, size)
	f := try.To(sharedmem.Create("drun-shm"))
	mem, err := sharedmem.Map(f, 0, headerSize)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	h := sharedmem.At[regionHeader](mem, 0)
	h.magic, h.size = magic, uint64(size)
	h.next.Store(headerSize + uint64(newLayout(size).total))
	return f, sharedmem.Unmap(mem)
}

// region is a process's hold on the shared memory, shared by a world's Comm and the groups split from it.
type region struct {
	file  *os.File
	mem   []byte
	head  *regionHeader
	cores int
	arena *arena
	refs  atomic.Int32
}

// Backend opens the shared memory that was made by [Create].
type Backend struct{ File *os.File }

func (b *Backend) Name() string { return "shm" }

// Open joins the world. The communicator keeps the file and closes it.
func (b *Backend) Open(_ context.Context, world collective.World) (collective.Comm, error) {
	return Open(b.File, world.Rank, world.Size)
}

// Open joins the world of size ranks behind f as one of them. The communicator keeps f and closes it.
func Open(f *os.File, rank, size int) (*Comm, error) {
	mem, err := sharedmem.Map(f, 0, headerSize)
	if err != nil {
		return nil, err
	}
	r := &region{file: f, mem: mem, head: sharedmem.At[regionHeader](mem, 0), cores: sharedmem.Cores()}
	switch {
	case r.head.magic != magic:
		err = fmt.Errorf("the file given as shared memory is something else, or from another version of drun")
	case int(r.head.size) != size || rank < 0 || rank >= size:
		err = fmt.Errorf("rank %d of %d cannot join a world of %d ranks", rank, size, r.head.size)
	}
	if err != nil {
		_ = sharedmem.Unmap(mem)
		return nil, err
	}
	r.arena = newArena(f, rank, size)
	c, err := newComm(r, headerSize, rank, collective.AllRanks(size))
	if err != nil {
		_ = sharedmem.Unmap(mem)
	}
	return c, err
}

// release unmaps the region after the last Comm on it is closed.
func (r *region) release() error {
	if r.refs.Add(-1) > 0 {
		return nil
	}
	r.arena.close()
	err := sharedmem.Unmap(r.mem)
	if closeErr := r.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Rendezvous returns the shared memory of size ranks of one machine that did not inherit it from a common parent: the
// first of them makes it, and says in the store where the others can open it. They must be processes of the same user,
// in the same process namespace. The file must not be closed before all have opened it.
func Rendezvous(ctx context.Context, store collective.Store, key string, rank, size int) (*os.File, error) {
	if rank == 0 {
		f, err := Create(size)
		if err != nil {
			return nil, err
		}
		if err := store.Set(ctx, key, fmt.Appendf(nil, "/proc/%d/fd/%d", os.Getpid(), f.Fd())); err != nil {
			f.Close()
			return nil, fmt.Errorf("cannot say where the memory of this machine's ranks is: %w", err)
		}
		return f, nil
	}
	path, err := store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("the first rank of this machine has not come: %w", err)
	}
	f, err := os.OpenFile(string(path), os.O_RDWR, 0)
	if err != nil {
		err = fmt.Errorf("cannot open the memory of this machine's first rank: %w", err)
		if errors.Is(err, fs.ErrNotExist) { // with its process
			err = collective.Suspect(err)
		}
		return nil, err
	}
	return f, nil
}

const (
	// MaxRanks is the largest number of ranks in a region, all on one machine.
	MaxRanks = 1024
	// stageSize is how much a rank can publish in a round: small enough that the stages of a few ranks stay in a core's
	// second-level cache, large enough that a round costs little compared with the copy.
	stageSize = 512 << 10
	// skew keeps the stages of different ranks out of each other's cache sets.
	skew       = 4096 + 256
	ringSize   = 64 << 10 // of messages from one rank to another; see ring
	countsSize = 2 * sharedmem.CacheLine
)

// layout gives the offsets within a group's area:
//
//	control    abort, gate, count of the ranks that hold it
//	arrivals   per rank and parity: the round it has arrived at
//	stages     per rank and parity: what it publishes
//	results    per rank and parity: what it has reduced
//	doorbells  per rank: messages came; and on which core it is
//	ringCounts per receiver and sender: how much was written and read
//	rings      per pair of ranks: messages on their way
//
// Only what is used costs memory.
type layout struct {
	ranks                                                int
	stages, results, doorbells, ringCounts, rings, total int
}

func newLayout(ranks int) layout {
	l := layout{ranks: ranks}
	l.stages = sharedmem.PageRound(arrivalsAt + 2*ranks*int(unsafe.Sizeof(arrival{})))
	l.results = l.stages + sharedmem.PageRound(2*ranks*(stageSize+skew))
	l.doorbells = l.results + sharedmem.PageRound(2*ranks*(stageSize+skew))
	l.ringCounts = l.doorbells + sharedmem.PageRound(ranks*sharedmem.CacheLine)
	l.rings = l.ringCounts + sharedmem.PageRound(ranks*ranks*countsSize)
	l.total = l.rings + ranks*ranks*ringSize
	return l
}

type control struct {
	aborted atomic.Uint32
	_       [sharedmem.CacheLine - 4]byte
	gate    sharedmem.Gate
	_       [sharedmem.CacheLine - 8]byte
	closed  atomic.Int32 // ranks that are done with the area
}

const (
	arrivalsAt = 4096
	coreAt     = 64 // behind a doorbell
)

// arrival is what a rank announces in a round. A small contribution travels in it: then a round moves a single cache
// line from rank to rank.
type arrival struct {
	round       atomic.Uint64
	fingerprint uint64           // of the call, in its first round
	passed      uint64           // likewise
	arena       uint64           // offset of the call's buffer in the arena + 1, 0 if it is elsewhere
	_           [inlineSize]byte // from inlineAt on
}

const (
	inlineAt   = 32
	inlineSize = sharedmem.CacheLine - inlineAt
)
