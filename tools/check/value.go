package check

import (
	"maps"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// A reason says why a value may differ between ranks. Of several reasons the first one found is kept, so that joining terminates.
type reason struct {
	id    int
	what  string // "dist.rank()"
	pos   syntax.Position
	group *object // the group whose rank was asked, nil: the world's
	// member: only membership of the group was asked (rank() >= 0).
	member bool
}

func either(a, b *reason) *reason {
	if a == nil || b != nil && b.id < a.id {
		return b
	}
	return a
}

// A value is what is known about a variable or an expression: whether it differs
// between ranks, and which objects it may be.
type value struct {
	diff  *reason        // the value itself differs; what objects hold is in the state
	lit   starlark.Value // the plain value that it is; nil: unknown
	typ   string         // int, float, number, bool, string, None where it is known to be one
	graph *graph         // of a tensor, or of a module's results; nil: none that matters
	param bool           // a parameter from a loop over model.parameters()
	shape *shape         // of a tensor; nil: unknown
	layer starlark.Value // a module of nn that is fully known, without elements
	refs  []*object      // by id
}

// same is a value about which nothing is known, equal on all ranks.
var same = value{}

var none = value{lit: starlark.None, typ: "None"}

func of(o *object) value { return value{refs: []*object{o}} }

// only returns the object that the value certainly is, or nil.
func (v value) only() *object {
	if len(v.refs) == 1 && v.typ == "" {
		return v.refs[0]
	}
	return nil
}

// maybe is the type of a value that may also be something that none of its objects represents.
const maybe = "?"

func join(a, b value) value {
	out := value{diff: either(a.diff, b.diff), param: a.param && b.param, refs: a.refs, graph: merged(a.graph, b.graph)}
	if alike(a.lit, b.lit) {
		out.lit = a.lit
	}
	if a.layer == b.layer {
		out.layer = a.layer
	}
	out.shape = joined(a.shape, b.shape)
	switch {
	case a.typ == b.typ && (len(a.refs) == 0) == (len(b.refs) == 0):
		out.typ = a.typ
	default:
		out.typ = maybe
	}
	for _, o := range b.refs {
		if i, found := slices.BinarySearchFunc(out.refs, o, func(x, y *object) int { return x.id - y.id }); !found {
			out.refs = slices.Insert(slices.Clone(out.refs), i, o)
		}
	}
	return out
}

// A union is a value that may be any of those added.
type union struct {
	value
	some bool // one was added
}

func (u *union) add(v value) {
	if u.some {
		v = join(u.value, v)
	}
	u.value, u.some = v, true
}

func (v value) equal(w value) bool {
	return v.diff == w.diff && alike(v.lit, w.lit) && v.typ == w.typ && v.graph == w.graph && v.param == w.param && v.shape.alike(w.shape) && v.layer == w.layer && slices.Equal(v.refs, w.refs)
}

// contents is what an object holds; it is replaced, never changed.
type contents struct {
	diff   *reason          // its length, or the elements of a tensor
	shaped bool             // of a tensor: the elements only, the shape is the same
	elem   value            // stands for all elements without a known key or index
	fields map[string]value // attributes; elements by literal key or index
	closed bool             // there are no other fields
	whole  bool             // of a tuple that was written out: fields are its items
}

func (c *contents) clone() *contents {
	out := *c
	out.fields = maps.Clone(c.fields)
	return &out
}

func joinContents(a, b *contents) *contents {
	out := &contents{diff: either(a.diff, b.diff), elem: join(a.elem, b.elem), fields: maps.Clone(a.fields)}
	for k, v := range b.fields {
		if w, ok := out.fields[k]; ok {
			v = join(w, v)
		}
		out.fields[k] = v
	}
	out.shaped = a.shaped && b.shaped || a.shaped && b.diff == nil || b.shaped && a.diff == nil
	out.whole = a.whole && b.whole && len(a.fields) == len(b.fields)
	out.closed = a.closed && b.closed && len(out.fields) == len(a.fields) && len(out.fields) == len(b.fields)
	return out
}

func (c *contents) equal(d *contents) bool {
	return c == d || c.diff == d.diff && c.shaped == d.shaped && c.closed == d.closed && c.whole == d.whole &&
		c.elem.equal(d.elem) && maps.EqualFunc(c.fields, d.fields, value.equal)
}
