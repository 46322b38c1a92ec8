package check

import (
	"cmp"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Shapes are inferred by the builtins themselves: they run here on tensors that have a shape and a type but no
// elements (tensor.Context.Shapes), so that their rules and messages exist only once. An unknown size is tried as
// several sizes. What the results have in common is known about the result; a call is wrong only if all sizes give an
// error. A call that needs elements, or has an unknown argument, gives a tensor of unknown shape, which fits everywhere.

// A shape is what is known about a tensor's shape.
type shape struct {
	sizes string // of the dimensions, each followed by a comma; ? if unknown
	open  bool   // an unknown number of dimensions precedes them
	dtype string // "" if unknown
}

func (s *shape) exact() bool { return !s.open && s.dtype != "" && !strings.Contains(s.sizes, "?") }

func (s *shape) dims() []string {
	return strings.FieldsFunc(s.sizes, func(r rune) bool { return r == ',' })
}

// String formats s as (32, 128) float32, with ? and … for what is unknown.
func (s *shape) String() string {
	list := s.dims()
	if s.open {
		list = append([]string{"…"}, list...)
	}
	text := "(" + strings.Join(list, ", ")
	if len(list) == 1 {
		text += ","
	}
	return strings.TrimSpace(text + ") " + s.dtype)
}

// joined returns a shape that covers both; nil if they have nothing in common.
func joined(a, b *shape) *shape {
	if a == b || a == nil || b == nil {
		if a == b {
			return a
		}
		return nil
	}
	out := &shape{open: a.open || b.open, dtype: a.dtype}
	if a.dtype != b.dtype {
		out.dtype = ""
	}
	x, y := a.dims(), b.dims()
	out.open = out.open || len(x) != len(y)
	n := min(len(x), len(y))
	x, y = x[len(x)-n:], y[len(y)-n:]
	for i := range x {
		if x[i] != y[i] {
			x[i] = "?"
		}
	}
	for out.open && len(x) > 0 && x[0] == "?" {
		x = x[1:]
	}
	for _, size := range x {
		out.sizes += size + ","
	}
	if out.open && len(x) == 0 {
		return nil
	}
	return out
}

func (s *shape) alike(t *shape) bool { return s == t || s != nil && t != nil && *s == *t }

// shapeOf returns the shape of a tensor without elements.
func shapeOf(v starlark.Value) *shape {
	t, ok := v.(starlark.HasAttrs)
	if !ok || v.Type() != "Tensor" {
		return nil
	}
	dims, err := t.Attr("shape")
	dtype, err2 := t.Attr("dtype")
	list, ok := dims.(starlark.Tuple)
	if err != nil || err2 != nil || !ok {
		return nil
	}
	out := &shape{}
	out.dtype, _ = starlark.AsString(dtype)
	for _, size := range list {
		out.sizes += size.String() + ","
	}
	return out
}

const (
	maxTries = 700  // of one call with unknown sizes
	manyOf   = 5040 // a size that is large enough for most kernels, and divisible by most numbers of parts
)

// samples returns tensors that a shape allows, with these sizes in place of unknown ones; nil if there are too many.
func (inf *inference) samples(s *shape, sizes []int) (list []starlark.Value) {
	dtype := cmp.Or(s.dtype, "float32")
	shapes := [][]string{s.dims()}
	for s.open && len(shapes[len(shapes)-1]) < 4 {
		shapes = append(shapes, append([]string{"?"}, shapes[len(shapes)-1]...))
	}
	for _, dims := range shapes {
		all := []starlark.Tuple{nil}
		for i, d := range dims {
			choices := sizes
			if n, err := strconv.Atoi(d); err == nil {
				choices = []int{n}
			} else if s.open && i != 1 && i != len(dims)-1 { // the dimensions of channels and features
				choices = []int{1, manyOf, 2 * manyOf}
			}
			var longer []starlark.Tuple
			for _, t := range all {
				for _, n := range choices {
					longer = append(longer, append(t[:len(t):len(t)], starlark.MakeInt(n)))
				}
			}
			if all = longer; len(all) > maxTries {
				return nil
			}
		}
		for _, t := range all {
			v, err := inf.run1(inf.ref.zeros, starlark.Tuple{t}, []starlark.Tuple{{starlark.String("dtype"), starlark.String(dtype)}})
			if err != nil {
				continue // more elements than a tensor can have
			}
			list = append(list, v)
		}
	}
	if len(list) > maxTries {
		return nil
	}
	return list
}

// mark records the shape of a name at its position.
func (inf *inference) mark(id *syntax.Ident, v value) {
	if inf.st.dead {
		return
	}
	if old, known := inf.shapes[id]; known {
		v.shape = joined(old, v.shape)
	}
	inf.shapes[id] = v.shape
}
