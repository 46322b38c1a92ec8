package tensor

import (
	"hash/fnv"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"drun/internal/memory"
	"drun/kernel/opencl"
)

// Tensors of a context with a device are computed there, where it has a kernel, and on the processor otherwise. Their
// memory then has a copy on the host, one on the device, or both, of which at least one is current:
//
//   - Storage.ptr is the host's copy only if that alone is current. While the device's copy is, it is nil, so that every access on the
//     host comes by Storage.missing, which brings the elements back.
//   - ptr, ptrAt, Bytes and Elems give memory that may be written, so the device's copy is no longer current; read and Values
//     leave both so.
//   - read of a device gives a buffer with the current elements; write one that alone is current.
//
// Memory that others know the address of stays on the host: what the device reads there is copied every time.

// onDevice is what a Storage has besides its memory on the host.
type onDevice struct {
	device  *device
	buffer  opencl.Buffer
	host    unsafe.Pointer // the host's memory while Storage.ptr is nil; nil: there is none yet
	sum     uint64         // of the host's copy while others may not write it, if spoil
	here    bool           // the device's copy is current
	there   bool           // host's is
	freed   bool
	cleanup runtime.Cleanup
}

// device is a context's.
type device struct {
	*opencl.Device
	// Of the operation that has begun last; its kernels are in the queue when the next one begins.
	loans []opencl.Buffer // of copies for it alone
	using []*Storage      // which must not become garbage before: their buffers would be used again

	base int // bytes in use after the last collection
}

// UseDevice makes d compute c's tensors from now on.
func (c *Context) UseDevice(d *opencl.Device) {
	c.device = &device{Device: d}
	d.Collect = c.device.collect
	if !d.GPU { // its memory is this process's
		d.Limit(memory.Limit())
		hostDevice.Store(d)
	}
}

// Device returns the device that computes c's tensors, nil for the processor.
func (c *Context) Device() *opencl.Device {
	if c.device == nil {
		return nil
	}
	return c.device.Device
}

// on returns the device on which an operation with this result is computed, nil for the processor. Integers of which the host has
// a current copy, such as a batch's labels, are computed there: it checks them, too.
func (t *Tensor) on(of ...*Tensor) *device {
	if t.ctx == nil || t.ctx.device == nil {
		return nil // without a device, this costs next to nothing
	}
	return t.placed(of)
}

func (t *Tensor) placed(of []*Tensor) *device {
	if t.st.stays() || t.st.shapes {
		return nil
	}
	if !t.dtype.IsFloat() && len(of) > 0 && !slices.ContainsFunc(of, func(x *Tensor) bool { return x.dtype.IsFloat() || !x.st.hosted() }) {
		return nil
	}
	d := t.ctx.device
	for _, b := range d.loans {
		d.Put(b)
	}
	d.loans = d.loans[:0]
	clear(d.using)
	d.using = d.using[:0]
	return d
}

// hosted reports whether the host's copy is current.
func (s *Storage) hosted() bool { return s.ptr != nil || s.dev != nil && s.dev.there }

// stays reports whether the memory must stay on the host, where others use its address.
func (s *Storage) stays() bool {
	return s.pins > 0 || s.owner != nil || s.gone || s.pool != nil && s.pool.disk != nil
}

// collectAlways is for tests: what is garbage is used again at once.
var collectAlways bool

// get returns a buffer. Garbage is collected when much may have become so: Go's collector does not see buffers.
func (d *device) get(bytes int) opencl.Buffer {
	if used, _ := d.InUse(); used+bytes > d.base+max(4*slack, d.base/2) || collectAlways {
		d.collect()
	}
	return d.Get("tensor", bytes)
}

func (d *device) collect() {
	runtime.GC()
	for range 20 { // a moment for the cleanups that free buffers
		before, _ := d.InUse()
		time.Sleep(50 * time.Microsecond)
		if used, _ := d.InUse(); used == before {
			break
		}
	}
	d.base, _ = d.InUse()
}

// hold gives s a buffer.
func (d *device) hold(s *Storage) *onDevice {
	o := s.dev
	if o == nil {
		o = &onDevice{device: d}
		s.dev = o
	}
	if o.freed {
		panic("the memory of a tensor was freed before its last use")
	}
	if o.buffer.None() {
		o.buffer = d.get(s.bytes)
		o.cleanup = runtime.AddCleanup(s, func(b opencl.Buffer) { d.Put(b) }, o.buffer)
	}
	if s.ptr != nil {
		o.host, s.ptr, o.there, o.here = s.ptr, nil, true, false
	}
	d.using = append(d.using, s)
	return o
}

// read returns where t's elements are on the device.
func (d *device) read(t *Tensor) opencl.Place {
	s, size := t.st, t.dtype.Size()
	if s.stays() {
		first, n := t.ptr(), t.span()*size
		b := d.get(n)
		d.loans = append(d.loans, b)
		d.Write(b, 0, first, n)
		return opencl.Place{Buffer: b}
	}
	if s.shapes {
		panic(NoElementsError{})
	}
	o := d.hold(s)
	switch {
	case !o.here && o.there:
		d.Write(o.buffer, 0, o.host, s.bytes)
		o.seal(s)
	case o.there:
		o.unbroken(s)
	}
	o.here = true
	return opencl.Place{Buffer: o.buffer, At: t.off}
}

// write is read for elements that will be written; all that the operation reads must have been read before. The old ones are not copied if t
// is all of its memory.
func (d *device) write(t *Tensor) opencl.Place {
	if t.n*t.dtype.Size() == t.st.bytes {
		d.hold(t.st).here = true
	} else {
		d.read(t)
	}
	o := t.st.dev
	if o.there && spoil {
		spoilt(o.host, t.st.bytes)
	}
	if o.there = false; o.host != nil {
		o.seal(t.st)
	}
	return opencl.Place{Buffer: o.buffer, At: t.off}
}

// change is write for an operation that also reads what it writes.
func (d *device) change(t *Tensor) opencl.Place {
	d.read(t)
	return d.write(t)
}

// maybe is what use, one of read, write and change, gives for t, or no memory if t is nil.
func maybe(use func(*Tensor) opencl.Place, t *Tensor) opencl.Place {
	if t == nil {
		return opencl.Place{}
	}
	return use(t)
}

// mine reports whether tensors may be written on the device; nil is not written at all.
func (d *device) mine(ts ...*Tensor) bool {
	for _, t := range ts {
		if t != nil && t.st.stays() {
			return false
		}
	}
	return true
}

// deviceOf returns the device that computes c's tensors if it may write these; nil is not written at all.
func (c *Context) deviceOf(ts ...*Tensor) *device {
	for _, t := range ts {
		if t != nil && t.on() == nil {
			return nil
		}
	}
	return c.device
}

// zero sets all elements of t, which fills its part of memory without gaps.
func zero(t *Tensor) {
	if d := t.on(); d != nil {
		d.Copy(t.dtype, []int{t.n}, opencl.Operand{Place: d.write(t), Strides: []int{1}}, opencl.Operand{Strides: noStrides[:1]})
		return
	}
	clear(bytesOf(t))
}

// operand is read for elementwise operations. A plain number needs no memory.
func (d *device) operand(t *Tensor, strides []int) opencl.Operand {
	if t.span() == 1 && t.st.ptr != nil {
		return opencl.Operand{Number: t.bits(), Strides: strides}
	}
	return opencl.Operand{Place: d.read(t), Strides: strides}
}

// bits returns those of the first element, which is on the host.
func (t *Tensor) bits() (bits uint64) {
	size := t.dtype.Size()
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&bits)), size), unsafe.Slice((*byte)(t.ptr()), size))
	return bits
}

func (d *device) result(t *Tensor) opencl.Operand {
	return opencl.Operand{Place: d.write(t), Strides: t.strides}
}

// fetch makes the host's copy current.
func (s *Storage) fetch() {
	o := s.dev
	if o.freed {
		panic("the memory of a tensor was freed before its last use")
	}
	if o.host == nil {
		bytes := s.bytes
		o.device.Ok(s.alloc("tensor", max(bytes, 1)))
		o.host, s.ptr, s.bytes = s.ptr, nil, bytes
	}
	if o.here && !o.there {
		o.unbroken(s)
		o.device.Read(o.host, o.buffer, 0, s.bytes)
		o.seal(s)
	}
	o.there = true
}

// In tests (see spoil) the host's copy is sealed while the device's is current, too: it is an error of drun if anything writes to it through an
// address from before, unless it says so by [Tensor.Touched].
func (o *onDevice) seal(s *Storage) {
	if spoil {
		o.sum = checksum(o.host, s.bytes)
	}
}

func (o *onDevice) unbroken(s *Storage) {
	if spoil && o.sum != 0 && o.sum != checksum(o.host, s.bytes) {
		panic("a tensor's elements were written through an address from before an operation on the device")
	}
}

func checksum(p unsafe.Pointer, bytes int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(unsafe.Slice((*byte)(p), bytes)) // a hash takes everything
	return h.Sum64() | 1
}

// toHost makes the host's copy the current one.
func (s *Storage) toHost() {
	if s.ptr != nil {
		return
	}
	s.fetch()
	s.ptr, s.dev.host, s.dev.here, s.dev.sum = s.dev.host, nil, false, 0
}

// freeDevice frees both copies.
func (s *Storage) freeDevice() {
	o := s.dev
	if !o.buffer.None() {
		o.cleanup.Stop()
		o.device.Put(o.buffer)
		o.buffer = opencl.Buffer{}
	}
	if s.ptr == nil {
		s.ptr = o.host
	}
	if s.pool != nil && s.ptr != nil {
		s.cleanup.Stop()
		s.pool.put(s.ptr, s.bytes)
	}
	s.ptr, o.host, o.here, o.there, o.freed = nil, nil, false, false, true
}

// Contents are the bytes of a contiguous tensor, of which a part can be read.
type Contents struct{ of *Tensor }

// ContentsOf returns those of t.
func ContentsOf(t *Tensor) Contents { return Contents{t} }

// Len returns their number.
func (m Contents) Len() int { return m.of.n * m.of.dtype.Size() }

// Bytes returns some of them. If only the device has the elements, they alone are copied.
func (m Contents) Bytes(from, to int) []byte {
	o := m.of.st.dev
	if o == nil || !o.here || o.there || to-from == m.Len() {
		return m.of.Content()[from:to]
	}
	some := make([]byte, to-from)
	o.device.Read(unsafe.Pointer(unsafe.SliceData(some)), o.buffer, m.of.off*m.of.dtype.Size()+from, to-from)
	return some
}

// DeviceOf returns the device on which t is updated in place, and the functions that give where a tensor's elements are there: to be
// read, and to be changed. It is nil for the processor.
func DeviceOf(t *Tensor) (d *opencl.Device, read, change func(*Tensor) opencl.Place) {
	on := t.on()
	if on == nil {
		return nil, nil, nil
	}
	return on.Device, on.read, on.change
}
