package tensor

import (
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
)

// FromData makes a tensor from a recipe's data: a number, bool, bytes, tensor, or lists,
// tuples and ranges of these, nested to equal lengths. Without a dtype, floats make
// float32 (float64 tensors float64), integers int64, bools bool and bytes uint8.
func FromData(ctx *tensor.Context, data starlark.Value, dt starlark.Value) (*tensor.Tensor, error) {
	var t *tensor.Tensor
	var err error
	switch data := data.(type) {
	case *Value:
		t, err = tensor.Clone(data.Tensor().Detach())
	case starlark.Bytes:
		t, err = tensor.FromBytes(ctx, []byte(data), []int{len(data)}, dtype.Uint8)
	default:
		return fromLists(ctx, data, dt)
	}
	if err != nil {
		return nil, err
	}
	d, err := dtypeOf(dt, t.DType())
	if err != nil {
		return nil, err
	}
	return tensor.Cast(t, d)
}

func fromLists(ctx *tensor.Context, data, dt starlark.Value) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	c := collector{kind: dtype.Bool}
	try.Ok(c.add(data, 0))
	kind := c.kind
	if len(c.values) == 0 || kind == dtype.Float64 && !c.double {
		kind = dtype.Float32
	}
	d := try.To(dtypeOf(dt, kind))
	return tensor.FromScalars(ctx, c.values, c.shape, d)
}

// collector collects the numbers in nested lists.
type collector struct {
	shape  []int
	rows   int  // how many elements, or innermost lists, the shape so far has
	known  bool // the shape is complete: a number was reached
	values []tensor.Scalar
	kind   dtype.Type // the widest so far: Bool, Int64 or Float64
	double bool       // float64 tensors are among the data
}

func (c *collector) add(v starlark.Value, depth int) error {
	var list starlark.Indexable
	switch v := v.(type) {
	case *starlark.List:
		list = v
	case starlark.Tuple:
		list = v
	case *Value:
		if v.Tensor().Dim() > 0 {
			list = v
		} else {
			if v.Tensor().DType() == dtype.Complex64 {
				return fmt.Errorf("got a complex64 Tensor where a number was expected: use tensor.stack")
			}
			c.double = c.double || v.Tensor().DType() == dtype.Float64
			s, err := v.Tensor().Item()
			if err != nil {
				return err
			}
			return c.number(s, depth)
		}
	default:
		if r, ok := v.(starlark.Indexable); ok && v.Type() == "range" {
			list = r
			break
		}
		s, ok, err := scalar(v)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("cannot make a tensor of a %s: want numbers, or nested lists of numbers of equal lengths", v.Type())
		}
		return c.number(s, depth)
	}
	n := list.Len()
	switch {
	case depth >= tensor.MaxDims:
		return fmt.Errorf("lists are nested more than %d deep", tensor.MaxDims)
	case depth == len(c.shape) && !c.known:
		c.shape = append(c.shape, n)
		if c.rows = max(c.rows, 1); n > tensor.MaxValues()/c.rows {
			return fmt.Errorf("lists of at least shape %s have too many elements", tensor.ShapeString(c.shape))
		}
		c.rows *= max(n, 1)
	case depth >= len(c.shape):
		return fmt.Errorf("got a list where a number was expected: nested lists must have equal lengths")
	case c.shape[depth] != n:
		return fmt.Errorf("lists have different lengths: %d and %d at depth %d", c.shape[depth], n, depth)
	}
	for i := range n {
		if err := c.add(list.Index(i), depth+1); err != nil {
			return err
		}
	}
	if n == 0 {
		c.known = true
	}
	return nil
}

func (c *collector) number(s tensor.Scalar, depth int) error {
	if depth != len(c.shape) {
		return fmt.Errorf("got a number where a list of length %d was expected: nested lists must have equal lengths", c.shape[depth])
	}
	c.known = true
	switch k := s.Kind(); {
	case k == dtype.Float64, k == dtype.Int64 && c.kind == dtype.Bool:
		c.kind = k
	}
	c.values = append(c.values, s)
	return nil
}

// dtypeOf reads a dtype argument; None means the default.
func dtypeOf(v starlark.Value, byDefault dtype.Type) (dtype.Type, error) {
	s, ok := v.(starlark.String)
	if !ok {
		return byDefault, nil
	}
	return dtype.Parse(string(s))
}

// dtypeArg returns the argument dtype; byDefault if it is None.
func dtypeArg(c *starlib.Call, byDefault dtype.Type) dtype.Type {
	return try.To(dtypeOf(c.Arg("dtype"), byDefault))
}

// DType returns the argument dtype.
func DType(c *starlib.Call) dtype.Type { return dtypeArg(c, 0) }

// sizes reads the arguments *shape, given one by one, (2, 3), or as one tuple or list, ((2, 3)).
func sizes(c *starlib.Call) []int {
	if len(c.Rest) == 1 {
		return shapeOf(c.Rest[0])
	}
	return try.To(Ints(c.Rest))
}

// shapeArg returns the argument shape, one size or several.
func shapeArg(c *starlib.Call) []int { return shapeOf(c.Arg("shape")) }

func shapeOf(v starlark.Value) []int {
	if list, ok := v.(starlark.Sequence); ok {
		return try.To(Ints(list))
	}
	return try.To(Ints(starlark.Tuple{v}))
}

// number returns an argument that is a number or a bool.
func number(v starlark.Value) tensor.Scalar {
	s, _, err := scalar(v)
	return try.To(s, err)
}

// Ints converts a sequence of integers, such as a shape.
func Ints(list starlark.Iterable) ([]int, error) {
	var sizes []int
	iter := list.Iterate()
	defer iter.Done()
	for v := starlark.Value(nil); iter.Next(&v); {
		n, ok := v.(starlark.Int)
		if !ok {
			return nil, fmt.Errorf("want integers, got %s", v.Type())
		}
		i, ok := n.Int64()
		if !ok {
			return nil, fmt.Errorf("%s does not fit into 64 bits", n)
		}
		sizes = append(sizes, int(i))
	}
	return sizes, nil
}

// Arg returns an argument declared Tensor.
func Arg(c *starlib.Call, name string) *tensor.Tensor { return c.Arg(name).(*Value).Tensor() }

// Optional returns an argument declared Tensor = None; nil for None.
func Optional(c *starlib.Call, name string) *tensor.Tensor {
	if v, ok := c.Arg(name).(*Value); ok {
		return v.Tensor()
	}
	return nil
}

// List converts a sequence of tensors.
func List(v starlark.Value) ([]*tensor.Tensor, error) {
	iterable, ok := v.(starlark.Iterable)
	if !ok {
		return nil, fmt.Errorf("want a list of Tensors, got %s", v.Type())
	}
	if t, ok := v.(*Value); ok && t.Tensor().Dim() == 0 {
		return nil, fmt.Errorf("want a list of Tensors, got a Tensor without dimensions")
	}
	list := make([]*tensor.Tensor, 0, max(starlark.Len(v), 0))
	iter := iterable.Iterate()
	defer iter.Done()
	for v := starlark.Value(nil); iter.Next(&v); {
		t, ok := v.(*Value)
		if !ok {
			return nil, fmt.Errorf("want a list of Tensors, element %d is a %s", len(list), v.Type())
		}
		list = append(list, t.Tensor())
	}
	return list, nil
}

func plain(s tensor.Scalar) starlark.Value {
	switch s.Kind() {
	case dtype.Bool:
		return starlark.Bool(s.Int() != 0)
	case dtype.Int64:
		return starlark.MakeInt64(s.Int())
	}
	return starlark.Float(s.Float())
}

// reader returns a function that reads t's elements in row-major order as plain values.
func reader(t *tensor.Tensor) (func(i int) starlark.Value, error) {
	var err error
	t = t.Detach()
	switch t.DType() {
	case dtype.Float16, dtype.BFloat16:
		t, err = tensor.Cast(t, dtype.Float32)
	}
	if err == nil {
		t, err = tensor.Contiguous(t)
	}
	if err != nil {
		return nil, err
	}
	if t.DType() != dtype.Complex64 {
		return func(i int) starlark.Value { return plain(t.Element(i)) }, nil
	}
	parts := tensor.Elems[complex64](t)
	return func(i int) starlark.Value {
		return starlark.Tuple{starlark.Float(real(parts[i])), starlark.Float(imag(parts[i]))}
	}, nil
}

// toList returns t as nested lists; without dimensions, as a number.
func toList(t *tensor.Tensor) (starlark.Value, error) {
	lists := 1
	for _, n := range t.Shape() { // even without elements there may be many lists
		if n > tensor.MaxValues()/lists {
			return nil, fmt.Errorf("a tensor of shape %s has too many elements for a list", Shape(t))
		}
		if n == 0 {
			break
		}
		lists *= n
	}
	read, err := reader(t)
	if err != nil {
		return nil, err
	}
	next := 0
	var build func(shape []int) starlark.Value
	build = func(shape []int) starlark.Value {
		if len(shape) == 0 {
			next++
			return read(next - 1)
		}
		list := each.UpTo(shape[0], func(int) starlark.Value { return build(shape[1:]) })
		return starlark.NewList(list)
	}
	return build(t.Shape()), nil
}

// Restore copies tensors into the live ones of the same names, without recording gradients; a share gets
// only its part. If names, shapes or dtypes do not match, the error lists all differences and nothing is changed.
func Restore(ctx *tensor.Context, owner string, live map[string]*tensor.Tensor, entries []starlib.Entry) error {
	var faults []string
	for _, e := range entries {
		t := live[e.Name]
		v, ok := e.Value.(*Value)
		switch {
		case t == nil:
			faults = append(faults, fmt.Sprintf("there is no %s", e.Name))
		case !ok:
			faults = append(faults, fmt.Sprintf("%s: want a Tensor, got %s", e.Name, e.Value.Type()))
		case tensor.ShapeString(t.WholeShape()) != Shape(v.Tensor()) || t.DType() != v.Tensor().DType():
			faults = append(faults, fmt.Sprintf("%s: want %s of shape %s, got %s of shape %s",
				e.Name, t.DType(), tensor.ShapeString(t.WholeShape()), v.Tensor().DType(), Shape(v.Tensor())))
		}
	}
	if faults != nil {
		return fmt.Errorf("%s does not fit the state: %s", owner, strings.Join(faults, "; "))
	}
	ctx.BeginNoGrad()
	defer ctx.EndNoGrad()
	for _, e := range entries {
		if err := tensor.CopyWhole(live[e.Name], e.Value.(*Value).Tensor()); err != nil {
			return fmt.Errorf("%s: %s: %w", owner, e.Name, err)
		}
	}
	return nil
}
