package tensor

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// reduced are the sizes of a context's tensors that Move was called for. A program that reduces new tensors, such as each step's
// gradients, makes more of the same sizes: those come to lie in the pool from the start, as far as it has room, and are
// reduced there without a copy. Memory for all tensors would not do: it is not of huge pages.
type reduced struct {
	known atomic.Bool // there are sizes

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

// alloc gives s memory of the pool; false: it is of another size, or there is none.
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

// spare gives memory where at most half of the pool is taken: the rest is for what is reduced again and again. Where there is
// none other memory does as well, so that no collection is worth waiting for but one that is due.
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
