package tensor

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// reduced holds the sizes of a context's tensors for which Move was called. A program that reduces new tensors, such
// as each step's gradients, makes more of the same sizes: those are allocated in the pool from the start, as far as it
// has room, and reduced there without a copy. Other tensors do not use it, since it has no huge pages.
type reduced struct {
	known atomic.Bool // whether there are sizes

	mu      sync.Mutex // readers of data make tensors meanwhile
	pool    *Pool
	classes map[int]bool
}

func (r *reduced) note(bytes int, p *Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool != p {
		r.pool, r.classes = p, map[int]bool{}
	}
	r.classes[classBytes(bytes)] = true
	r.known.Store(true)
}

// alloc gives s memory of the pool; false if its size was not reduced, or the pool has none.
func (r *reduced) alloc(s *Storage, bytes int) bool {
	if bytes < pooledBytes || !r.known.Load() {
		return false
	}
	r.mu.Lock()
	p, ok := r.pool, r.classes[classBytes(bytes)]
	r.mu.Unlock()
	if !ok {
		return false
	}
	ptr := p.spare(bytes)
	if ptr == nil {
		return false
	}
	s.bytes = bytes
	s.take(p, ptr)
	return true
}

// spare returns memory while at most half of the pool is used: the rest is for tensors that are reduced repeatedly. Ordinary
// memory is a good substitute, so only a collection that is due anyway is worth waiting for.
func (p *Pool) spare(bytes int) unsafe.Pointer {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := classBytes(bytes)
	if ptr := p.again(size, false); ptr != nil {
		return ptr
	}
	more := size
	if size < ownBytes {
		if more = ownBytes; len(p.slab) >= size {
			more = 0
		}
	}
	if p.mapped+more > p.limit()/2 {
		return nil
	}
	ptr := p.carve(size)
	if ptr != nil {
		p.used += size
	}
	return ptr
}
