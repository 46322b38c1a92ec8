package data

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// unlike is the error of a sample that cannot be in one batch with the first.
type unlike struct {
	sample int
	error
}

func unlikeFirst(sample int, format string, args ...any) error {
	return &unlike{sample, fmt.Errorf(format, args...)}
}

// collate makes a batch of samples: tensors are stacked, numbers become a tensor, tuples and dicts are collated item by
// item, and everything else stays a list.
func collate(ctx *tensor.Context, samples []starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	switch first := samples[0].(type) {
	case *startensor.Value:
		list := try.To(tensorList(samples))
		for i, t := range list {
			if startensor.Shape(t) != startensor.Shape(list[0]) || t.DType() != list[0].DType() {
				return nil, unlikeFirst(i, "samples 0 and %d of the batch are %s of shape %s and %s of shape %s: they cannot be stacked (data.pad_collate pads sequences of different lengths)",
					i, list[0].DType(), startensor.Shape(list[0]), t.DType(), startensor.Shape(t))
			}
		}
		return startensor.Result(tensor.Stack(list, 0))
	case starlark.Int, starlark.Float, starlark.Bool:
		t, err := startensor.FromData(ctx, starlark.NewList(samples), starlark.None)
		try.FailIf(err != nil, "numbers of a batch: %w", err)
		return (*startensor.Value)(t), nil
	case starlark.Tuple:
		parts := try.To(columns(samples))
		return starlark.Tuple(each.Of(parts, func(part []starlark.Value) starlark.Value { return try.To(collate(ctx, part)) })), nil
	case *starlark.Dict:
		return collateDicts(ctx, first, samples)
	}
	return starlark.NewList(slices.Clone(samples)), nil
}

func collateDicts(ctx *tensor.Context, first *starlark.Dict, samples []starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	out := starlark.NewDict(first.Len())
	for _, key := range first.Keys() {
		part := make([]starlark.Value, len(samples))
		for i, s := range samples {
			d, ok := s.(*starlark.Dict)
			if !ok || d.Len() != first.Len() {
				return nil, unlikeFirst(i, "samples 0 and %d of the batch have different items", i)
			}
			v, found, err := d.Get(key)
			if err != nil || !found {
				return nil, unlikeFirst(i, "sample %d of the batch has no item %s, and sample 0 has", i, key)
			}
			part[i] = v
		}
		v, err := collate(ctx, part)
		try.FailIf(err != nil, "item %s: %w", key, err)
		try.Ok(out.SetKey(key, v))
	}
	return out, nil
}

// columns turns samples that are tuples into one list per position.
func columns(samples []starlark.Value) ([][]starlark.Value, error) {
	width := len(samples[0].(starlark.Tuple))
	parts := make([][]starlark.Value, width)
	for i, s := range samples {
		t, ok := s.(starlark.Tuple)
		if !ok || len(t) != width {
			return nil, unlikeFirst(i, "samples 0 and %d of the batch have different parts", i)
		}
		for k, v := range t {
			parts[k] = append(parts[k], v)
		}
	}
	return parts, nil
}

func tensorList(samples []starlark.Value) ([]*tensor.Tensor, error) {
	list := make([]*tensor.Tensor, len(samples))
	for i, v := range samples {
		t, ok := v.(*startensor.Value)
		if !ok {
			return nil, unlikeFirst(i, "sample 0 of the batch is a Tensor, and sample %d a %s", i, v.Type())
		}
		list[i] = t.Tensor()
	}
	return list, nil
}

// padded joins sequences, whose first dimensions differ, into one tensor of the longest length: (N, L, ...), or (L,
// N, ...) with timeFirst. lengths has each sequence's own length.
func padded(ctx *tensor.Context, list []*tensor.Tensor, value tensor.Scalar, timeFirst bool) (out *tensor.Tensor, lengths []int64) {
	longest := 0
	for i, t := range list {
		try.FailIf(t.Dim() == 0, "sequence %d has no dimensions", i)
		if t.DType() != list[0].DType() || !sameRow(t, list[0]) {
			try.Fail("sequences 0 and %d are %s of shape %s and %s of shape %s: they may differ only in their first dimension",
				i, list[0].DType(), startensor.Shape(list[0]), t.DType(), startensor.Shape(t))
		}
		longest = max(longest, t.Shape()[0])
		lengths = append(lengths, int64(t.Shape()[0]))
	}
	shape := append([]int{len(list), longest}, list[0].Shape()[1:]...)
	out = try.To(tensor.Full(ctx, shape, value, list[0].DType()))
	for i, t := range list {
		row := try.To(tensor.Narrow(try.To(tensor.Select(out, 0, i)), 0, 0, t.Shape()[0]))
		try.Ok(tensor.CopyInto(row, t.Detach()))
	}
	if timeFirst {
		out = try.To(tensor.Contiguous(try.To(tensor.Transpose(out, 0, 1))))
	}
	return out, lengths
}

func paddingValue(c *starlib.Call) tensor.Scalar {
	v := c.Arg("padding_value")
	if n, ok := v.(starlark.Int); ok {
		if i, ok := n.Int64(); ok {
			return tensor.Int(i)
		}
	}
	return tensor.Float(starlib.Number(v))
}

func samplesOf(c *starlib.Call) []starlark.Value {
	samples := slices.Collect(starlark.Elements(c.Arg("samples").(starlark.Iterable)))
	try.FailIf(len(samples) == 0, "argument samples: the list is empty")
	return samples
}

func padCollate(ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	samples := samplesOf(c)
	parts := [][]starlark.Value{samples}
	if _, pair := samples[0].(starlark.Tuple); pair {
		parts = try.To(columns(samples))
	}
	list := try.To(tensorList(parts[0]))
	x, lengths := padded(ctx, list, paddingValue(c), false)
	n := try.To(tensor.FromBytes(ctx, bytesOf(lengths), []int{len(lengths)}, dtype.Int64))
	out := starlark.Tuple{(*startensor.Value)(x)}
	for _, part := range parts[1:] {
		v := try.To(collate(ctx, part))
		out = append(out, v)
	}
	return append(out, (*startensor.Value)(n)), nil
}

func batching(ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		{Sig: "collate(samples: iterable) -> any",
			Doc: "Makes a batch of a list of samples, as data.loader does when samples are not rows of a tensor: tensors are stacked, numbers become a tensor, tuples and dicts are collated item by item, and other values, such as strings, stay a list.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				samples := samplesOf(c)
				return collate(ctx, samples)
			}},
		{Sig: "pad_collate(samples: iterable, padding_value: number = 0) -> tuple", Fn: func(c *starlib.Call) (starlark.Value, error) { return padCollate(ctx, c) },
			Doc: "Makes a batch of samples (x, y), or x alone, whose x are sequences of different lengths, shape (length, ...): (x, y, lengths), or (x, lengths). x has shape (samples, longest, ...), padded with padding_value; lengths is int64, and is what nn.lstm(...)(x, lengths = ...) takes. Use it as data.loader(ds, batch, collate = data.pad_collate)."},
		{Sig: "pad_sequence(sequences: iterable, batch_first: bool = False, padding_value: number = 0) -> Tensor",
			Doc: "Joins sequences of different lengths, shape (length, ...), into one tensor: shape (longest, sequences, ...), or (sequences, longest, ...) with batch_first, padded with padding_value.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				list := try.To(startensor.List(c.Arg("sequences")))
				try.FailIf(len(list) == 0, "argument sequences: the list is empty")
				t, _ := padded(ctx, list, paddingValue(c), !c.Bool("batch_first"))
				return (*startensor.Value)(t), nil
			}},
	}
}
