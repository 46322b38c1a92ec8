package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/tensor"
)

// Get is x[key]: an integer, a tuple with one entry per dimension, or a string as between PyTorch's brackets; entries
// may be integers, None, tensors or lists of indices, bool masks, and slices in strings.
func (v *Value) Get(key starlark.Value) (_ starlark.Value, _ bool, err error) {
	defer try.Caught(&err)
	t := v.Tensor()
	if n, ok := key.(starlark.Int); ok {
		i := try.To(position(n))
		x, err := Result(tensor.At(t, i))
		return x, true, err
	}
	items := try.To(v.items(key))
	x, err := Result(tensor.Index(t, items))
	return x, true, err
}

func (v *Value) SetKey(key, value starlark.Value) error {
	t := v.Tensor()
	items, err := v.items(key)
	if err != nil {
		return err
	}
	src, err := source(t, value)
	if err != nil {
		return try.As("index assignment", err)
	}
	return tensor.SetIndex(t, items, src)
}

// source returns what is written into t: value if it is a tensor, else a tensor of t's own type, since any other
// type might round value.
func source(t *tensor.Tensor, value starlark.Value) (*tensor.Tensor, error) {
	if v, ok := value.(*Value); ok {
		return v.Tensor(), nil
	}
	return FromData(t.Context(), value, dtypeNames[t.DType()])
}

func (v *Value) items(key starlark.Value) ([]tensor.IndexItem, error) {
	tuple, ok := key.(starlark.Tuple)
	if !ok {
		return v.appendItem(nil, key)
	}
	items := make([]tensor.IndexItem, 0, len(tuple))
	for _, entry := range tuple {
		var err error
		if items, err = v.appendItem(items, entry); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (v *Value) appendItem(items []tensor.IndexItem, entry starlark.Value) ([]tensor.IndexItem, error) {
	switch entry := entry.(type) {
	case starlark.Int:
		i, err := position(entry)
		return append(items, tensor.IndexItem{Kind: tensor.IndexInt, I: i}), err
	case starlark.String:
		more, err := tensor.ParseIndex(string(entry))
		return append(items, more...), err
	case starlark.NoneType:
		return append(items, tensor.IndexItem{Kind: tensor.IndexNewAxis}), nil
	case *Value:
		return append(items, tensor.IndexItem{Kind: tensor.IndexTensor, T: entry.Tensor()}), nil
	case *starlark.List:
		t, err := FromData(v.Tensor().Context(), entry, starlark.None)
		if err == nil && t.Len() == 0 {
			t, err = tensor.Cast(t, dtype.Int64)
		}
		return append(items, tensor.IndexItem{Kind: tensor.IndexTensor, T: t}), err
	}
	return nil, fmt.Errorf(`a %s cannot index a Tensor: use an int, a tuple, a string such as ":, 0", a mask or a list of indices`, entry.Type())
}

func position(n starlark.Int) (int, error) {
	i, ok := n.Int64()
	if !ok {
		return 0, fmt.Errorf("index %s does not fit into 64 bits", n)
	}
	return int(i), nil
}

// Len returns the size of dimension 0. It is negative for a tensor without dimensions, which tells the language that there is no length.
func (v *Value) Len() int {
	if shape := v.Tensor().Shape(); len(shape) > 0 {
		return shape[0]
	}
	return -1
}

// Index is x[i] for an i in range, where the language allows no error.
func (v *Value) Index(i int) starlark.Value {
	x, err := tensor.At(v.Tensor(), i)
	if err != nil {
		return v.fail(err)
	}
	return (*Value)(x)
}

func (v *Value) Slice(start, end, step int) starlark.Value {
	t := v.Tensor()
	if t.Dim() == 0 {
		return v.fail(fmt.Errorf("a Tensor without dimensions cannot be sliced"))
	}
	var x *tensor.Tensor
	var err error
	if step == 1 {
		x, err = tensor.Narrow(t, 0, start, end-start)
	} else {
		x, err = v.every(start, end, step)
	}
	if err != nil {
		return v.fail(err)
	}
	return (*Value)(x)
}

// every takes the elements start, start+step, … before end; step may be negative.
func (v *Value) every(start, end, step int) (*tensor.Tensor, error) {
	if step > 0 {
		return tensor.Index(v.Tensor(), []tensor.IndexItem{{Kind: tensor.IndexSlice, Start: &start, Stop: &end, Step: &step}})
	}
	var at []int64
	for i := start; i > end; i += step {
		at = append(at, int64(i))
	}
	index, err := tensor.FromInts(v.Tensor().Context(), at, []int{len(at)}, dtype.Int64)
	if err != nil {
		return nil, err
	}
	return tensor.IndexSelect(v.Tensor(), 0, index)
}

func (v *Value) Iterate() starlark.Iterator {
	if v.Tensor().Dim() == 0 {
		v.fail(fmt.Errorf("a Tensor without dimensions cannot be iterated over: use .item()"))
	}
	return &rowIterator{v: v}
}

type rowIterator struct {
	v *Value
	i int
}

func (it *rowIterator) Next(p *starlark.Value) bool {
	if it.i >= it.v.Len() {
		return false
	}
	*p = it.v.Index(it.i)
	it.i++
	return true
}

func (it *rowIterator) Done() {}

// fail reports an error where the language allows none: it ends the recipe. The value returned is not used.
func (v *Value) fail(err error) starlark.Value {
	if end := v.Tensor().Context().Fail; end != nil {
		end(err)
	}
	return v
}
