package data

import (
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// This file has the datasets that are made from others.

// subset is some samples of another dataset, in its own order.
type subset struct {
	of    items
	index []int

	rows *tensors // gathered, if asked for
}

// subset makes a dataset of the samples with these numbers, which must be valid.
func (d *Dataset) subset(index []int) *Dataset {
	if s, ok := d.items.(*subset); ok { // a subset of a subset refers to the samples directly
		through := each.Of(index, func(n int) int { return s.index[n] })
		return &Dataset{&subset{of: s.of, index: through}, d.thread}
	}
	return &Dataset{&subset{of: d.items, index: index}, d.thread}
}

func (s *subset) Len() int { return len(s.index) }

func (s *subset) Freeze() { freeze(s.of) }

func (s *subset) sample(a *access, i int) (starlark.Value, error) { return s.of.sample(a, s.index[i]) }

// tensors gathers the samples, once, if they are rows of tensors.
func (s *subset) tensors() *tensors {
	if of := tensorsOf(s.of); of != nil && s.rows == nil {
		if order, err := numbers(of.x.Context(), s.index); err == nil {
			s.rows, _ = of.take(order, 0, len(s.index))
		}
	}
	return s.rows
}

func numbers(ctx *tensor.Context, index []int) (*tensor.Tensor, error) {
	wide := each.Of(index, func(n int) int64 { return int64(n) })
	return tensor.FromBytes(ctx, bytesOf(wide), []int{len(wide)}, dtype.Int64)
}

// integers returns the elements of a one-dimensional tensor of integers, or of a list, in which one-element tensors count as integers.
func integers(list starlark.Value) (_ []int, err error) {
	defer try.Caught(&err)
	t, ok := list.(*startensor.Value)
	if !ok {
		var out []int
		for x := range starlark.Elements(list.(starlark.Iterable)) {
			if s, scalar := x.(starlib.Scalar); scalar {
				x = try.To(s.Item())
			}
			n, whole := x.(starlark.Int)
			i, fits := n.Int64()
			if !whole || !fits {
				return nil, fmt.Errorf("element %d is %s: want an integer of 64 bits", len(out), x)
			}
			out = append(out, int(i))
		}
		return out, nil
	}
	try.FailIf(t.Tensor().Dim() != 1 || !t.Tensor().DType().IsInt(), "want a list or a one-dimensional tensor of integers, got %s of shape %s", t.Tensor().DType(), startensor.Shape(t.Tensor()))
	return plainInts(try.To(tensor.Contiguous(try.To(tensor.Cast(t.Tensor().Detach(), dtype.Int64))))), nil
}

func subsetOf(c *starlib.Call) (starlark.Value, error) {
	ds := c.Arg("ds").(*Dataset)
	index, err := integers(c.Arg("indices"))
	try.FailIf(err != nil, "indices: %w", err)
	for i, n := range index {
		if n < 0 {
			index[i] += ds.Len()
		}
		if index[i] < 0 || index[i] >= ds.Len() {
			return nil, fmt.Errorf("indices: element %d is %d, and the dataset has %d samples", i, n, ds.Len())
		}
	}
	return ds.subset(index), nil
}

// chain is the samples of several datasets, one dataset after the other.
type chain struct {
	parts []items
	ends  []int // of each part, in the chain's numbers
}

func (ch *chain) Len() int {
	if len(ch.ends) == 0 {
		return 0
	}
	return ch.ends[len(ch.ends)-1]
}

// at finds sample i: its part, and its number there.
func (ch *chain) at(i int) (items, int) {
	begin := 0
	for k, end := range ch.ends {
		if i < end {
			return ch.parts[k], i - begin
		}
		begin = end
	}
	panic("no such sample")
}

func (ch *chain) sample(a *access, i int) (starlark.Value, error) {
	part, n := ch.at(i)
	return part.sample(a, n)
}

func (ch *chain) Freeze() {
	for _, p := range ch.parts {
		freeze(p)
	}
}

// concat is data.concat. Rows of tensors become rows of one tensor.
func concat(c *starlib.Call) (starlark.Value, error) {
	var ch chain
	var xs, ys []*tensor.Tensor
	iter := c.Arg("datasets").(starlark.Iterable).Iterate()
	defer iter.Done()
	for v := starlark.Value(nil); iter.Next(&v); {
		ds, ok := v.(*Dataset)
		try.FailIf(!ok, "argument datasets: want a list of datasets, but element %d is a %s", len(ch.parts), v.Type())
		ch.parts, ch.ends = append(ch.parts, ds.items), append(ch.ends, ch.Len()+ds.Len())
		if t := tensorsOf(ds.items); t != nil {
			if xs = append(xs, t.x); t.y != nil {
				ys = append(ys, t.y)
			}
		}
	}
	switch {
	case len(ch.parts) == 0:
		return nil, errors.New("argument datasets: the list is empty")
	case len(xs) < len(ch.parts):
		return &Dataset{&ch, c.Thread}, nil
	case len(ys) > 0 && len(ys) < len(xs):
		return nil, errors.New("some of the datasets have labels, and some have none")
	}
	for name, list := range map[string][]*tensor.Tensor{"x": xs, "y": ys} {
		for i, t := range list {
			first := list[0]
			if t.DType() != first.DType() || !sameRow(t, first) {
				return nil, fmt.Errorf("%s of dataset %d is %s of shape %s, and of dataset 0 %s of shape %s: they must agree except in the number of samples",
					name, i, t.DType(), startensor.Shape(t), first.DType(), startensor.Shape(first))
			}
		}
	}
	joined := &tensors{x: try.To(tensor.Cat(xs, 0))}
	if ys != nil {
		joined.y = try.To(tensor.Cat(ys, 0))
	}
	return &Dataset{joined.items(), c.Thread}, nil
}

func sameRow(a, b *tensor.Tensor) bool {
	return tensor.ShapeString(a.Shape()[1:]) == tensor.ShapeString(b.Shape()[1:])
}

// mapped passes samples through a function of the recipe, which is called each time a sample is taken.
type mapped struct {
	of     items
	fn     starlark.Callable
	thread *starlark.Thread
	random bool // fn gets a generator
	ctx    *tensor.Context
	seed   uint64
}

func (m *mapped) Len() int { return m.of.Len() }

func (m *mapped) Freeze() { m.fn.Freeze() }

func (m *mapped) sample(a *access, i int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	v := try.To(m.of.sample(a, i))
	args, pair := v.(starlark.Tuple)
	if !pair {
		args = starlark.Tuple{v}
	}
	if m.random { // depends only on the sample and the epoch: the same for any number of ranks
		args = append(args[:len(args):len(args)], random.New(m.ctx, m.seed, random.SampleTransform, uint64(a.epoch), uint64(i)))
	}
	return starlark.Call(m.thread, m.fn, args, nil)
}

// cached keeps each sample once it has been taken.
type cached struct {
	of   items
	kept []starlark.Value
}

func (k *cached) Len() int { return len(k.kept) }

func (k *cached) sample(a *access, i int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	if k.kept[i] == nil {
		v := try.To(k.of.sample(a, i))
		v.Freeze() // otherwise whoever takes it next would see a change
		k.kept[i] = v
	}
	return k.kept[i], nil
}

// changes reports whether samples differ between epochs.
func changes(it items) bool {
	switch it := it.(type) {
	case *images:
		return it.transform != nil && it.transform.random
	case *mapped:
		return it.random || changes(it.of)
	case *subset:
		return changes(it.of)
	case *chain:
		return slices.ContainsFunc(it.parts, changes)
	}
	return false
}

// derived are the builtins that make datasets from others.
func derived(r *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		{Sig: "subset(ds: Dataset, indices: iterable) -> Dataset", Fn: subsetOf,
			Doc: "The samples with these numbers, in this order; a number may come more than once, and negative ones count from the end."},
		{Sig: "concat(datasets: iterable) -> Dataset", Fn: concat,
			Doc: "The samples of all datasets, one dataset after the other. If they are rows of tensors, dtypes and shapes must agree except for the number of samples."},
		{Sig: "map(ds: Dataset, fn: callable, random: bool = False) -> Dataset",
			Doc: "Passes the samples through a function: fn(x, y), or fn(x) without labels, returns the new sample. It is called whenever a sample is taken, so again in each epoch. With random = True it gets a generator as its last argument, which depends only on the run's seed, the epoch and the number of the sample: the same for any number of ranks.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				ds := c.Arg("ds").(*Dataset)
				return &Dataset{&mapped{of: ds.items, fn: c.Callable("fn"), thread: c.Thread, random: c.Bool("random"), ctx: ctx, seed: r.Seed}, c.Thread}, nil
			}},
		{Sig: "cache(ds: Dataset) -> Dataset",
			Doc: "Keeps each sample in memory once it has been taken, so that data.map or a decoder computes it only once. The kept samples are frozen: changing one in place is an error. Samples that differ from epoch to epoch (random = True) are an error.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				ds := c.Arg("ds").(*Dataset)
				try.FailIf(changes(ds.items), "the samples differ from epoch to epoch (random = True, or a random transformation), and a cache would keep the first epoch's: cache before that step")
				return &Dataset{&cached{of: ds.items, kept: make([]starlark.Value, ds.Len())}, c.Thread}, nil
			}},
	}
}
