package tensor

import (
	"runtime"
	"unsafe"
)

// A Storage is the memory behind a tensor and all its views.
type Storage struct {
	ptr     unsafe.Pointer
	bytes   int
	version uint32    // counts in-place changes
	holds   int32     // graph nodes and gradients in flight that need the bytes
	temp    bool      // discarded: goes back to its pool when holds reaches 0
	asked   bool      // Move was called before
	pins    int32     // how often Pin was called: it stays where it is
	shapes  bool      // there is no memory, see Context.Shapes
	gone    bool      // its memory comes and goes, see Sheet
	flat    bool      // an optimizer's buffer: the gaps between its tensors are unused
	owner   any       // keeps ptr's memory alive
	class   uint8     // the size's class, see spares
	home    *Tensor   // the tensor that was made with it, until it is discarded
	pool    *Pool     // the pool that ptr is from; nil: Go's heap, or the owner's memory
	dev     *onDevice // nil: there is only ptr
	cleanup runtime.Cleanup
}

// Tensors up to this size live in the same allocation as their header.
const inlineBytes = 64

// From this size on, memory comes from the pool rather than Go's heap.
const pooledBytes = 16 << 10

type inlineTensor struct {
	Tensor
	Storage
	data [inlineBytes / 8]uint64
}

type ownedTensor struct {
	Tensor
	Storage
}

// FromMemory wraps memory of another owner, such as a shared mapping. owner
// is kept reachable as long as a tensor uses the memory.
func FromMemory(ptr unsafe.Pointer, bytes int, owner any) *Storage {
	return &Storage{ptr: ptr, bytes: bytes, owner: owner}
}

func (s *Storage) Bytes() int { return s.bytes }

// alloc gives s its memory; its content is undefined.
func (s *Storage) alloc(op string, bytes int) error { return s.allocFrom(pool, op, bytes) }

func (s *Storage) allocFrom(p *Pool, op string, bytes int) error {
	s.bytes = bytes
	if bytes < pooledBytes && p.disk == nil {
		s.ptr = unsafe.Pointer(unsafe.SliceData(make([]uint64, (bytes+7)/8)))
		return nil
	}
	ptr, err := p.get(op, bytes)
	if err != nil {
		return err
	}
	s.take(p, ptr)
	return nil
}

// take makes ptr, from p, the memory of s.
func (s *Storage) take(p *Pool, ptr unsafe.Pointer) {
	s.ptr, s.pool = ptr, p
	s.cleanup = runtime.AddCleanup(s, func(b block) { b.pool.put(b.ptr, b.bytes) }, block{p, ptr, s.bytes})
}

type block struct {
	pool  *Pool
	ptr   unsafe.Pointer
	bytes int
}

// Move moves the bytes behind t and all its views into memory of p, if it has any left, when it is called for the second
// time: moving a tensor that is used only once would cost more than it saves. Later tensors of t's size are allocated there,
// while half of p is free. Only large tensors are moved, and none that is pinned, an optimizer's, or a small part of its storage.
func Move(t *Tensor, p *Pool) {
	s := t.st
	if !s.asked {
		s.asked = true
		if s.pool != nil && t.ctx != nil {
			t.ctx.reduced.note(s.bytes, p)
		}
		return
	}
	if s.pool != pool || s.pins > 0 || s.ptr == nil || 2*t.n*t.dtype.Size() < s.bytes {
		return
	}
	ptr, err := p.get("", s.bytes)
	if err != nil {
		return
	}
	copy(unsafe.Slice((*byte)(ptr), s.bytes), unsafe.Slice((*byte)(s.ptr), s.bytes))
	s.cleanup.Stop()
	pool.put(s.ptr, s.bytes)
	s.take(p, ptr)
}

// Pin keeps the bytes behind t on the host, where they are, since their address is in use until Unpin.
func Pin(t *Tensor) {
	if t.st.dev != nil {
		t.st.toHost()
	}
	t.st.pins++
}

// Unpin undoes a call of Pin.
func Unpin(t *Tensor) { t.st.pins-- }

// hold and release count users of the bytes other than the program's own variables.
func (s *Storage) hold() { s.holds++ }

func (s *Storage) release() {
	s.holds--
	if s.holds == 0 && s.temp {
		s.free()
	}
}

// discard marks the storage as one that the program no longer refers to.
func (s *Storage) discard() {
	s.temp = true
	if s.holds <= 0 {
		s.free()
	}
}

func (s *Storage) free() {
	if s.dev != nil {
		s.freeDevice()
		return
	}
	if s.pool != nil && s.ptr != nil {
		s.cleanup.Stop()
		if spoil {
			spoilt(s.ptr, s.bytes)
		}
		s.pool.put(s.ptr, s.bytes)
		s.ptr = nil
	}
	if t := s.home; t != nil && t.st == s && t.ctx != nil {
		t.ctx.keep(t)
	}
}

// Discard marks t as unused, and all its views, except by a backward pass that needs them: the memory is reused as
// soon as possible. A tensor that a recipe may hold must not be discarded.
func Discard(t *Tensor) { t.st.discard() }

// Transient marks t as needed only for one backward pass, which then frees its memory: it has no name in the recipe.
// It is meant for an operation's result; it does nothing to a tensor that anything else may refer to, such as a view.
func (t *Tensor) Transient() {
	s := t.st
	t.transient = (s.pool != nil && s.ptr != nil || s.dev != nil && !s.dev.freed) && s.home == t && t.ctx != nil && !t.ctx.spares.off && !t.ctx.watched() && !s.temp &&
		s.pins == 0 && !s.gone && !s.flat && !t.view && !t.frozen && t.leaf == nil && t.grad == nil && t.node != nil
}

// SharesStorage reports whether a and b are views of the same memory.
func SharesStorage(a, b *Tensor) bool { return a.st == b.st }
