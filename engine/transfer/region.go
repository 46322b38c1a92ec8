// Package transfer carries states between ranks, the agents of their nodes and the coordinator: in memory files on
// one machine, and in pieces over the links between machines. engine/record and engine/node use it.
package transfer

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"drun/collective/sharedmem"
	"drun/engine"
)

// Region is memory through which states go to and from the ranks of this machine. It has no name outside this
// process and ends with it. Pages that nobody writes to take no memory.
type Region struct {
	Mem     []byte
	Used    int64 // bytes, from its beginning
	Written int64 // bytes from its beginning that already have memory
	// Holds is what the previous save left in it, by offset, as far as is known.
	Holds map[int64]Content

	file   *os.File
	number uint64
	lent   atomic.Bool // ranks may read it for as long as they live
}

// Content identifies data: equal data has equal content.
type Content struct {
	DType, Sum string
	Bytes      int64
}

// WriteAt writes through the file, not the mapping, where a lack of memory would kill the process.
func (g *Region) WriteAt(data []byte, offset int64) (int, error) {
	n, err := g.file.WriteAt(data, offset)
	if err != nil {
		err = fmt.Errorf("cannot hold %d bytes of a checkpoint in memory: %w", len(data), err)
	}
	return n, err
}

// Lend lets a rank of this machine restore its part of a checkpoint from the file.
func (g *Region) Lend(to *engine.Restored) {
	g.lent.Store(true)
	to.File, to.Size = g.path(), g.Used
}

// Ask lets a rank of this machine hand over its part of a checkpoint in the file.
func (g *Region) Ask(to *engine.HandOver) {
	to.File, to.Region, to.Size, to.Written = g.path(), g.number, g.Used, g.Used <= g.Written
}

// path is where the ranks of this machine can open the region.
func (g *Region) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), g.file.Fd()) }

// Close ends the region; ranks that have opened it keep their memory.
func (g *Region) Close() {
	_ = sharedmem.Unmap(g.Mem)
	g.file.Close()
}

var lastNumber atomic.Uint64

// Number returns a number for a region or a state that is unique in this process.
func Number() uint64 { return lastNumber.Add(1) }

// Regions keeps an unused region for the next checkpoint: memory that the kernel has already provided is several
// times faster to write.
type Regions struct {
	mu    sync.Mutex
	spare *Region
}

// Take returns a region that holds that many bytes.
func (p *Regions) Take(bytes int64) (*Region, error) {
	p.mu.Lock()
	g := p.spare
	p.spare = nil
	p.mu.Unlock()
	size := sharedmem.PageRound(int(bytes))
	if g != nil && size <= len(g.Mem) && len(g.Mem) <= 2*size {
		g.Used = bytes
		return g, nil
	}
	if g != nil {
		g.Close()
	}
	file, err := sharedmem.Create(engine.StateMemory)
	if err != nil {
		return nil, err
	}
	mem, err := sharedmem.Map(file, 0, size)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Region{file: file, number: Number(), Mem: mem, Used: bytes}, nil
}

// Give takes back a region that no rank writes to or opens any more; it may be nil.
func (p *Regions) Give(g *Region) {
	if g == nil {
		return
	}
	if g.lent.Load() {
		g.Close()
		return
	}
	p.mu.Lock()
	g, p.spare = p.spare, g
	p.mu.Unlock()
	if g != nil {
		g.Close()
	}
}

func (p *Regions) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare != nil {
		p.spare.Close()
		p.spare = nil
	}
}
