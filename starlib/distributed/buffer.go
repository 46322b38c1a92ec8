package distributed

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// operand is what a collective works on: a tensor, or a number in its place.
type operand struct {
	value starlark.Value
	t     *tensor.Tensor // nil for a number
	data  *tensor.Tensor // t, or a contiguous copy of it
	word  [1]int64       // a number
	buf   collective.Buffer
	shape []int

	combine func(x, y starlark.Int) starlark.Int // combines the ranks' elements in buf, for an integer
}

// operandOf makes an operand from a tensor, an int or a float.
func operandOf(v starlark.Value) (*operand, error) {
	o := new(operand)
	return o, o.set(v)
}

// noDims is the shape of a number.
var noDims = []int{}

func (o *operand) set(v starlark.Value) (err error) {
	defer try.Caught(&err)
	o.value, o.t, o.data, o.shape = v, nil, nil, noDims
	switch v := v.(type) {
	case *startensor.Value:
		o.t = v.Tensor()
		data := try.To(tensor.Contiguous(o.t))
		o.data, o.shape = data, o.t.Shape()
		o.buf = bufferOf(data)
	case starlark.Float:
		o.word[0] = int64(math.Float64bits(float64(v)))
		o.buf = collective.Of(o.word[:])
		o.buf.DType = dtype.Float64
	case starlark.Int:
		n, ok := v.Int64()
		try.FailIf(!ok, "the number %s does not fit into 64 bits", v)
		o.word[0] = n
		o.buf = collective.Of(o.word[:])
	default:
		return fmt.Errorf("want a tensor or a number, got %s", v.Type())
	}
	return nil
}

// widen lays out an integer for an operation whose result may need more than 64 bits: each rank's number is an element of its
// own, at the rank's index, and the elements are combined afterwards.
func (o *operand) widen(op dtype.ReduceOp, g *Group) {
	neutral, combine := int64(0), starlark.Int.Add
	switch {
	case o.t != nil || o.buf.DType != dtype.Int64 || op != dtype.Sum && op != dtype.Product:
		return
	case op == dtype.Product:
		neutral, combine = 1, starlark.Int.Mul
	}
	all := slices.Repeat([]int64{neutral}, g.Size())
	all[g.own] = o.word[0]
	o.buf, o.combine = collective.Of(all), combine
}

// integer is the number after the reduction.
func (o *operand) integer() starlark.Value {
	parts := collective.Slice[int64](o.buf)
	n := starlark.MakeInt64(parts[0])
	for _, part := range parts[1:] {
		n = o.combine(n, starlark.MakeInt64(part))
	}
	return n
}

// moveToArena moves a large tensor that is reduced repeatedly to memory that the backend can reduce without a copy.
func (o *operand) moveToArena(w *World) {
	if len(o.buf.Data) >= movedBytes && w.memory.shared != nil && o.data != nil {
		tensor.Move(o.data, w.memory.shared)
		o.buf = bufferOf(o.data)
	}
}

// copied reports whether the call works on a copy of the tensor.
func (o *operand) copied() bool { return o.data != o.t }

// result returns the operand after the call: the tensor itself, changed in place, or the new number.
func (o *operand) result() (starlark.Value, error) {
	value, t, data := o.value, o.t, o.data
	o.value, o.t, o.data = nil, nil, nil // keep no tensor's memory
	if t == nil {
		if o.buf.DType == dtype.Float64 {
			return starlark.Float(math.Float64frombits(uint64(o.word[0]))), nil
		}
		return o.integer(), nil
	}
	if data != t {
		return value, writeRaw(t, data.Content())
	}
	t.Touched()
	return value, nil
}

// bufferOf is a contiguous tensor's memory.
func bufferOf(t *tensor.Tensor) collective.Buffer {
	if !t.IsContiguous() { // its memory would be nil, and the result would silently be lost
		panic("a collective of a tensor that is not contiguous")
	}
	return collective.Buffer{DType: t.DType(), Data: t.Bytes()}
}

// writeRaw sets a tensor's elements from bytes in row-major order. It is not recorded in the graph.
func writeRaw(t *tensor.Tensor, raw []byte) (err error) {
	defer try.Caught(&err)
	if b := t.Bytes(); b != nil {
		copy(b, raw)
		t.Touched()
		return nil
	}
	src := try.To(tensor.FromBytes(t.Context(), raw, t.Shape(), t.DType()))
	return tensor.CopyInto(t.Detach(), src)
}

// clone is a copy that is not recorded in the graph.
func clone(t *tensor.Tensor) (*startensor.Value, error) {
	out, err := tensor.Clone(t.Detach())
	return (*startensor.Value)(out), err
}

func zerosLike(t *tensor.Tensor) (*tensor.Tensor, error) {
	return tensor.Zeros(t.Context(), t.Shape(), t.DType())
}

// writable returns an error if a tensor cannot be changed in place.
func writable(t *tensor.Tensor) error {
	if t.Frozen() {
		return fmt.Errorf("the tensor was made at top level and is frozen: make it in main()")
	}
	return nil
}

// differentiable records out as a result of in; backward computes in's gradient from out's.
func differentiable(name string, out, in *tensor.Tensor, backward func(grad *tensor.Tensor) (*tensor.Tensor, error)) {
	tensor.Function(name, out, []*tensor.Tensor{in}, func(grad *tensor.Tensor) ([]*tensor.Tensor, error) {
		back, err := backward(grad)
		return []*tensor.Tensor{back}, err
	})
}

// recorded reports whether gradients flow through an operation on v.
func recorded(v starlark.Value) (*tensor.Tensor, bool) {
	if v, ok := v.(*startensor.Value); ok {
		t := v.Tensor()
		return t, t.RequiresGrad() && t.Context().Recording()
	}
	return nil, false
}

// A large tensor moves into the backend's arena when it is reduced a second time, to be reduced there without a copy. Later tensors
// of its size are allocated there. The part of the arena for tensors (the rest is for gradients), and the size from which
// a move pays off, in bytes:
const (
	sharedMost = 1 << 30
	movedBytes = 64 << 10
)

type callMemory struct {
	shared  *tensor.Pool // for tensors, in the backend's arena; nil if it has none
	staging []byte       // where scattered gradients are collected; kept for the next step
}

// useArena lets optimizers keep their gradients where the backend can reduce
// them without a copy, if it has such memory.
func (m *callMemory) useArena(w *World) {
	arena, ok := w.all.comm.(collective.Arena)
	if !ok {
		return
	}
	m.shared = tensor.NewPool(sharedMost, func(bytes int) []byte {
		buf, err := arena.Alloc(dtype.Uint8, bytes)
		if err != nil {
			return nil
		}
		return buf.Data
	})
	w.tensors.GradStorage = func(bytes int) (*tensor.Storage, error) {
		buf, err := arena.Alloc(dtype.Uint8, bytes)
		if err != nil || bytes == 0 { // the arena is full: ordinary memory works too, with a copy
			words := make([]uint64, bytes/8+1)
			return tensor.FromMemory(unsafe.Pointer(&words[0]), bytes, words), nil
		}
		return tensor.FromMemory(unsafe.Pointer(&buf.Data[0]), bytes, arena), nil
	}
}

// stage returns memory for a call, aligned for any element type.
func (m *callMemory) stage(size int) []byte {
	if cap(m.staging) < size {
		m.staging = nil
		if m.shared != nil {
			m.staging = m.shared.Bytes(size)
		}
		if m.staging == nil {
			words := make([]uint64, (size+7)/8)
			m.staging = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
		}
	}
	return m.staging[:size]
}
