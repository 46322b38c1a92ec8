// Package shm is the built-in backend: the ranks of one machine over shared
// memory.
//
// All calls consist of rounds. In a round every rank publishes something in
// its own memory, says that it has arrived, and waits until all have; then it
// reads what the others published. What is published alternates between two
// buffers by the round's parity, so that a fast rank never overwrites what a
// slow one still reads: to reach the round after next, the slow rank must
// have arrived at the next one, and so have read this one. Small calls are
// one round; large ones are cut into chunks that stay in the cache, a round
// each.
//
// Contributions are reduced in rank order, each element by one rank, and the
// result is copied to the others: every rank has the same bits, on every run.
package shm

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"drun/collective"
	"drun/collective/sharedmem"
)

const magic = 0x64_72_75_6e_73_68_30_31 // "drunsh01"

// The region: a header, then areas, one for each group; see layout.go.
type regionHeader struct {
	magic uint64
	size  uint64        // ranks of the world
	next  atomic.Uint64 // offset of the next area; areas are not reused
}

const headerSize = 1 << 16

// Create makes the shared memory of a world of size ranks. The ranks'
// processes inherit the file; when the last one has ended nothing is left.
func Create(size int) (*os.File, error) {
	if size < 1 || size > MaxRanks {
		return nil, fmt.Errorf("the shm backend takes 1 to %d ranks, not %d", MaxRanks, size)
	}
	f, err := sharedmem.Create("drun-shm")
	if err != nil {
		return nil, err
	}
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

// region is a process's hold on the shared memory, shared by a world's Comm
// and the groups split from it.
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

// Open joins the world of size ranks behind f as one of them. The
// communicator keeps f and closes it.
func Open(f *os.File, rank, size int) (*Comm, error) {
	mem, err := sharedmem.Map(f, 0, headerSize)
	if err != nil {
		return nil, err
	}
	r := &region{file: f, mem: mem, head: sharedmem.At[regionHeader](mem, 0), cores: sharedmem.Cores()}
	switch {
	case r.head.magic != magic:
		err = fmt.Errorf("the file given as shared memory is not one, or is from another version of drun")
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

// Rendezvous returns the shared memory of size ranks of one machine that did not inherit it
// from a common parent: the first of them makes it, and says in the store where the
// others can open it. They must be processes of the same user, in the same process
// namespace. The file must not be closed before all have opened it.
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
		return nil, fmt.Errorf("cannot open the memory of this machine's first rank: %w", err)
	}
	return f, nil
}
