package shm

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"drun/collective"
	"drun/collective/reduction"
	"drun/collective/sharedmem"
	"drun/internal/try"
	"drun/kernel/dtype"
)

// arena is memory of this rank that the others have mapped too, so that all_reduce need not stage it. Every rank of the
// world has the same amount, one after the other, far behind the areas; all groups share them.
type arena struct {
	file *os.File
	rank int // in the world

	mu    sync.Mutex
	used  int
	views [][]byte // each rank's memory, this one's too, mapped when it is first used
}

const (
	arenasAt  = 1 << 40
	arenaSize = 1 << 31 // a rank's, of address space
)

func newArena(file *os.File, rank, size int) *arena {
	return &arena{file: file, rank: rank, views: make([][]byte, size)}
}

// Alloc returns zeroed memory from this rank's arena.
func (c *Comm) Alloc(dt dtype.Type, count int) (collective.Buffer, error) {
	if !dt.Valid() || count < 0 || count > arenaSize/dt.Size() {
		return collective.Buffer{}, fmt.Errorf("shm: cannot allocate %d elements of %v in the arena", count, dt)
	}
	data, err := c.region.arena.alloc(count * dt.Size())
	return collective.Buffer{DType: dt, Data: data}, err
}

func (a *arena) alloc(bytes int) (_ []byte, err error) {
	defer try.Caught(&err)
	a.mu.Lock()
	defer a.mu.Unlock()
	own := try.To(a.of(a.rank))
	at := a.used
	try.FailIf(at+bytes > arenaSize, "shm: the arena of %d bytes is full", arenaSize)
	a.used += (bytes + 63) &^ 63
	return own[at : at+bytes : at+bytes], nil
}

// of is the memory of a rank of the world.
func (a *arena) of(rank int) ([]byte, error) {
	if a.views[rank] == nil {
		mem, err := sharedmem.Map(a.file, arenasAt+int64(rank)*arenaSize, arenaSize)
		if err != nil {
			return nil, err
		}
		a.views[rank] = mem
	}
	return a.views[rank], nil
}

// view is n bytes at that offset of a rank's memory.
func (a *arena) view(rank, at, n int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	mem, err := a.of(rank)
	if err != nil {
		return nil, err
	}
	return mem[at : at+n], nil
}

// where is the offset of data in this rank's memory plus 1; 0 if it lies elsewhere.
func (a *arena) where(data []byte) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := a.views[a.rank]
	if own == nil || len(data) == 0 {
		return 0
	}
	at := uintptr(unsafe.Pointer(&data[0])) - uintptr(unsafe.Pointer(&own[0]))
	if at >= uintptr(a.used) {
		return 0
	}
	return uint64(at) + 1
}

func (a *arena) close() {
	for _, v := range a.views {
		if v != nil {
			_ = sharedmem.Unmap(v)
		}
	}
}

// arenaOffset is where in the arena the call's data lies, plus 1; 0 if it is elsewhere, or not reduced in place.
func (r *run) arenaOffset() uint64 {
	send, recv := r.call.Send.Data, r.call.Recv.Data
	if r.call.Kind != collective.AllReduce || unsafe.SliceData(send) != unsafe.SliceData(recv) {
		return 0
	}
	return r.region.arena.where(recv)
}

// inArena reports, after a round, whether some rank's data lies in the arena, and whether all ranks' does.
func (r *run) inArena() (some, all bool) {
	all = true
	for _, a := range r.arrivals[r.round%2] {
		some = some || a.arena != 0
		all = all && a.arena != 0
	}
	return some, all
}

// lent returns n bytes of what each rank has in the arena, after a round has said where.
func (r *run) lent(n int) (all [][]byte, err error) {
	all = make([][]byte, r.size)
	for i, a := range r.arrivals[r.round%2] {
		if all[i], err = r.region.arena.view(r.world[i], int(a.arena-1), n); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// allReduceInArena reduces memory of the arena in place, after a round has said where all ranks' data is and that it is
// complete. Each rank reduces its slice from all ranks' memory and writes the result to all, in blocks that stay in the
// cache; a second round ends the call. Each rank's data is read once and written once.
func (r *run) allReduceInArena() error {
	data, dt := r.call.Recv.Data, r.call.Recv.DType
	elem := dt.Size()
	from, to := reduction.Share(len(data)/elem, elem, r.rank, r.size)
	targets, err := r.lent(len(data))
	if err != nil {
		return err
	}
	const block = 64 << 10
	for at := from * elem; at < to*elem; at += block {
		end := min(at+block, to*elem)
		for i, t := range targets {
			r.sources[i] = t[at:end]
		}
		r.reducer.Combine(collective.Buffer{DType: dt, Data: data[at:end]}, r.sources, r.call.Reduce)
		for i, t := range targets {
			if i != r.rank {
				copy(t[at:end], data[at:end])
			}
		}
	}
	r.begin()
	return r.arrive()
}
