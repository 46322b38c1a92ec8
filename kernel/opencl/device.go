package opencl

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// A Device is open: it has a queue, which carries out kernels and copies in their order.
type Device struct {
	Found
	open    C.cl_open
	callers [C.RECENT]Caller // of the latest kernels
	kernels map[kernelKey]C.cl_kernel
	built   map[[2]string]C.cl_program // by file and options
	tiles   bool                       // products go through local memory
	caches  bool                       // the driver keeps programs itself
	call    call
	proved  map[string]bool // the files of cl/ whose kernels are known to give the processor's bits; nil: they need not
	pool    pool

	// Uploads and Downloads count the copies between the processor's memory and the device's, and Copied those of each caller.
	Uploads, Downloads Copies
	Copied             map[Caller]Traffic
	uncounted          bool // what is copied now is not the recipe's
	// Caller, if set, says which call is being carried out.
	Caller func() Caller
	// Collect, if set, frees what is garbage.
	Collect func()

	waits atomic.Pointer[wait] // for the driver; nil: it is not waited for
}

type wait struct {
	since time.Time
	by    Caller
}

// wait notes that the driver is waited for until the result is called.
func (d *Device) wait() (done func()) {
	w := &wait{since: time.Now()}
	if d.Caller != nil {
		w.by = d.Caller()
	}
	d.waits.Store(w)
	return func() { d.waits.Store(nil) }
}

// Waits returns for how long the driver has been waited for, 0 if it is not, and by whom. Any goroutine may call it.
func (d *Device) Waits() (time.Duration, Caller) {
	if w := d.waits.Load(); w != nil {
		return time.Since(w.since), w.by
	}
	return 0, Caller{}
}

// Caller is a call of the recipe.
type Caller struct {
	Call, File   string
	Line, Column int32
}

// Position is where the call is, as file:line:column.
func (c Caller) Position() string { return fmt.Sprintf("%s:%d:%d", c.File, c.Line, c.Column) }

// Traffic are a caller's copies.
type Traffic struct{ Up, Down Copies }

// copied counts a copy to the device, or back.
func (d *Device) copied(up bool, bytes int) {
	if d.uncounted {
		return
	}
	to, of := &d.Downloads, func(t *Traffic) *Copies { return &t.Down }
	if up {
		to, of = &d.Uploads, func(t *Traffic) *Copies { return &t.Up }
	}
	to.add(bytes)
	if d.Caller != nil {
		at := d.Caller()
		t := d.Copied[at]
		of(&t).add(bytes)
		d.Copied[at] = t
	}
}

// Copies are counted.
type Copies struct{ Count, Bytes int }

func (c *Copies) add(bytes int) { c.Count, c.Bytes = c.Count+1, c.Bytes+bytes }

// Open opens a device. [Check] says whether it computes right.
func Open(f Found) (*Device, error) {
	switch {
	case !f.Usable:
		return nil, fmt.Errorf("the device %s (%s) is not available, or has no compiler", f.Device, f.Name)
	case !f.Float64:
		return nil, fmt.Errorf("the device %s (%s) cannot compute in float64, which sums and norms need", f.Device, f.Name)
	}
	// Asked for a binary, PoCL compiles all of a program's kernels for all sizes of groups.
	d := &Device{Found: f, tiles: f.GPU, caches: f.Platform == "Portable Computing Language", kernels: map[kernelKey]C.cl_kernel{}, built: map[[2]string]C.cl_program{}, Copied: map[Caller]Traffic{}}
	d.pool.limit = f.Memory
	d.pool.free = map[int][]C.cl_mem{}
	if code := C.drun_cl_open(&d.open, f.c.id); code != 0 {
		return nil, fmt.Errorf("the device %s (%s) cannot be opened: %s", f.Device, f.Name, codeText(int(code)))
	}
	return d, nil
}

// fail ends the function, as package try does. What a kernel fails of may be noticed long after it was put into the queue.
func (d *Device) fail(doing string, code C.int) {
	if code == 0 {
		return
	}
	late, of := "", code
	if i := C.drun_cl_failed(&d.open, &of); i >= 0 && d.callers[i].File != "" {
		late = fmt.Sprintf(", in a kernel that %s at %s had put into the queue", d.callers[i].Call, d.callers[i].Position())
		code = of
	}
	try.Fail("%s on %s (%s): %s%s", doing, d.Device, d.Name, codeText(int(code)), late)
}

// Finish waits until the queue is empty.
func (d *Device) Finish() {
	defer d.wait()()
	d.fail("waiting for kernels", C.drun_cl_finish(&d.open))
}

// Buffer is memory of a device; the zero value is none.
type Buffer struct {
	mem  C.cl_mem
	size int
}

// None reports whether there is no memory.
func (b Buffer) None() bool { return b.mem == nil }

// pool keeps buffers for reuse. The queue keeps their order: what is put into a buffer comes after all that was done with it.
type pool struct {
	sync.Mutex
	free              map[int][]C.cl_mem
	used, kept, limit int
}

// class rounds a size up to one of four classes for each power of two.
func class(bytes int) int {
	if bytes <= 256 {
		return 256
	}
	step := 1 << (int(math.Log2(float64(bytes-1))) - 2)
	return (bytes + step - 1) / step * step
}

// Get returns a buffer of undefined content. If memory is short, it calls Collect, once.
func (d *Device) Get(op string, bytes int) Buffer {
	size := class(bytes)
	p := &d.pool
	for again := false; ; again = true {
		p.Lock()
		if list := p.free[size]; len(list) > 0 && p.used+size <= p.limit {
			mem := list[len(list)-1]
			p.free[size] = list[:len(list)-1]
			p.kept -= size
			p.used += size
			p.Unlock()
			return Buffer{mem, size}
		}
		if p.used+p.kept+size > p.limit {
			p.trim()
		}
		var code C.int
		if p.used+size <= p.limit {
			if mem := C.drun_cl_buffer(&d.open, C.size_t(size), &code); code == 0 {
				p.used += size
				p.Unlock()
				return Buffer{mem, size}
			}
			p.trim()
		}
		used := p.used
		p.Unlock()
		if again || d.Collect == nil {
			fail(op, bytes, used, d, code)
		}
		d.Collect()
	}
}

func fail(op string, bytes, used int, d *Device, code C.int) {
	why := ""
	if code != 0 {
		why = ": " + codeText(int(code))
	}
	try.Fail("%s: cannot allocate %d bytes on %s (%s), where %d bytes are in use and %d are all%s; use smaller tensors or batches",
		op, bytes, d.Device, d.Name, used, d.pool.limit, why)
}

// Put gives a buffer back; kernels that are in the queue may still use it.
func (d *Device) Put(b Buffer) {
	if b.mem == nil {
		return
	}
	d.pool.Lock()
	d.pool.free[b.size] = append(d.pool.free[b.size], b.mem)
	d.pool.used -= b.size
	d.pool.kept += b.size
	d.pool.Unlock()
}

// trim releases what is kept; the pool is locked. OpenCL keeps memory until the kernels that use it are done.
func (p *pool) trim() {
	for size, list := range p.free {
		for _, mem := range list {
			C.drun_cl_release(mem)
		}
		p.kept -= size * len(list)
		delete(p.free, size)
	}
}

// Trim releases the memory that is kept for reuse.
func (d *Device) Trim() {
	d.pool.Lock()
	defer d.pool.Unlock()
	d.pool.trim()
}

// InUse returns how many bytes of buffers are in use, and how many are kept for reuse.
func (d *Device) InUse() (used, kept int) {
	d.pool.Lock()
	defer d.pool.Unlock()
	return d.pool.used, d.pool.kept
}

// Write copies bytes of the processor's memory into a buffer; it waits until they are read.
func (d *Device) Write(to Buffer, at int, from unsafe.Pointer, bytes int) {
	if bytes > 0 {
		d.copied(true, bytes)
		defer d.wait()()
		d.fail("copying to memory", C.drun_cl_write(&d.open, to.mem, C.size_t(at), C.size_t(bytes), (*C.char)(from)))
	}
}

// Read copies bytes of a buffer into the processor's memory; it waits for what was put into the queue before.
func (d *Device) Read(to unsafe.Pointer, from Buffer, at, bytes int) {
	if bytes > 0 {
		d.copied(false, bytes)
		defer d.wait()()
		d.fail("copying from memory", C.drun_cl_read(&d.open, from.mem, C.size_t(at), C.size_t(bytes), (*C.char)(to)))
	}
}

// call collects a kernel's arguments. There is one for each device, so that a launch allocates nothing.
type call struct {
	sizes     [40]uint16
	words     [128]uint64
	arguments int
	used      int
}

func (c *call) put(size int, words ...uint64) *call {
	c.sizes[c.arguments] = uint16(size)
	c.arguments++
	c.used += copy(c.words[c.used:], words)
	return c
}

func (c *call) long(n int) *call { return c.put(8, uint64(n)) }
func (c *call) longs(n ...int) *call {
	for _, v := range n {
		c.put(8, uint64(v))
	}
	return c
}
func (c *call) int32(n int) *call { return c.put(4, uint64(uint32(int32(n)))) }
func (c *call) flag(b bool) *call {
	if b {
		return c.int32(1)
	}
	return c.int32(0)
}
func (c *call) buffer(b Buffer) *call  { return c.put(8, uint64(uintptr(unsafe.Pointer(b.mem)))) }
func (c *call) double(x float64) *call { return c.put(8, math.Float64bits(x)) }

// place passes a buffer and where in it an operand begins, in elements.
func (c *call) place(p Place) *call { return c.buffer(p.Buffer).long(p.At) }

// real passes a number of a kernel's real type.
func (c *call) real(dt dtype.Type, x float64) *call {
	if dt == dtype.Float64 {
		return c.double(x)
	}
	return c.put(4, uint64(math.Float32bits(float32(x))))
}

func (c *call) reals(dt dtype.Type, x ...float64) *call {
	for _, v := range x {
		c.real(dt, v)
	}
	return c
}

// Place is where an operand begins: At elements into a buffer.
type Place struct {
	Buffer Buffer
	At     int
}

// Plus is the place n elements after p, or none.
func (p Place) Plus(n int) Place {
	p.At += n
	return p
}

func (d *Device) begin() *call {
	d.call.arguments, d.call.used = 0, 0
	return &d.call
}

// launch puts a kernel with the collected arguments into the queue: groups of local work-items in up to three dimensions.
func (d *Device) launch(k C.cl_kernel, groups, local [3]int) {
	if groups[0]*groups[1]*groups[2] == 0 {
		return
	}
	var g, l [3]C.size_t
	for i := range g {
		g[i], l[i] = C.size_t(groups[i]*local[i]), C.size_t(local[i])
	}
	c := &d.call
	if d.Caller != nil {
		d.callers[d.open.next] = d.Caller()
	}
	code := C.drun_cl_launch(&d.open, k, C.int(c.arguments), (*C.uint16_t)(&c.sizes[0]), (*C.uint64_t)(&c.words[0]), 3, &g[0], &l[0])
	d.fail("starting a kernel", code)
}

// line launches n work-items.
func (d *Device) line(k C.cl_kernel, n int) {
	const group = 64
	d.launch(k, [3]int{(n + group - 1) / group, 1, 1}, [3]int{group, 1, 1})
}

// Limit lets at most so many bytes be in use.
func (d *Device) Limit(bytes int) {
	d.pool.Lock()
	defer d.pool.Unlock()
	d.pool.limit = min(d.pool.limit, bytes)
}

// Ok ends the function if a step failed, as package try does.
func (d *Device) Ok(err error) { try.Ok(err) }
