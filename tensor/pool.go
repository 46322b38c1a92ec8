package tensor

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"drun/internal/memory"
	"drun/kernel/opencl"
)

// A Pool allocates large buffers. Go's garbage collector does not see this memory, so the pool counts what is in use
// and starts a collection itself when much of it may be garbage; so a training loop reuses the same buffers. The
// collection runs alongside the computation, which waits for it only if there would be too much garbage otherwise.
type Pool struct {
	mu      sync.Mutex
	source  func(bytes int) []byte   // provides zeroed memory permanently; nil: the pool maps it
	free    map[int][]unsafe.Pointer // free buffers, by class size
	slab    []byte                   // the rest of the last mapping for small classes
	used    int                      // bytes handed out
	base    int                      // used after the last collection
	mapped  int
	maxUsed int           // the limit of used; negative: what the process may use besides Go's heap
	disk    *disk         // whose file the memory is; nil: it is memory
	ends    chan struct{} // closed when the collection in progress has ended; nil: there is none
}

const (
	slabBytes = 32 << 20 // shared by small classes
	ownBytes  = 4 << 20  // from this size on, a class has its own mappings
	hugePage  = 2 << 20
	slack     = 64 << 20 // the garbage to tolerate before waiting for a collection
)

// hostDevice is a device whose memory is this process's.
var hostDevice atomic.Pointer[opencl.Device]

var pool = &Pool{free: map[int][]unsafe.Pointer{}, maxUsed: -1}

func init() {
	memory.Outside(func() (used, kept int) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		used, kept = pool.used, pool.mapped-pool.used
		if d := hostDevice.Load(); d != nil {
			u, k := d.InUse()
			used, kept = used+u, kept+k
		}
		return used, kept
	}, func() {
		if d := hostDevice.Load(); d != nil {
			d.Trim()
		}
		pool.mu.Lock()
		defer pool.mu.Unlock()
		pool.trim()
	})
}

// NewPool makes a pool of at most limit bytes of memory from source, which returns nil when it has no more.
func NewPool(limit int, source func(bytes int) []byte) *Pool {
	return &Pool{source: source, free: map[int][]unsafe.Pointer{}, maxUsed: limit}
}

// Bytes returns n bytes of uninitialised memory, permanently; nil if there is no more.
func (p *Pool) Bytes(n int) []byte {
	ptr, err := p.get("", n)
	if err != nil {
		return nil
	}
	return unsafe.Slice((*byte)(ptr), n)
}

// classBytes rounds a size up to one of four classes per power of two, so that memory can be reused for similar sizes.
func classBytes(n int) int {
	step := 1 << max(bits.Len(uint(n-1))-3, 12)
	return (n + step - 1) / step * step
}

func (p *Pool) get(op string, bytes int) (unsafe.Pointer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes > p.limit() && p.maxUsed < 0 && bytes <= memory.Limit() {
		p.collect() // Go's heap may have become smaller since it was last measured
	}
	if bytes > p.limit() {
		return nil, p.refuse(op, bytes)
	}
	size := classBytes(bytes)
	if ptr := p.again(size, p.used+size > p.limit()); ptr != nil {
		return ptr, nil
	}
	if p.mapped+size > p.limit() {
		p.trim()
	}
	if p.maxUsed < 0 && size > memory.Limit()/64 {
		memory.Look()
	}
	if p.used+size > p.limit() {
		return nil, p.refuse(op, bytes)
	}
	ptr := p.carve(size)
	if ptr == nil {
		return nil, p.refuse(op, bytes)
	}
	p.used += size
	return ptr, nil
}

func (p *Pool) take(size int) unsafe.Pointer {
	list := p.free[size]
	if len(list) == 0 {
		return nil
	}
	ptr := list[len(list)-1]
	p.free[size] = list[:len(list)-1]
	p.used += size
	return ptr
}

func (p *Pool) put(ptr unsafe.Pointer, bytes int) {
	size := classBytes(bytes)
	p.mu.Lock()
	p.free[size] = append(p.free[size], ptr)
	p.used -= size
	p.mu.Unlock()
}

// again returns freed memory, nil if there is none. It starts collections that free garbage; if the pool
// is full, one that finds all garbage.
func (p *Pool) again(size int, full bool) unsafe.Pointer {
	if ptr := p.take(size); ptr != nil {
		return ptr
	}
	switch garbage, limit := p.used-p.base, max(slack, p.base/8); {
	case full:
		p.collect()
	case garbage > limit:
		p.begin()
		p.await()
	case garbage > limit/4*3:
		p.begin()
		return nil
	default:
		return nil
	}
	return p.take(size)
}

// collect frees everything that is garbage now: a collection in progress may have begun before it became garbage.
func (p *Pool) collect() {
	p.await()
	p.begin()
	p.await()
	memory.Look()
}

// await waits for the collection in progress.
func (p *Pool) await() {
	if ends := p.ends; ends != nil {
		p.mu.Unlock()
		<-ends
		p.mu.Lock()
	}
}

// begin starts Go's collector, unless it is already running for this pool, and then gives the cleanups that free buffers a moment.
func (p *Pool) begin() {
	if p.ends != nil {
		return
	}
	p.ends = make(chan struct{})
	go func() {
		runtime.GC()
		p.mu.Lock()
		defer p.mu.Unlock()
		for range 20 {
			used := p.used
			p.mu.Unlock()
			time.Sleep(50 * time.Microsecond)
			p.mu.Lock()
			if p.used == used {
				break
			}
		}
		close(p.ends)
		p.base, p.ends = p.used, nil
	}()
}

// carve maps fresh memory: separate mappings for large classes, so that trim can unmap them, and slices of a shared
// one for small classes.
func (p *Pool) carve(size int) unsafe.Pointer {
	if size < ownBytes {
		if len(p.slab) < size {
			if p.slab = p.newSlab(); p.slab == nil {
				return nil
			}
		}
		ptr := unsafe.Pointer(unsafe.SliceData(p.slab))
		p.slab = p.slab[size:]
		return ptr
	}
	m := p.mmap(size)
	if m == nil {
		return nil
	}
	if p.source == nil {
		_ = syscall.Madvise(m, syscall.MADV_HUGEPAGE) // only a hint
	}
	return unsafe.Pointer(unsafe.SliceData(m))
}

// newSlab maps huge pages for small classes: a model's activations fill more small pages than the processor's TLB holds.
func (p *Pool) newSlab() []byte {
	if p.source != nil {
		return p.mmap(ownBytes)
	}
	m := p.mmap(slabBytes + hugePage)
	if m == nil {
		return nil
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(m))) % hugePage
	m = m[skip:][:slabBytes]
	_ = syscall.Madvise(m, syscall.MADV_HUGEPAGE)
	return m
}

func (p *Pool) mmap(size int) []byte {
	if p.source != nil {
		m := p.source(size)
		p.mapped += len(m)
		return m
	}
	// syscall.Mmap would keep a map entry per mapping, and Munmap needs the same slice.
	ptr, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, uintptr(size),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
	if errno != 0 {
		return nil
	}
	p.mapped += size
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&ptr))), size)
}

// Reclaim returns to the system the memory of tensors that have become garbage at once, such as what parameters had before they were moved,
// if it is large. It returns the bytes of garbage that are left.
func Reclaim(garbage int) (left int) {
	if garbage < slack {
		return garbage
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.collect()
	pool.trim()
	return 0
}

// trim returns free large buffers to the system.
func (p *Pool) trim() {
	if p.source != nil {
		return
	}
	for size, list := range p.free {
		if size < ownBytes {
			continue
		}
		for _, ptr := range list {
			_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, uintptr(ptr), uintptr(size), 0)
			p.mapped -= size
		}
		delete(p.free, size)
	}
}

func (p *Pool) refuse(op string, bytes int) error {
	if p.disk != nil {
		return p.disk.refuse(op, bytes)
	}
	beside := ""
	limit := p.maxUsed
	if limit < 0 {
		limit = memory.Limit()
		if heap := memory.Heap(); heap > limit/16 {
			beside = fmt.Sprintf(" and %d by other values", heap)
		}
	}
	return fmt.Errorf("%s: cannot allocate %d bytes: %d bytes are in use%s and this rank may use %d of this machine; use smaller tensors or batches",
		op, bytes, p.used, beside, limit)
}

// MemoryStats describes the pool of large buffers, in bytes.
type MemoryStats struct {
	InUse int // handed out to tensors that are alive or not yet collected
	Limit int // an allocation beyond this is an error
}

// Memory reports the pool's state.
func Memory() MemoryStats {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	return MemoryStats{pool.used, memory.Limit()}
}

// limit returns how much may be in use; p.mu is held.
func (p *Pool) limit() int {
	if p.maxUsed < 0 {
		return memory.Limit() - memory.Heap()
	}
	return p.maxUsed
}

// MaxValues returns how many numbers may exist outside tensors at once, for instance in lists, where each takes some
// ten times its size.
func MaxValues() int { return memory.Limit() / 128 }
