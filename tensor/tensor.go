// Package tensor provides n-dimensional arrays with automatic differentiation, the functional forms of neural-network
// layers, losses and random numbers. Methods have PyTorch's meaning, shapes broadcast as in NumPy, and the same
// operations in the same order give the same bits. It knows nothing about recipes and ranks: starlib's modules call
// it, and it calls kernel for the arithmetic.
package tensor

import (
	"fmt"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// A Tensor is a view of a Storage: shape, strides and an offset, both in elements. Its address is its identity.
type Tensor struct {
	shape   []int
	strides []int
	n       int // number of elements
	off     int
	st      *Storage
	ctx     *Context
	node    *node   // how it was computed, if gradients flow through it
	grad    *Tensor // a leaf's gradient
	leaf    *leafState
	dtype   dtype.Type

	contiguous   bool
	requiresGrad bool
	frozen       bool
	number       bool   // stands for a plain number in promotion
	unseen       bool   // a gradient to which only its leaf refers
	view         bool   // shares memory with another tensor
	transient    bool   // see Transient
	made         uint32 // of a view: the storage's version when it was taken

	dims [8]int // shape and strides of up to four dimensions
}

// leafState holds what only some leaves need.
type leafState struct {
	slot    *Tensor             // where the gradient goes: a view of an optimizer's flat buffer
	ready   func(*Tensor) error // called when a backward pass has added the last part
	owner   *Flat               // the buffer of the optimizer that owns it
	pending int                 // parts still to come in this pass
	share   *Share              // if it is a part of a larger tensor
	placed  *Placement          // if it belongs to a model that ranks divide
}

func (t *Tensor) setDims(nd int) {
	if nd <= len(t.dims)/2 {
		t.shape = t.dims[:nd:nd]
		t.strides = t.dims[4 : 4+nd : 4+nd]
		return
	}
	d := make([]int, 2*nd)
	t.shape, t.strides = d[:nd:nd], d[nd:]
}

// newTensor allocates a contiguous tensor whose content is undefined.
func newTensor(op string, c *Context, shape []int, dt dtype.Type) *Tensor {
	n := try.To(countElems(op, shape))
	size := n * dt.Size()
	var t *Tensor
	if c != nil && c.Shapes {
		t = &Tensor{st: &Storage{bytes: size, shapes: true}}
	} else {
		t = c.fresh(op, size)
	}
	t.ctx, t.dtype, t.n, t.contiguous = c, dt, n, true
	t.setDims(len(shape))
	copy(t.shape, shape)
	setContiguous(t.strides, shape)
	return t
}

// fresh returns a tensor with its own memory, of undefined content: a discarded one, or a new one.
func (c *Context) fresh(op string, size int) *Tensor {
	class, bytes := spareClass(size)
	var t *Tensor
	if c != nil {
		if c.device != nil { // which operation is first to use the memory decides where it is
			t = &Tensor{st: &Storage{bytes: size, dev: &onDevice{device: c.device}}}
			t.st.home = t
			return t
		}
		t = c.spares.take(class)
	}
	switch {
	case t != nil && class != pooledOf:
	case class == inlineOf:
		b := new(inlineTensor)
		t, b.Tensor.st = &b.Tensor, &b.Storage
		t.st.ptr = unsafe.Pointer(&b.data)
	default:
		if t == nil && class == pooledOf {
			t = &Tensor{st: new(Storage)} // separate, so that the memory is freed when an optimizer moves a parameter
		} else if t == nil {
			b := new(ownedTensor)
			t, b.Tensor.st = &b.Tensor, &b.Storage
		}
		if c == nil || !c.reduced.alloc(t.st, bytes) {
			try.Ok(t.st.alloc(op, bytes))
		}
	}
	t.st.bytes, t.st.class, t.st.home = size, class, t
	return t
}

// viewOf makes a tensor on t's storage with room for nd dimensions.
func viewOf(t *Tensor, nd int) *Tensor {
	v := &Tensor{st: t.st, off: t.off, ctx: t.ctx, dtype: t.dtype, frozen: t.frozen, view: true, made: t.st.version}
	v.setDims(nd)
	return v
}

// alias is viewOf with t's shape and strides.
func alias(t *Tensor) *Tensor {
	v := viewOf(t, len(t.shape))
	copy(v.shape, t.shape)
	copy(v.strides, t.strides)
	return v
}

// seal sets the fields that follow from a view's shape and strides.
func (t *Tensor) seal() *Tensor {
	t.n = 1
	for _, d := range t.shape {
		t.n *= d
	}
	t.contiguous = isContiguous(t.shape, t.strides)
	return t
}

// Empty makes a tensor with undefined content.
func Empty(c *Context, shape []int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	return newTensor("empty", c, shape, dt), nil
}

// OnStorage makes a contiguous tensor on existing memory, offset elements in.
func OnStorage(c *Context, s *Storage, offset int, shape []int, dt dtype.Type) (*Tensor, error) {
	n, err := countElems("tensor", shape)
	if err != nil {
		return nil, err
	}
	if offset < 0 || (offset+n)*dt.Size() > s.bytes {
		return nil, fmt.Errorf("tensor: %d elements of %s at %d do not fit in %d bytes", n, dt, offset, s.bytes)
	}
	t := &Tensor{st: s, off: offset, ctx: c, dtype: dt}
	t.setDims(len(shape))
	copy(t.shape, shape)
	setContiguous(t.strides, shape)
	return t.seal(), nil
}

// Shape returns the sizes; the slice must not be changed.
func (t *Tensor) Shape() []int { return t.shape }

func (t *Tensor) Dim() int          { return len(t.shape) }
func (t *Tensor) Len() int          { return t.n }
func (t *Tensor) DType() dtype.Type { return t.dtype }
func (t *Tensor) Context() *Context { return t.ctx }

// IsContiguous reports whether the elements are in row-major order without gaps.
func (t *Tensor) IsContiguous() bool { return t.contiguous }

func (t *Tensor) Storage() *Storage { return t.st }

// Freeze makes in-place operations on t and its later views errors.
func (t *Tensor) Freeze() { t.frozen = true }

func (t *Tensor) Frozen() bool { return t.frozen }

// shapeOnly reports whether t has no elements: there is nothing to compute.
func (t *Tensor) shapeOnly() bool { return t.st.shapes }

// ptr returns the address of the first element. If there is none, it may be past the end of the memory.
func (t *Tensor) ptr() unsafe.Pointer {
	if t.st.ptr == nil {
		t.st.missing()
	}
	if t.n == 0 {
		return t.st.ptr
	}
	return unsafe.Add(t.st.ptr, t.off*t.dtype.Size())
}

// ptrAt returns the address off elements after the first.
func (t *Tensor) ptrAt(off int) unsafe.Pointer {
	if t.st.ptr == nil {
		t.st.missing()
	}
	return unsafe.Add(t.st.ptr, (t.off+off)*t.dtype.Size())
}

// read is ptr for elements that are only read.
func (t *Tensor) read() unsafe.Pointer {
	if t.st.dev == nil {
		return t.ptr()
	}
	if t.st.ptr == nil {
		t.st.fetch()
		return unsafe.Add(t.st.dev.host, t.off*t.dtype.Size())
	}
	return t.ptr()
}

// readAt is ptrAt for elements that are only read.
func (t *Tensor) readAt(off int) unsafe.Pointer { return unsafe.Add(t.read(), off*t.dtype.Size()) }

// readOr is read, or nil if t is nil.
func readOr(t *Tensor) unsafe.Pointer {
	if t == nil {
		return nil
	}
	return t.read()
}

// ptrOr returns t's address, or nil if t is nil.
func ptrOr(t *Tensor) unsafe.Pointer {
	if t == nil {
		return nil
	}
	return t.ptr()
}

// Bytes returns the memory of a contiguous tensor, not a copy; nil for any other. Whoever writes to it must call
// Touched, and keep t reachable meanwhile.
func (t *Tensor) Bytes() []byte {
	if !t.contiguous {
		return nil
	}
	return unsafe.Slice((*byte)(t.ptr()), t.n*t.dtype.Size())
}

// Content is Bytes of elements that are only read.
func (t *Tensor) Content() []byte {
	if !t.contiguous {
		return nil
	}
	return unsafe.Slice((*byte)(t.read()), t.n*t.dtype.Size())
}

// Touched records that t's elements were changed other than by the operations of this package.
func (t *Tensor) Touched() {
	t.st.version++
	if o := t.st.dev; o != nil && o.there { // while they were changed on the host, the device may have read them
		t.st.toHost()
	}
}

// Elems returns the storage from the first element on as a slice of T, long enough for every index that shape and strides can form.
func Elems[T any](t *Tensor) []T {
	if t.n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(t.ptr()), t.span())
}

// Values is Elems for elements that are only read.
func Values[T any](t *Tensor) []T {
	if t.n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(t.read()), t.span())
}

// span returns how many elements lie from t's first to its last.
func (t *Tensor) span() int {
	if t.n == 0 {
		return 0
	}
	last := 0
	for i, d := range t.shape {
		last += (d - 1) * t.strides[i]
	}
	return last + 1
}
