package shm

import (
	"sync/atomic"
	"unsafe"

	"drun/collective/messages"
	"drun/collective/sharedmem"
)

// A ring carries the messages from one rank to another: a header, then the
// data, rounded up to whole words, as space allows. One goroutine at a
// time writes, one reads.
type ring struct {
	*ringControl
	data []byte
}

type ringControl struct {
	written atomic.Uint64 // bytes, ever
	_       [sharedmem.CacheLine - 8]byte
	read    atomic.Uint64
	_       [sharedmem.CacheLine - 8]byte
}

const ringData = ringSize - 2*sharedmem.CacheLine

func (c *Comm) ring(from, to int) ring {
	at := c.layout.rings + (from*c.size+to)*ringSize
	return ring{sharedmem.At[ringControl](c.mem, at), c.mem[at+2*sharedmem.CacheLine : at+ringSize]}
}

// headerBytes is the size of a header in a ring: whole words.
const headerBytes = int(unsafe.Sizeof(messages.Header{}))

func wordRound(n int) int { return (n + 7) &^ 7 }

// write writes as much of data as fits, and returns how much that was.
func (r ring) write(data []byte) int {
	written := r.written.Load()
	space := ringData - int(written-r.read.Load())
	n := min(space, wordRound(len(data)))
	if n == 0 {
		return 0
	}
	at := int(written % ringData)
	part := data[:min(n, len(data))]
	if k := copy(r.data[at:], part); k < len(part) {
		copy(r.data, part[k:])
	}
	r.written.Add(uint64(n))
	return min(n, len(data))
}

func (r ring) available() int { return int(r.written.Load() - r.read.Load()) }

// fetch reads what there is into data, and returns how much that was.
func (r ring) fetch(data []byte) int {
	n := min(r.available(), wordRound(len(data)))
	if n == 0 {
		return 0
	}
	at := int(r.read.Load() % ringData)
	part := data[:min(n, len(data))]
	if k := copy(part, r.data[at:]); k < len(part) {
		copy(part[k:], r.data)
	}
	r.read.Add(uint64(n))
	return min(n, len(data))
}
