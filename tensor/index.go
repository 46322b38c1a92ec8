package tensor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/internal/try"
	"drun/kernel/dtype"
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

// ParseIndex reads an index written as in Python, such as ":, 0" or "..., 2:5, None".
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

// Index returns x[items]: a view for integers, slices, ... and None; a copy if tensors select elements.
func Index(t *Tensor, items []IndexItem) (_ *Tensor, err error) {
	defer try.Caught(&err)
	v, picks := indexView(t, items)
	if len(picks) == 0 {
		return v, nil
	}
	if len(picks) == 1 && picks[0].t.dtype != dtype.Bool {
		return takeAt(v, picks[0].dim, picks[0].t), nil
	}
	p := try.To(find("index", v, picks))
	return p.take(v)
}

// indexView applies all of an index but the tensors in it, which are returned with the dimensions they apply to.
func indexView(t *Tensor, items []IndexItem) (v *Tensor, picks []pick) {
	uses, ellipsis := 0, false
	for _, it := range items {
		switch it.Kind {
		case IndexInt, IndexSlice:
			uses++
		case IndexTensor:
			if it.T.dtype == dtype.Bool {
				uses += max(len(it.T.shape), 1)
			} else {
				uses++
			}
		case IndexEllipsis:
			if ellipsis {
				try.Fail("index: only one ... is allowed")
			}
			ellipsis = true
		}
	}
	if uses > len(t.shape) {
		try.Fail("index: %d indices for a tensor of %d dimensions (shape %s)", uses, len(t.shape), ShapeString(t.shape))
	}
	v = t
	d := 0    // the next dimension of v
	orig := 0 // the same in t, for messages
	for _, it := range items {
		switch it.Kind {
		case IndexEllipsis:
			d += len(t.shape) - uses
			orig += len(t.shape) - uses
		case IndexNewAxis:
			var err error
			v, err = Unsqueeze(v, d)
			try.Ok(try.As("index", err))
			d++
		case IndexInt:
			i := try.To(index("index", it.I, v.shape[d], orig))
			v = selectDim(v, d, i)
			orig++
		case IndexSlice:
			start, count, step := it.resolve(v.shape[d])
			if count != v.shape[d] || step != 1 {
				v = sliceDim(v, d, start, count, step)
			}
			d++
			orig++
		case IndexTensor:
			if it.T.dtype != dtype.Bool && !it.T.dtype.IsInt() {
				try.Fail("index: a tensor of %s cannot be an index; use an integer or bool tensor", it.T.dtype)
			}
			p := pick{d, it.T}
			if p.t.dtype == dtype.Bool {
				try.Ok(p.fits(v))
			}
			picks = append(picks, p)
			d += p.span()
			orig += p.span()
		}
	}
	if v == t { // x[:] is a new tensor, as every index is
		v = sliceAll(t)
	}
	return v, picks
}

func sliceAll(t *Tensor) *Tensor {
	v := alias(t)
	return finishView("slice", t, v, backPass)
}

// resolve applies Python's rules for slices to a dimension.
func (it IndexItem) resolve(size int) (start, count, step int) {
	step = 1
	if it.Step != nil {
		step = *it.Step
	}
	if step <= 0 {
		try.Fail("index: the step of a slice must be positive, not %d; use flip to reverse", step)
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
	return start, count, step
}

// SetIndex does x[items] = v in place, with v broadcast. Of several elements for one position the last wins.
func SetIndex(t *Tensor, items []IndexItem, v *Tensor) error {
	return setIndex("index assignment", t, items, v, false)
}

// IndexPut writes v, broadcast, at indices: a tensor of integers or a mask for each dimension of t in turn, nil for
// a whole dimension. With add it adds v, and all values for the same position.
func IndexPut(op string, t *Tensor, indices []*Tensor, v *Tensor, add bool) (err error) {
	defer try.Caught(&err)
	items := make([]IndexItem, len(indices))
	any := false
	for i, x := range indices {
		if items[i] = (IndexItem{Kind: IndexSlice}); x != nil {
			items[i], any = IndexItem{Kind: IndexTensor, T: x}, true
		}
	}
	switch {
	case !any:
		return fmt.Errorf("%s: there is no tensor among the indices", op)
	case v.dtype != t.dtype:
		return fmt.Errorf("%s: dtypes %s and %s differ", op, t.dtype, v.dtype)
	}
	if add && half(t) { // added up in float32
		sum := try.To(Cast(t, dtype.Float32))
		try.Ok(IndexPut(op, sum, indices, try.To(Cast(v, dtype.Float32)), true))
		return CopyInto(t, sum)
	}
	if add {
		try.Ok(adds(op, t.dtype))
	}
	return setIndex(op, t, items, v, add)
}

func setIndex(op string, t *Tensor, items []IndexItem, v *Tensor, add bool) (err error) {
	defer try.Caught(&err)
	t.mayModify(op, v)
	if records(v, nil) && !t.dtype.IsFloat() {
		return fmt.Errorf("%s: a %s tensor cannot take values that require gradients", op, t.dtype)
	}
	place, picks := indexView(t.Detach(), items)
	if len(picks) > 0 {
		p := try.To(find(op, place, picks))
		try.Ok(p.put(op, place, v, add))
		t.modified(op, v, backPut(items, *p, add), p.index).twice(putTwice(items, p, add))
		return nil
	}
	assign(op, place, v)
	items = slices.Clone(items)
	t.modified(op, v, func(n *node, g *Tensor, out []*Tensor) {
		part, _ := indexView(g, items)
		out[1] = part
		rest := try.To(Clone(g))
		hole, _ := indexView(rest, items)
		fill(hole, Int(0))
		out[0] = rest
	}).twice(putTwice(items, nil, false))
	return nil
}
