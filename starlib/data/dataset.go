package data

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Dataset is samples: row i of x with row i of y.
type Dataset struct {
	x, y *tensor.Tensor // y is nil when there are no labels
}

var (
	_ starlark.HasAttrs = (*Dataset)(nil)
	_ starlark.Sequence = (*Dataset)(nil)
)

func newDataset(x, y *tensor.Tensor) (*Dataset, error) {
	switch {
	case x.Dim() == 0:
		return nil, fmt.Errorf("x has no dimension to take samples from: want a shape of (samples, ...)")
	case y != nil && (y.Dim() == 0 || y.Shape()[0] != x.Shape()[0]):
		return nil, fmt.Errorf("x of shape %s and y of shape %s differ in the number of samples, their first dimension",
			startensor.Shape(x), startensor.Shape(y))
	}
	return &Dataset{x: x, y: y}, nil
}

func (d *Dataset) String() string {
	return fmt.Sprintf("<dataset of %d samples, %s each>", d.Len(), tensor.ShapeString(d.x.Shape()[1:]))
}
func (d *Dataset) Type() string          { return "Dataset" }
func (d *Dataset) Truth() starlark.Bool  { return d.Len() > 0 }
func (d *Dataset) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: Dataset") }

// Freeze freezes the tensors.
func (d *Dataset) Freeze() {
	d.x.Freeze()
	if d.y != nil {
		d.y.Freeze()
	}
}

// Len is the number of samples.
func (d *Dataset) Len() int { return d.x.Shape()[0] }

// Iterate goes through the samples in order.
func (d *Dataset) Iterate() starlark.Iterator { return &sampleIterator{d: d} }

type sampleIterator struct {
	d *Dataset
	i int
}

func (it *sampleIterator) Next(p *starlark.Value) bool {
	if it.i == it.d.Len() {
		return false
	}
	x := (*startensor.Value)(it.d.x).Index(it.i)
	if *p = x; it.d.y != nil {
		*p = starlark.Tuple{x, (*startensor.Value)(it.d.y).Index(it.i)}
	}
	it.i++
	return true
}

func (it *sampleIterator) Done() {}

var datasetMethods = &starlib.Methods{
	Type: "Dataset",
	Doc:  "Samples: row i of x belongs to row i of y. len(ds) is the number of samples; a loop gives (x, y) sample by sample, or x alone without labels.",
	Attrs: [][2]string{
		{"x", "the inputs, shape (samples, ...)"},
		{"y", "the labels, shape (samples, ...), or None"},
	},
}

// Attr gives the tensors.
func (d *Dataset) Attr(name string) (starlark.Value, error) {
	switch name {
	case "x":
		return (*startensor.Value)(d.x), nil
	case "y":
		if d.y == nil {
			return starlark.None, nil
		}
		return (*startensor.Value)(d.y), nil
	}
	return datasetMethods.Attr(d, name)
}

// AttrNames lists the attributes.
func (d *Dataset) AttrNames() []string { return datasetMethods.AttrNames() }

// rows gathers samples. order holds all sample indices in the epoch's order, nil
// for the data's own; lo and hi bound the part of it that is wanted.
func rows(t, order *tensor.Tensor, lo, hi int) (*tensor.Tensor, error) {
	if order == nil {
		return tensor.Narrow(t, 0, lo, hi-lo)
	}
	index, err := tensor.Narrow(order, 0, lo, hi-lo)
	if err != nil {
		return nil, err
	}
	return tensor.IndexSelect(t, 0, index)
}

// split cuts the dataset in two after a shuffle by order.
func (d *Dataset) split(order *tensor.Tensor, fraction float64) (a, b *Dataset, err error) {
	if !(fraction >= 0 && fraction <= 1) {
		return nil, nil, fmt.Errorf("fraction %v is not between 0 and 1", fraction)
	}
	n := d.Len()
	cut := int(math.Round(fraction * float64(n)))
	part := func(lo, hi int) (*Dataset, error) {
		p := &Dataset{}
		var err error
		if p.x, err = rows(d.x, order, lo, hi); err != nil || d.y == nil {
			return p, err
		}
		p.y, err = rows(d.y, order, lo, hi)
		return p, err
	}
	if a, err = part(0, cut); err == nil {
		b, err = part(cut, n)
	}
	return a, b, err
}
