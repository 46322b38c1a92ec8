package tensor

import (
	"math/bits"
	"os"
	"unsafe"
)

// A training step makes the same tensors as the step before. So whatever a step discards, header and memory, is kept
// for the next tensor of that size: most steps then make no garbage except tensors that the recipe can see, and write
// to memory that is still in the processor's caches. Only tensors that provably have no references are kept: those
// that Discard was called for, and gradients in flight; and the nodes of such tensors, once their graph is freed.

// spares holds the tensors that a context keeps, by size class.
type spares struct {
	off  bool // DRUN_PLAN=off: everything is left to the garbage collector and the pool
	free [spareClasses]([]*Tensor)

	nodes []*node // of graphs that were freed, see recycle
}

const (
	spareClasses = 34
	inlineOf     = spareClasses - 2 // the header's own memory
	pooledOf     = spareClasses - 1 // only the header: its memory was returned to the pool
	maxSpare     = 64               // tensors of a class; more are left to Go's collector
	firstClass   = 7                // bits of the smallest size that has separate memory
)

// spoil fills kept memory with NaN, so that tests notice reads of it.
var spoil bool

// Spoil is for tests: from now on kept memory is filled with NaN.
func Spoil() { spoil = true }

// spoilt fills memory with NaN.
func spoilt(ptr unsafe.Pointer, bytes int) {
	b := unsafe.Slice((*byte)(ptr), bytes)
	for i := range b {
		b[i] = 0xff
	}
}

func newSpares() spares { return spares{off: os.Getenv("DRUN_PLAN") == "off"} }

// spareClass returns the class of a size, and the size of its tensors in bytes: there are four classes for each power of two.
func spareClass(size int) (class uint8, bytes int) {
	switch {
	case size <= inlineBytes:
		return inlineOf, inlineBytes
	case size >= pooledBytes:
		return pooledOf, size
	}
	n := bits.Len(uint(size - 1))
	step := 1 << (n - 3)
	bytes = (size + step - 1) / step * step
	if bytes >= pooledBytes {
		return pooledOf, bytes // the pool has the same class for both sizes
	}
	return uint8((n-firstClass)*4 + (bytes-1)/step&3), bytes
}

// take returns a kept tensor, nil if there is none.
func (s *spares) take(class uint8) *Tensor {
	list := s.free[class]
	if len(list) == 0 {
		return nil
	}
	t := list[len(list)-1]
	list[len(list)-1] = nil // otherwise the list would keep its next memory alive
	s.free[class] = list[:len(list)-1]
	t.st.home = t
	return t
}

// keep keeps a tensor, made by newTensor, that has no remaining references.
func (c *Context) keep(t *Tensor) {
	s := t.st
	if c.spares.off || s.pins > 0 || t.leaf != nil || t.grad != nil || t.frozen || t.requiresGrad && t.node == nil {
		return
	}
	list := &c.spares.free[s.class]
	if len(*list) >= maxSpare {
		return
	}
	if spoil && s.ptr != nil {
		spoilt(s.ptr, s.bytes)
	}
	if t.node != nil {
		t.node.refs--
	}
	ptr, class := s.ptr, s.class
	*s = Storage{ptr: ptr, class: class} // without a home, so that it cannot be kept twice
	*t = Tensor{st: s}
	*list = append(*list, t)
}

// newNode returns a node of a graph that was freed, or a new one.
func (c *Context) newNode() *node {
	list := c.spares.nodes
	if len(list) == 0 {
		return new(node)
	}
	n := list[len(list)-1]
	list[len(list)-1] = nil
	c.spares.nodes = list[:len(list)-1]
	return n
}

// recycle keeps those nodes of a pass that were freed and that neither a tensor nor another node refers to: their
// tensors were kept, and the operations on these are over. A tensor that the recipe may hold keeps its node,
// which records that its graph is freed.
func (c *Context) recycle(pass []*node) {
	if c.spares.off {
		return
	}
	for _, n := range pass {
		if n.freed && n.refs == 0 && len(c.spares.nodes) < maxSpare {
			*n = node{}
			c.spares.nodes = append(c.spares.nodes, n)
		}
	}
}
