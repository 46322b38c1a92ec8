package codec

import (
	"errors"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"github.com/fxamacker/cbor/v2"
	"go.starlark.net/starlark"
)

func (e *encoding) tensor(v *startensor.Value) (_ any, err error) {
	defer try.Caught(&err)
	t := v.Tensor()
	try.Ok(e.add((4+len(t.Shape()))*itemSize + t.Len()*t.DType().Size()))
	data := try.To(tensor.Contiguous(t))
	return cbor.Tag{Number: tagTensor, Content: []any{data.DType().String(), data.Shape(), data.Content()}}, nil
}

func (d *Decoder) tensor(content []any) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	damaged := errors.New("damaged value: tensor")
	if len(content) != 3 {
		return nil, damaged
	}
	name, isName := content[0].(string)
	sizes, isList := content[1].([]any)
	raw, isBytes := content[2].([]byte)
	if !isName || !isList || !isBytes {
		return nil, damaged
	}
	dt, err := dtype.Parse(name)
	try.FailIf(err != nil, "%w: %w", damaged, err)
	shape := make([]int, len(sizes))
	for i, n := range sizes {
		size, ok := n.(int64)
		if !ok || size < 0 {
			return nil, damaged
		}
		shape[i] = int(size)
	}
	t, err := tensor.FromBytes(d.Tensors, raw, shape, dt)
	try.FailIf(err != nil, "%w: %w", damaged, err)
	return (*startensor.Value)(t), nil
}
