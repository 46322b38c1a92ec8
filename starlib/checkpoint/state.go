package checkpoint

import (
	"fmt"
	"slices"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/codec"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// Item is one piece of a state: a tensor or, with an empty DType, the bytes of a plain value.
type Item struct {
	Name  string
	DType string
	Shape []int
	Data  []byte // of a tensor: its memory, not a copy

	// For a share, Shape is that of the whole tensor, Data this rank's part, and From its offset in the
	// whole, in bytes. The ranks that Set names hold the whole together. A restored state has no shares:
	// every rank gets the whole.
	Set  string
	From int

	// Owner, of a restored item, owns Data's memory, and the tensor may share it. If nil, the tensor gets a copy.
	Owner any

	keeps *tensor.Tensor // owns Data's memory, for an item that is saved
}

// WholeBytes is the size of a tensor; for a share, of the whole.
func (it *Item) WholeBytes() int64 {
	dt, err := dtype.Parse(it.DType)
	if err != nil {
		return 0 // it comes from a tensor
	}
	n := int64(dt.Size())
	for _, d := range it.Shape {
		n *= int64(d)
	}
	return n
}

// Names of entries: the dict's key, then, for a value with several pieces, a
// slash and the piece's own name. drun's own values have keys that start with a slash.
const separator = "/"

// collect lists the items of a state. Data is the tensors' own memory, valid while the items are reachable.
func collect(state *starlark.Dict, always []Named) (_ []Item, err error) {
	defer try.Caught(&err)
	var items []Item
	for _, kv := range state.Items() {
		name := try.To(key(kv[0]))
		if s, ok := kv[1].(starlib.Stateful); ok {
			items = try.To(add(items, name+separator, s.State()...))
		} else {
			items = try.To(add(items, "", starlib.Entry{Name: name, Value: kv[1]}))
		}
	}
	for _, n := range always {
		items = try.To(add(items, separator+n.Name+separator, n.Value.State()...))
	}
	return items, nil
}

func add(items []Item, prefix string, entries ...starlib.Entry) ([]Item, error) {
	for _, e := range entries {
		item, err := itemOf(prefix+e.Name, e.Value)
		if err != nil {
			if s := statefulIn(e.Value); s != nil {
				return nil, fmt.Errorf("%s: a %s in a list or dict cannot be saved: give it a name of its own in the state", prefix+e.Name, s.(starlark.Value).Type())
			}
			return nil, fmt.Errorf("%s: %w", prefix+e.Name, err)
		}
		items = append(items, item)
	}
	return items, nil
}

// statefulIn returns a module or the like that is an item of a value; nil if none is.
func statefulIn(v starlark.Value) starlib.Stateful {
	items := func(func(starlark.Value) bool) {}
	switch v := v.(type) {
	case *starlark.Dict:
		items = func(yield func(starlark.Value) bool) {
			for _, item := range v.Entries() {
				if !yield(item) {
					return
				}
			}
		}
	case *starlark.List:
		items = v.Elements()
	case starlark.Tuple:
		items = slices.Values(v)
	}
	for item := range items {
		if s, ok := item.(starlib.Stateful); ok {
			return s
		}
	}
	return nil
}

func key(v starlark.Value) (string, error) {
	name, ok := starlark.AsString(v)
	if !ok || name == "" {
		return "", fmt.Errorf("a state's keys must be non-empty strings, not %s", v)
	}
	return name, nil
}

func itemOf(name string, v starlark.Value) (_ Item, err error) {
	defer try.Caught(&err)
	if t, ok := v.(*startensor.Value); ok {
		data := try.To(tensor.Contiguous(t.Tensor()))
		it := Item{Name: name, DType: data.DType().String(), Shape: data.Shape(), Data: data.Content(), keeps: data}
		if s := t.Tensor().Share(); s != nil {
			it.Shape, it.Set, it.From = s.Shape, s.Set, s.From*data.DType().Size()
		}
		return it, nil
	}
	data, err := codec.Encode(v)
	return Item{Name: name, Data: data}, err
}

func (it *Item) value(ctx *tensor.Context) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	if it.DType == "" {
		return (&codec.Decoder{Tensors: ctx}).Decode(it.Data)
	}
	dt := try.To(dtype.Parse(it.DType))
	var t *tensor.Tensor
	if it.Owner != nil && len(it.Data) > 0 {
		t, err = tensor.OnStorage(ctx, tensor.FromMemory(unsafe.Pointer(&it.Data[0]), len(it.Data), it.Owner), 0, it.Shape, dt)
		if err == nil && t.Len()*dt.Size() != len(it.Data) {
			err = fmt.Errorf("%d bytes do not make shape %v of %s", len(it.Data), it.Shape, dt)
		}
	} else {
		t, err = tensor.FromBytes(ctx, it.Data, it.Shape, dt)
	}
	if err != nil {
		return nil, err
	}
	return (*startensor.Value)(t), nil
}
