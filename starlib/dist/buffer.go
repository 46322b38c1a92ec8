package dist

import (
	"encoding/binary"
	"fmt"
	"math"

	"drun/collective"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// operand is what a collective works on: a tensor, or a number in its place.
type operand struct {
	value starlark.Value
	t     *tensor.Tensor // nil for a number
	data  *tensor.Tensor // t, or a contiguous copy of it
	word  [8]byte        // a number
	buf   collective.Buffer
	shape []int
}

// operandOf makes the operand of a tensor, an int or a float.
func operandOf(v starlark.Value) (*operand, error) {
	o := new(operand)
	return o, o.set(v)
}

// noDims is the shape of a number.
var noDims = []int{}

func (o *operand) set(v starlark.Value) error {
	o.value, o.t, o.shape = v, nil, noDims
	switch v := v.(type) {
	case *startensor.Value:
		o.t = v.Tensor()
		data, err := tensor.Contiguous(o.t)
		if err != nil {
			return err
		}
		o.data, o.shape = data, o.t.Shape()
		o.buf = bufferOf(data)
	case starlark.Float:
		binary.NativeEndian.PutUint64(o.word[:], math.Float64bits(float64(v)))
		o.buf = collective.Buffer{DType: collective.Float64, Data: o.word[:]}
	case starlark.Int:
		n, ok := v.Int64()
		if !ok {
			return fmt.Errorf("the number %s does not fit into 64 bits", v)
		}
		binary.NativeEndian.PutUint64(o.word[:], uint64(n))
		o.buf = collective.Buffer{DType: collective.Int64, Data: o.word[:]}
	default:
		return fmt.Errorf("want a tensor or a number, got %s", v.Type())
	}
	return nil
}

// settle moves a large tensor that is reduced again and again to where the
// backend needs no copy of it.
func (o *operand) settle(w *World, async bool) {
	if len(o.buf.Data) >= movedBytes && w.shared != nil && o.data != nil {
		tensor.Move(o.data, w.shared)
		o.buf = bufferOf(o.data)
	}
	o.pin(async)
}

// pin keeps a tensor where it is for as long as an asynchronous call may use it.
func (o *operand) pin(async bool) {
	if async && o.data != nil {
		tensor.Pin(o.data)
	}
}

// result is the operand after the call: the tensor itself, changed in place, or
// the new number.
func (o *operand) result() (starlark.Value, error) {
	value, t, data := o.value, o.t, o.data
	o.value, o.t, o.data = nil, nil, nil // keep no tensor's memory
	if t == nil {
		bits := binary.NativeEndian.Uint64(o.word[:])
		if o.buf.DType == collective.Float64 {
			return starlark.Float(math.Float64frombits(bits)), nil
		}
		return starlark.MakeInt64(int64(bits)), nil
	}
	if data != t {
		return value, writeRaw(t, data.Bytes())
	}
	t.Touched()
	return value, nil
}

// bufferOf is a contiguous tensor's memory.
func bufferOf(t *tensor.Tensor) collective.Buffer {
	return collective.Buffer{DType: dtypeOf(t.DType()), Data: t.Bytes()}
}

// dtypes maps element types by their names, which are the same in both packages.
// It is a table since every call looks here.
var dtypes = func() (table [math.MaxUint8 + 1]collective.DType) {
	for _, d := range collective.DTypes() {
		if t, err := tensor.ParseDType(d.String()); err == nil {
			table[t] = d
		}
	}
	return table
}()

func dtypeOf(d tensor.DType) collective.DType { return dtypes[d] }

// writeRaw sets a tensor's elements from bytes in row-major order. It is no part
// of a graph.
func writeRaw(t *tensor.Tensor, raw []byte) error {
	if b := t.Bytes(); b != nil {
		copy(b, raw)
		t.Touched()
		return nil
	}
	src, err := tensor.FromBytes(t.Context(), raw, t.Shape(), t.DType())
	if err != nil {
		return err
	}
	return tensor.CopyInto(t.Detach(), src)
}

// clone is a copy that is no part of a graph.
func clone(t *tensor.Tensor) (*startensor.Value, error) {
	out, err := tensor.Clone(t.Detach())
	return (*startensor.Value)(out), err
}

// writable reports why a tensor cannot be changed in place.
func writable(t *tensor.Tensor) error {
	if t.Frozen() {
		return fmt.Errorf("the tensor was made at top level and is frozen: make it in main()")
	}
	return nil
}

// recorded tells whether gradients flow through an operation on v.
func recorded(v starlark.Value) (*tensor.Tensor, bool) {
	if v, ok := v.(*startensor.Value); ok {
		t := v.Tensor()
		return t, t.RequiresGrad() && t.Context().Recording()
	}
	return nil, false
}
