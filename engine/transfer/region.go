// Package transfer carries the ranks' states between them, the agents of their nodes and the coordinator: in memory files on one
// machine, piece by piece over the links between machines. engine/record and engine/node use it.
package transfer

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"drun/collective/sharedmem"
	"drun/engine"
)

// Region is memory through which states go to the ranks of this machine and from them. It has no name outside of this
// process, and ends with it. What nobody writes to takes no memory.
type Region struct {
	Mem     []byte
	Used    int64 // bytes, from its beginning
	Written int64 // bytes from its beginning that have their memory
	// Holds is what the save before has left in it, by offset, as far as that is known.
	Holds map[int64]Content

	file   *os.File
	number uint64
	lent   atomic.Bool // ranks may read it for as long as they live
}

// Content is what equal data has in common.
type Content struct {
	DType, Sum string
	Bytes      int64
}

// WriteAt does not write into the mapping, in which a lack of memory would be the end of the process.
func (g *Region) WriteAt(data []byte, offset int64) (int, error) {
	n, err := g.file.WriteAt(data, offset)
	if err != nil {
		err = fmt.Errorf("cannot hold %d bytes of a checkpoint in memory: %w", len(data), err)
	}
	return n, err
}

// Lend is for a rank of this machine that restores its part of a checkpoint from the file.
func (g *Region) Lend(to *engine.Restored) {
	g.lent.Store(true)
	to.File, to.Size = g.path(), g.Used
}

// Ask is for a rank of this machine that hands over its part of a checkpoint.
func (g *Region) Ask(to *engine.HandOver) {
	to.File, to.Region, to.Size, to.Written = g.path(), g.number, g.Used, g.Used <= g.Written
}

// path is where the ranks of this machine can open it.
func (g *Region) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), g.file.Fd()) }

// Close ends it; ranks that have opened it keep what they have.
func (g *Region) Close() {
	_ = sharedmem.Unmap(g.Mem)
	g.file.Close()
}

var lastNumber atomic.Uint64

// Number gives a region's number, or a state's, which no other of this process has.
func Number() uint64 { return lastNumber.Add(1) }

// Regions keeps one that is not in use for the next checkpoint: memory that the kernel has already
// given is written to several times faster.
type Regions struct {
	mu    sync.Mutex
	spare *Region
}

// Take gives a region of so many bytes.
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

// Give takes back a region that no rank writes to or opens any more; nil is none.
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

// Close gives the spare region's memory back.
func (p *Regions) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare != nil {
		p.spare.Close()
		p.spare = nil
	}
}
