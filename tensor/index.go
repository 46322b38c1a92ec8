package tensor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/element"
)

// An IndexKind says what one entry of an index is.
type IndexKind uint8

// The kinds of index entries.
const (
	IndexInt IndexKind = iota
	IndexSlice
	IndexEllipsis
	IndexNewAxis
	IndexTensor
)

// An IndexItem is one entry of x[a, b, …].
type IndexItem struct {
	Kind              IndexKind
	I                 int     // of IndexInt
	Start, Stop, Step *int    // of IndexSlice; nil where omitted
	T                 *Tensor // of IndexTensor: integers, or a bool mask
}

// ParseIndex reads an index written as in Python, such as ":, 0" or
// "..., 2:5, None".
func ParseIndex(s string) ([]IndexItem, error) {
	var items []IndexItem
	parts := strings.Split(s, ",")
	if len(parts) > 1 && strings.TrimSpace(parts[len(parts)-1]) == "" {
		parts = parts[:len(parts)-1] // x[1,]
	}
	for _, part := range parts {
		item, err := parseItem(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("index %q: %w", s, err)
		}
		items = append(items, item)
	}
	return items, nil
}

func parseItem(s string) (IndexItem, error) {
	switch s {
	case "":
		return IndexItem{}, fmt.Errorf("an entry is empty; write : for a whole dimension")
	case "...":
		return IndexItem{Kind: IndexEllipsis}, nil
	case "None", "newaxis":
		return IndexItem{Kind: IndexNewAxis}, nil
	}
	bounds := strings.Split(s, ":")
	if len(bounds) > 3 {
		return IndexItem{}, fmt.Errorf("%q has too many colons", s)
	}
	var vals [3]*int
	for i, b := range bounds {
		b = strings.TrimSpace(b)
		if b == "" {
			continue
		}
		v, err := strconv.Atoi(b)
		if err != nil {
			return IndexItem{}, fmt.Errorf("%q is not an integer, a slice, ... or None", b)
		}
		vals[i] = &v
	}
	if len(bounds) == 1 {
		return IndexItem{Kind: IndexInt, I: *vals[0]}, nil
	}
	return IndexItem{Kind: IndexSlice, Start: vals[0], Stop: vals[1], Step: vals[2]}, nil
}

// Index is x[items]: views for integers, slices, ... and None; a copy where
// a tensor picks elements. At most one tensor may take part.
func Index(t *Tensor, items []IndexItem) (*Tensor, error) {
	v, dim, pick, err := indexView(t, items)
	if err != nil || pick == nil {
		return v, err
	}
	if pick.dtype == element.Bool {
		return maskSelect(v, dim, pick)
	}
	return takeAt(v, dim, pick)
}

// indexView applies all of an index but the tensor in it, which is returned
// with the dimension it applies to.
func indexView(t *Tensor, items []IndexItem) (v *Tensor, dim int, pick *Tensor, err error) {
	uses, ellipsis := 0, false
	for _, it := range items {
		switch it.Kind {
		case IndexInt, IndexSlice:
			uses++
		case IndexTensor:
			if it.T.dtype == element.Bool {
				uses += max(len(it.T.shape), 1)
			} else {
				uses++
			}
		case IndexEllipsis:
			if ellipsis {
				return nil, 0, nil, fmt.Errorf("index: only one ... is allowed")
			}
			ellipsis = true
		}
	}
	if uses > len(t.shape) {
		return nil, 0, nil, fmt.Errorf("index: %d indices for a tensor of %d dimensions (shape %s)", uses, len(t.shape), ShapeString(t.shape))
	}
	v = t
	d := 0    // dimension of v that comes next
	orig := 0 // the same in t, for messages
	for _, it := range items {
		switch it.Kind {
		case IndexEllipsis:
			d += len(t.shape) - uses
			orig += len(t.shape) - uses
		case IndexNewAxis:
			if v, err = Unsqueeze(v, d); err != nil {
				return nil, 0, nil, As("index", err)
			}
			d++
		case IndexInt:
			i, err := index("index", it.I, v.shape[d], orig)
			if err != nil {
				return nil, 0, nil, err
			}
			v = selectDim(v, d, i)
			orig++
		case IndexSlice:
			start, count, step, err := it.resolve(v.shape[d])
			if err != nil {
				return nil, 0, nil, err
			}
			if count != v.shape[d] || step != 1 {
				v = sliceDim(v, d, start, count, step)
			}
			d++
			orig++
		case IndexTensor:
			if pick != nil {
				return nil, 0, nil, fmt.Errorf("index: only one tensor may be part of an index; use gather or index_select in turn")
			}
			if it.T.dtype != element.Bool && !it.T.dtype.IsInt() {
				return nil, 0, nil, fmt.Errorf("index: a tensor of %s cannot be an index; use an integer or bool tensor", it.T.dtype)
			}
			pick, dim = it.T, d
			if pick.dtype == element.Bool {
				d += max(len(pick.shape), 1)
				orig += max(len(pick.shape), 1)
			} else {
				d++
				orig++
			}
		}
	}
	if v == t { // x[:] is a new tensor, as every index is
		v = sliceAll(t)
	}
	return v, dim, pick, nil
}

func sliceAll(t *Tensor) *Tensor {
	v := alias(t)
	return finishView("slice", t, v, backPass)
}

// resolve applies Python's rules for slices to a dimension.
func (it IndexItem) resolve(size int) (start, count, step int, err error) {
	step = 1
	if it.Step != nil {
		step = *it.Step
	}
	if step <= 0 {
		return 0, 0, 0, fmt.Errorf("index: the step of a slice must be positive, not %d; use flip to reverse", step)
	}
	clampTo := func(p *int, missing int) int {
		if p == nil {
			return missing
		}
		v := *p
		if v < 0 {
			v += size
		}
		return min(max(v, 0), size)
	}
	start, stop := clampTo(it.Start, 0), clampTo(it.Stop, size)
	if stop > start {
		count = (stop-start-1)/step + 1
	}
	return start, count, step, nil
}

// SetIndex is x[items] = v: in place, with v broadcast to the place.
func SetIndex(t *Tensor, items []IndexItem, v *Tensor) error {
	const op = "index assignment"
	if err := t.mayModify(op); err != nil {
		return err
	}
	if err := t.mayModifyView(op, v); err != nil {
		return err
	}
	if records(v, nil) && !t.dtype.IsFloat() {
		return fmt.Errorf("%s: a %s tensor cannot take values that require gradients", op, t.dtype)
	}
	base := t.Detach()
	place, dim, pick, err := indexView(base, items)
	if err != nil {
		return err
	}
	if pick != nil {
		if records(t, v) {
			return fmt.Errorf("%s: assigning through a tensor index is not differentiable; use where, masked_fill or scatter_add", op)
		}
		return setPicked(op, place, dim, pick, v)
	}
	if err := assign(op, place, v); err != nil {
		return err
	}
	items = slices.Clone(items)
	t.modified(op, v, func(n *node, g *Tensor, out []*Tensor) error {
		part, _, _, err := indexView(g, items)
		if err != nil {
			return err
		}
		out[1] = part
		rest, err := Clone(g)
		if err != nil {
			return err
		}
		hole, _, _, err := indexView(rest, items)
		if err != nil {
			return err
		}
		fill(hole, Int(0))
		out[0] = rest
		return nil
	})
	return nil
}
