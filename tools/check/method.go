package check

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"drun/starlib"
	"drun/starlib/lang"
)

// formatSpec finds "{:.3f}", which format does not support.
var formatSpec = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\w*:([^{}]+)\}`) })

// callMethod calls a method of a value, known by its declaration or only by its name.
func (m *machine) callMethod(o *object, c *call, certain bool) value {
	self := m.held(o).fields["self"]
	if o.def != nil && certain {
		m.fits(c.text, o.def, c)
	}
	if spec := formatSpec().FindStringSubmatch(strings.ReplaceAll(self.lit, "{{", "")); o.name == "format" && self.typ == "string" && spec != nil {
		m.fault(c.pos, "%s", lang.Hinted("format spec features not supported in replacement fields: "+spec[1]))
	}
	if o.name == "register_forward_hook" || o.name == "apply" {
		m.rebuilt = true
	}
	if x := self.only(); x != nil {
		if dist := m.ref.modules["dist"]; dist != nil && slices.ContainsFunc(dist.Types, func(t *starlib.Methods) bool { return t.Type == x.typ }) {
			clear(m.saved)
		}
		switch {
		case x.typ == "Group":
			return m.groupMethod(o.name, x, c)
		case x.kind == container && x.typ != "struct":
			return m.containerMethod(o, self, x, c)
		case x.typ == "Generator" && o.def != nil && m.st.deep(c.all()...) == nil:
			return m.shaped(m.made(c.node, o.def.Returns(), m.st.shallow(self)))
		case x.typ == "Tensor" && o.name == "tolist" && m.held(x).shaped:
			return of(m.alloc(c.node, "result", container, "list", &contents{elem: value{diff: m.st.deep(self)}}))
		case x.typ == "Loader" && o.name == "epochs":
			return of(m.alloc(c.node, "epochs", container, "list", &contents{
				diff: m.st.deep(c.all()...), elem: value{typ: "int"}}))
		}
	}
	if o.name == "backward" {
		m.backward(self, c)
	}
	why := either(m.st.shallow(self), m.st.deep(c.all()...))
	switch {
	case o.name == "parameters" && len(c.args) == 0:
		return of(m.alloc(c.node, "parameters", container, "list", &contents{elem: m.parameter(c)}))
	case o.name == "named_parameters" && len(c.args) == 0:
		pair := of(m.alloc(c.node, "pair", container, "tuple", &contents{
			fields: map[string]value{"0": {typ: "string"}, "1": m.parameter(c)}}))
		return of(m.alloc(c.node, "parameters", container, "list", &contents{elem: pair}))
	case strings.HasSuffix(o.name, "_") && !strings.HasPrefix(o.name, "_"):
		m.inPlace(o.name, self, c)
		return self
	}
	m.callbacks(c)
	from := append(c.all(), self)
	if ownGraph[o.name] {
		from = nil
	}
	if o.def == nil {
		return m.carried(m.unknown(c.node, either(m.held(o).diff, why)), from...)
	}
	return m.carried(m.made(c.node, o.def.Returns(), why), from...)
}

func (m *machine) parameter(c *call) value {
	v := of(m.alloc(c.node, "parameter", instance, "Tensor", &contents{}))
	v.param, v.graph = true, learned
	return v
}

// inPlace is a method that changes its tensor.
func (m *machine) inPlace(name string, self value, c *call) {
	why := m.st.deep(c.all()...)
	m.change(self, func(held *contents, certain bool) {
		if certain && (name == "zero_" || name == "fill_" || name == "copy_") {
			held.diff = why
		} else {
			held.diff = either(held.diff, why)
		}
	})
}

// groupMethod is a method of a group of ranks.
func (m *machine) groupMethod(name string, group *object, c *call) value {
	if name == "rank" {
		return value{typ: "int", diff: m.reason(reason{what: m.text(c.node), pos: c.pos, group: group})}
	}
	return same
}

// containerMethod is a method of a list, dict, set or tuple.
func (m *machine) containerMethod(o *object, self value, x *object, c *call) value {
	held := m.held(x)
	arg := func(i int) value {
		if i >= 0 && i < len(c.args) {
			return c.args[i]
		}
		return none
	}
	elements := func(v value) value {
		return of(m.alloc(c.node, "elements", container, "list", &contents{diff: held.diff, elem: v}))
	}
	switch o.name {
	case "append", "add", "insert":
		v := arg(len(c.args) - 1)
		m.change(self, func(held *contents, _ bool) {
			held.elem = m.also(held, v)
		})
		return none
	case "extend", "update":
		m.change(self, func(held *contents, certain bool) {
			m.extend(held, arg(0))
			for _, name := range c.names {
				set(held, `"`+name+`"`, c.named[name], certain)
			}
		})
		return none
	case "get", "setdefault", "pop":
		v := m.at(self, arg(0), c.node)
		if len(c.args) > 1 {
			v = join(v, c.args[1])
		} else if len(c.args) == 0 {
			v = held.every()
		}
		if o.name == "setdefault" {
			m.change(self, func(held *contents, _ bool) {
				if key := arg(0).lit; key != "" {
					set(held, key, v, false)
				} else {
					held.elem = m.also(held, arg(1))
				}
			})
		}
		return v
	case "values":
		return elements(held.every())
	case "keys":
		return elements(value{diff: held.diff})
	case "items":
		return elements(of(m.alloc(c.node, "item", container, "tuple", &contents{
			fields: map[string]value{"0": {diff: held.diff}, "1": held.every()}})))
	case "clear":
		m.change(self, func(held *contents, certain bool) {
			if certain {
				*held = contents{fields: map[string]value{}}
			}
		})
		return none
	}
	return m.unknown(c.node, m.st.deep(append(c.all(), self)...))
}

// also adds v to the elements of a container at unknown positions.
func (m *machine) also(held *contents, v value) value {
	if held.elem.equal(same) {
		return v
	}
	return join(held.elem, v)
}

// extend adds the elements of v, a list or a dict.
func (m *machine) extend(held *contents, v value) {
	held.diff = either(held.diff, m.st.shallow(v))
	for _, o := range v.refs {
		other := m.held(o)
		if o.typ == "dict" {
			for key, x := range other.fields {
				set(held, key, x, len(v.refs) == 1)
			}
			held.elem = m.also(held, other.elem)
			continue
		}
		held.elem = m.also(held, other.every())
	}
}
