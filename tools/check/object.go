package check

import (
	"fmt"
	"slices"
	"strings"

	"drun/starlib"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

type kind uint8

const (
	container kind = iota // a list, tuple, dict, set, struct: fields and elements
	instance              // a value of a type that starlib declares, or unknown
	function              // def, lambda
	builtin               // def of a module
	module                // dist, nn, …
	method                // a method, bound to the field "self"
	native                // a builtin of the language, or one of its modules
)

// An object represents all values that one expression creates in one activation of its function.
type object struct {
	id   int
	kind kind
	typ  string // "list", "dict", "tuple", "struct", "Tensor", …; "" if unknown
	name string // "dist.rank", "len"; a function's name
	pos  syntax.Position

	fn     *resolve.Function
	frame  *frame // in which the function was made
	def    *starlib.Def
	module *starlib.Module
}

// A frame is an activation of a function, identified by where it is called.
type frame struct {
	parent   *frame
	file     *source
	fn       *resolve.Function // nil: the top level of a file
	call     syntax.Node
	captured bool                        // functions were made in it, which may read its variables later
	vars     map[*syntax.Ident]*variable // by the identifier that binds it first, which the resolver shares among all its uses
}

// name returns the function's name, "" at the top level.
func (f *frame) name() string {
	if f.fn == nil {
		return ""
	}
	return f.fn.Name
}

// text returns the source of a node on one line, shortened if long.
func (f *frame) text(n syntax.Node) string {
	start, end := n.Span()
	if start.Line < 1 || int(end.Line) > len(f.file.lines) || end.Line < start.Line {
		return ""
	}
	lines := slices.Clone(f.file.lines[start.Line-1 : min(end.Line, start.Line+7)])
	if last := int(end.Line - start.Line); last < len(lines) {
		runes := []rune(lines[last])
		lines[last] = string(runes[:min(int(end.Col)-1, len(runes))])
	}
	runes := []rune(lines[0])
	lines[0] = string(runes[min(int(start.Col)-1, len(runes)):])
	text := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
	for _, pair := range []string{"[]", "()"} { // some nodes end before their bracket
		if strings.Count(text, pair[:1]) > strings.Count(text, pair[1:]) {
			text += pair[1:]
		}
	}
	if r := []rune(text); len(r) > 60 {
		text = string(r[:57]) + "..."
	}
	return text
}

type site struct {
	node  any
	frame *frame
	role  string
}

// object returns the one object of a site, which starts as a copy of as.
func (m *memory) object(key site, as object) *object {
	o := m.objects[key]
	if o == nil {
		as.id = len(m.objects) + 1
		o = &as
		m.objects[key] = o
	}
	return o
}

// alloc returns the object of an expression, which now holds c.
func (m *memory) alloc(node any, role string, k kind, typ string, c *contents) *object {
	o := m.object(site{node, m.frame, role}, object{})
	o.kind, o.typ = k, typ
	if c.fields == nil {
		c.fields = map[string]value{}
	}
	m.st.heap.set(o.id, c)
	return o
}

func (m *memory) activation(closure *object, call syntax.Node) *frame {
	key := site{closure.fn, closure.frame, fmt.Sprintf("%p", call)}
	f := m.frames[key]
	if f == nil {
		f = &frame{parent: closure.frame, file: closure.frame.file, fn: closure.fn, call: call}
		m.frames[key] = f
	}
	return f
}

// held returns what an object holds now; never nil.
func (m *memory) held(o *object) *contents {
	if c := m.st.heap.get(o.id); c != nil {
		return c
	}
	return &contents{fields: map[string]value{}}
}

func (m *memory) hold(o *object, c *contents) {
	m.st.heap.set(o.id, c)
	m.touch(o)
}

// change applies fn to what each object of v holds; certain is true if v can be no other object.
func (m *memory) change(v value, fn func(c *contents, certain bool)) {
	for _, o := range v.refs {
		if o.kind == container || o.kind == instance {
			c := m.held(o).clone()
			fn(c, v.only() != nil)
			m.hold(o, c)
		}
	}
}

// set puts v into a field, which is replaced only if certain.
func set(c *contents, key string, v value, certain bool) {
	if old, ok := c.fields[key]; ok && !certain {
		v = join(old, v)
	} else if !ok {
		c.closed = false
	}
	c.fields[key] = v
}

// every returns a value that stands for any element that an object holds.
func (c *contents) every() value {
	out := union{c.elem, !c.elem.equal(same)}
	for _, key := range sortedKeys(c.fields) {
		out.add(c.fields[key])
	}
	return out.value
}

func differing(v value, why *reason) value {
	if why != nil {
		v.diff = either(v.diff, why)
	}
	return v
}

// plainTypes are the types of values that no object represents.
var plainTypes = map[string]bool{"int": true, "float": true, "number": true, "bool": true, "string": true, "bytes": true, "None": true}

// shaped returns v as a new value; if it is a tensor, only its elements may differ.
func (m *memory) shaped(v value) value {
	for _, o := range v.refs {
		if o.typ == "Tensor" {
			c := m.held(o).clone()
			c.shaped = true
			m.hold(o, c)
		}
	}
	return v
}

// made returns a new value of a declared type, for an expression.
func (m *memory) made(node any, typ string, why *reason) value {
	switch {
	case plainTypes[typ]:
		return value{typ: typ, diff: why}
	case typ == "list", typ == "dict", typ == "tuple":
		return of(m.alloc(node, "result", container, typ, &contents{elem: value{diff: why}}))
	case m.types[typ] != nil:
		return of(m.alloc(node, "result", instance, typ, &contents{diff: why}))
	case strings.HasPrefix(typ, "("):
		c := &contents{fields: map[string]value{}}
		for i, elem := range strings.Split(strings.Trim(typ, "()"), ",") {
			elem = strings.TrimSpace(elem)
			if m.types[elem] == nil {
				elem = ""
			}
			c.fields[fmt.Sprint(i)] = of(m.alloc(node, fmt.Sprint(i), instance, elem, &contents{diff: why}))
		}
		return of(m.alloc(node, "result", container, "tuple", c))
	}
	return of(m.alloc(node, "result", instance, "", &contents{diff: why}))
}
