package record

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"drun/collective/sharedmem"
	"drun/engine"
)

// region is memory through which a checkpoint's data goes to the ranks of this machine and from
// them. It has no name outside of this process, and ends with it.
type region struct {
	file    *os.File
	number  uint64
	mem     []byte
	used    int64             // bytes, from its beginning
	written int64             // bytes from its beginning that have their memory
	holds   map[int64]content // of the save before, by offset, see reuse
	lent    atomic.Bool       // ranks may read it for as long as they live
}

// WriteAt does not write into the mapping, in which a lack of memory would be the end of the process.
func (g *region) WriteAt(data []byte, offset int64) (int, error) {
	n, err := g.file.WriteAt(data, offset)
	if err != nil {
		err = fmt.Errorf("cannot hold %d bytes of a checkpoint in memory: %w", len(data), err)
	}
	return n, err
}

// lend is for a rank of this machine that restores its part of a checkpoint from the file.
func (g *region) lend(to *engine.Restored) {
	g.lent.Store(true)
	to.File, to.Size = g.path(), g.used
}

// ask is for a rank of this machine that hands over its part of a checkpoint.
func (g *region) ask(spans []engine.Span) *engine.HandOver {
	return &engine.HandOver{File: g.path(), Region: g.number, Size: g.used, Written: g.used <= g.written, Spans: spans}
}

// path is where the ranks of this machine can open it.
func (g *region) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), g.file.Fd()) }

func (g *region) close() {
	_ = sharedmem.Unmap(g.mem)
	g.file.Close()
}

var regionNumber atomic.Uint64

// regions keeps one that is not in use for the next checkpoint: memory that the kernel has already
// given is written to several times faster.
type regions struct {
	mu    sync.Mutex
	spare *region
}

// take gives a region of so many bytes.
func (p *regions) take(bytes int64) (*region, error) {
	p.mu.Lock()
	g := p.spare
	p.spare = nil
	p.mu.Unlock()
	size := sharedmem.PageRound(int(bytes))
	if g != nil && size <= len(g.mem) && len(g.mem) <= 2*size {
		g.used = bytes
		return g, nil
	}
	if g != nil {
		g.close()
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
	return &region{file: file, number: regionNumber.Add(1), mem: mem, used: bytes}, nil
}

// give takes back a region that no rank writes to or opens any more; nil is none.
func (p *regions) give(g *region) {
	if g == nil {
		return
	}
	if g.lent.Load() {
		g.close()
		return
	}
	p.mu.Lock()
	g, p.spare = p.spare, g
	p.mu.Unlock()
	if g != nil {
		g.close()
	}
}

// close gives the spare region's memory back.
func (p *regions) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare != nil {
		p.spare.close()
		p.spare = nil
	}
}
