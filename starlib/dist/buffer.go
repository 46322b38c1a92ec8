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
	word  []byte         // a number's 8 bytes
	buf   collective.Buffer
	shape []int
}

// operandOf makes the operand of a tensor, an int, a float or a bool.
func operandOf(v starlark.Value) (*operand, error) {
	o := &operand{value: v}
	switch v := v.(type) {
	case *startensor.Value:
		o.t = v.Tensor()
		data, err := tensor.Contiguous(o.t)
		if err != nil {
			return nil, err
		}
		o.data, o.shape = data, o.t.Shape()
		o.buf = collective.Buffer{DType: dtypeOf(o.t.DType()), Data: data.Bytes()}
		return o, nil
	case starlark.Float:
		o.word = binary.NativeEndian.AppendUint64(nil, math.Float64bits(float64(v)))
		o.buf = collective.Buffer{DType: collective.Float64, Data: o.word}
	case starlark.Int:
		n, ok := v.Int64()
		if !ok {
			return nil, fmt.Errorf("the number %s does not fit into 64 bits", v)
		}
		o.word = binary.NativeEndian.AppendUint64(nil, uint64(n))
		o.buf = collective.Buffer{DType: collective.Int64, Data: o.word}
	default:
		return nil, fmt.Errorf("want a tensor or a number, got %s", v.Type())
	}
	o.shape = []int{}
	return o, nil
}

// result is the operand after the call: the tensor itself, changed in place, or
// the new number.
func (o *operand) result() (starlark.Value, error) {
	if o.t == nil {
		bits := binary.NativeEndian.Uint64(o.word)
		if o.buf.DType == collective.Float64 {
			return starlark.Float(math.Float64frombits(bits)), nil
		}
		return starlark.MakeInt64(int64(bits)), nil
	}
	if o.data != o.t {
		return o.value, writeRaw(o.t, o.data.Bytes())
	}
	o.t.Touched()
	return o.value, nil
}

// dtypes maps element types by their names, which are the same in both packages.
var dtypes = func() map[string]collective.DType {
	m := map[string]collective.DType{}
	for _, d := range collective.DTypes() {
		m[d.String()] = d
	}
	return m
}()

func dtypeOf(d tensor.DType) collective.DType { return dtypes[d.String()] }

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
