package data

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/lang"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Dataset is a set of samples that can be taken in any order.
type Dataset struct {
	items
	thread *starlark.Thread // runs the recipe's functions, and is cancelled when a loop meets an error
}

// items is where a dataset takes its samples from.
type items interface {
	Len() int
	// sample returns one sample as a recipe sees it: x, or (x, y).
	sample(a *access, i int) (starlark.Value, error)
}

// access is what a sample may depend on besides its number.
type access struct {
	epoch int
	ahead *readAhead // nil: nothing is read ahead
}

var (
	_ starlark.HasAttrs  = (*Dataset)(nil)
	_ starlark.Sliceable = (*Dataset)(nil)
	_ starlark.Sequence  = (*Dataset)(nil)
	_ starlark.Mapping   = (*Dataset)(nil)
)

func (d *Dataset) String() string {
	if _, ok := d.items.(*values); ok {
		if t := tensorsOf(d.items); t != nil {
			return fmt.Sprintf("<dataset of %d samples, %s each>", d.Len(), tensor.ShapeString(t.x.Shape()[1:]))
		}
	}
	return fmt.Sprintf("<dataset of %d samples>", d.Len())
}
func (d *Dataset) Type() string          { return "Dataset" }
func (d *Dataset) Truth() starlark.Bool  { return d.Len() > 0 }
func (d *Dataset) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: Dataset") }
func (d *Dataset) Freeze()               { freeze(d.items) }

func freeze(it items) {
	if f, ok := it.(interface{ Freeze() }); ok {
		f.Freeze()
	}
}

func (d *Dataset) Iterate() starlark.Iterator {
	return &iterator{len: d.Len, at: func(i int) (starlark.Value, error) { return d.sample(new(access), i) }, thread: d.thread}
}

// iterator yields values that are made one by one.
type iterator struct {
	len    func() int
	at     func(i int) (starlark.Value, error)
	thread *starlark.Thread // cancelled by an error
	i      int
}

func (it *iterator) Next(p *starlark.Value) bool {
	if it.i == it.len() {
		return false
	}
	v, err := it.at(it.i)
	if err != nil {
		lang.Cancel(it.thread, err)
		return false
	}
	*p = v
	it.i++
	return true
}

func (it *iterator) Done() {}

func (d *Dataset) Get(key starlark.Value) (_ starlark.Value, _ bool, err error) {
	defer try.Caught(&err)
	n, ok := key.(starlark.Int)
	try.FailIf(!ok, "a dataset is indexed by the number of a sample, not by %s", key.Type())
	i, ok := n.Int64()
	if i < 0 {
		i += int64(d.Len())
	}
	try.FailIf(!ok || i < 0 || i >= int64(d.Len()), "there is no sample %s: the dataset has %d", n, d.Len())
	v, err := d.sample(new(access), int(i))
	return v, err == nil, err
}

// Index is for Starlark's own functions; recipes use Get, which returns errors.
func (d *Dataset) Index(i int) starlark.Value {
	v, err := d.sample(new(access), i)
	if err != nil {
		lang.Cancel(d.thread, err)
		return starlark.None
	}
	return v
}

func (d *Dataset) Slice(start, end, step int) starlark.Value {
	var index []int
	for i := start; step > 0 && i < end || step < 0 && i > end; i += step {
		index = append(index, i)
	}
	return d.subset(index)
}

var datasetMethods = &starlib.Methods{
	Type: "Dataset",
	Doc:  "Samples that can be taken in any order. len(ds) is their number; ds[i] is one of them, (x, y), or x alone without labels; ds[a:b] is a dataset of some of them; a loop yields them one by one.",
	Attrs: [][2]string{
		{"x", "the inputs as one tensor, shape (samples, ...); an error if samples are computed one by one (data.map, images in folders): those need a loader"},
		{"y", "the labels as one tensor, shape (samples, ...), or None"},
		{"classes", "for images in folders, the names of the classes; otherwise None"},
	},
}

func (d *Dataset) Attr(name string) (starlark.Value, error) {
	if name == "classes" {
		return d.classNames(), nil
	}
	if name != "x" && name != "y" {
		return datasetMethods.Attr(d, name)
	}
	t := tensorsOf(d.items)
	switch {
	case t == nil:
		return nil, fmt.Errorf("%s: the samples of this dataset are not the rows of a tensor: take ds[i], or batches of data.loader", name)
	case name == "x":
		return (*startensor.Value)(t.x), nil
	case t.y == nil:
		return starlark.None, nil
	}
	return (*startensor.Value)(t.y), nil
}

// classNames are the names of the folders that samples come from.
func (d *Dataset) classNames() starlark.Value {
	it := d.items
	for {
		switch of := it.(type) {
		case *images:
			return listOf(of.classes)
		case *subset:
			it = of.of
		case *mapped:
			it = of.of
		case *cached:
			it = of.of
		default:
			return starlark.None
		}
	}
}

func (d *Dataset) AttrNames() []string { return datasetMethods.AttrNames() }

// tensorsOf returns the items as rows of tensors; nil if they are not rows.
func tensorsOf(it items) *tensors {
	switch it := it.(type) {
	case *values:
		x, isTensor := it.x.(*startensor.Value)
		y, labels := it.y.(*startensor.Value)
		if isTensor && (labels || it.y == nil) {
			return &tensors{x.Tensor(), y.Tensor()}
		}
	case *subset:
		return it.tensors()
	}
	return nil
}

// tensors are samples that are the rows of x, with those of y.
type tensors struct {
	x, y *tensor.Tensor // y is nil when there are no labels
}

func newDataset(thread *starlark.Thread, x, y *tensor.Tensor) (*Dataset, error) {
	switch {
	case x.Dim() == 0:
		return nil, fmt.Errorf("x has no dimension to take samples from: want a shape of (samples, ...)")
	case y != nil && (y.Dim() == 0 || y.Shape()[0] != x.Shape()[0]):
		return nil, fmt.Errorf("x of shape %s and y of shape %s differ in the number of samples, their first dimension",
			startensor.Shape(x), startensor.Shape(y))
	}
	return &Dataset{(&tensors{x, y}).items(), thread}, nil
}

// items are the rows as samples.
func (t *tensors) items() items {
	v := &values{x: (*startensor.Value)(t.x)}
	if t.y != nil {
		v.y = (*startensor.Value)(t.y)
	}
	return v
}

// take gathers the samples at positions lo up to hi of an order.
func (t *tensors) take(order *tensor.Tensor, lo, hi int) (*tensors, error) {
	p := &tensors{}
	var err error
	if p.x, err = rows(t.x, order, lo, hi); err != nil || t.y == nil {
		return p, err
	}
	p.y, err = rows(t.y, order, lo, hi)
	return p, err
}

// rows gathers samples lo up to hi of order, which holds all sample indices in the epoch's order; nil means the data's own order.
func rows(t, order *tensor.Tensor, lo, hi int) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	if order == nil {
		return tensor.Narrow(t, 0, lo, hi-lo)
	}
	index := try.To(tensor.Narrow(order, 0, lo, hi-lo))
	return tensor.IndexSelect(t, 0, index)
}

// values are samples of which the i-th is element i of x with element i of y.
type values struct {
	x, y starlark.Indexable // y is nil when there are no labels
}

// newSamples makes a dataset of lists, or of a list and a tensor.
func newSamples(thread *starlark.Thread, x, y starlark.Value) (*Dataset, error) {
	v := &values{x: x.(starlark.Indexable)}
	if y != starlark.None {
		v.y = y.(starlark.Indexable)
	}
	for name, list := range map[string]starlark.Indexable{"x": v.x, "y": v.y} {
		try.FailIf(list != nil && list.Len() < 0, "%s has no dimension to take samples from: want a shape of (samples, ...)", name)
	}
	if v.y != nil && v.x.Len() != v.y.Len() {
		try.Fail("x and y differ in the number of samples: %d and %d", v.x.Len(), v.y.Len())
	}
	return &Dataset{v, thread}, nil
}

// Len is the list's current length: a recipe may shorten it.
func (v *values) Len() int { return v.x.Len() }

func (v *values) Freeze() {
	v.x.Freeze()
	if v.y != nil {
		v.y.Freeze()
	}
}

func (v *values) sample(_ *access, i int) (starlark.Value, error) {
	if i >= v.x.Len() || v.y != nil && i >= v.y.Len() {
		return nil, fmt.Errorf("there is no sample %d any more: the dataset's list has become shorter", i)
	}
	if v.y == nil {
		return v.x.Index(i), nil
	}
	return starlark.Tuple{v.x.Index(i), v.y.Index(i)}, nil
}

// labelOf is the y of a sample; nil if there is none, or the sample must be computed to know it.
func labelOf(it items, i int) starlark.Value {
	switch it := it.(type) {
	case *values:
		if it.y != nil {
			return it.y.Index(i)
		}
	case *images:
		return it.y[i]
	case *subset:
		return labelOf(it.of, it.index[i])
	case *chain:
		return labelOf(it.at(i))
	case *cached:
		return labelOf(it.of, i)
	}
	return nil
}
