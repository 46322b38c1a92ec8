package check

import (
	"maps"
	"strconv"
)

// callNative calls a builtin of the language or of one of its modules.
func (m *machine) callNative(o *object, c *call, certain bool) value {
	if d := m.ref.natives[o.name]; d != nil && certain {
		m.fits(o.name, d, c)
	}
	if t, ok := traits[o.name]; ok {
		if t.collective {
			m.collective(o.name, c.pos, nil)
		}
		return m.unknown(c.node, m.resultDiffers(o.name, t, true, c, nil))
	}
	arg := c.first()
	switch o.name {
	case "struct":
		held := &contents{fields: maps.Clone(c.named), closed: !c.spread, elem: value{diff: m.st.deep(c.rest)}}
		return of(m.alloc(c.node, "struct", container, "struct", held))
	case "dict":
		return m.newDict(arg, c)
	case "list", "tuple", "set", "sorted", "reversed":
		m.callbacks(c)
		return m.copyOf(arg, o.name, c)
	case "enumerate":
		return m.zipped(c, value{typ: "int"}, m.element(arg, c.node))
	case "zip":
		var parts []value
		for _, v := range c.args {
			parts = append(parts, m.element(v, c.node))
		}
		return m.zipped(c, parts...)
	case "range":
		why := m.st.deep(c.all()...)
		return of(m.alloc(c.node, "range", container, "list", &contents{diff: why, elem: value{typ: "int"}}))
	case "len":
		return value{typ: "int", diff: m.st.count(arg)}
	case "bool":
		return value{typ: "bool", diff: m.st.shallow(arg)}
	case "type", "hasattr", "dir":
		return value{typ: "string"}
	case "print":
		return none
	}
	m.callbacks(c)
	why := m.st.deep(c.all()...)
	if d := m.ref.natives[o.name]; d != nil && d.Returns() != "" {
		return m.made(c.node, d.Returns(), why)
	}
	if o.name == "round" || o.name == "min" || o.name == "max" || o.name == "sum" {
		return m.carried(m.unknown(c.node, why), c.all()...)
	}
	return value{typ: maybe, diff: why}
}

func (m *machine) newDict(arg value, c *call) value {
	held := &contents{fields: map[string]value{}, elem: value{diff: c.rest.diff}}
	for _, o := range arg.refs {
		if o.typ == "dict" {
			m.extend(held, of(o))
			continue
		}
		pair := m.held(o).every()
		held.elem = m.also(held, m.at(pair, value{lit: "1", typ: "int"}, c.node))
		held.diff = either(held.diff, m.held(o).diff)
	}
	held.diff = either(held.diff, arg.diff)
	for name, v := range c.named {
		held.fields[strconv.Quote(name)] = v
	}
	return of(m.alloc(c.node, "dict", container, "dict", held))
}

// copyOf is list(v) and the like.
func (m *machine) copyOf(v value, name string, c *call) value {
	typ := name
	if name == "sorted" || name == "reversed" {
		typ = "list"
	}
	return of(m.alloc(c.node, "copy", container, typ, &contents{diff: m.st.count(v), elem: m.element(v, c.node)}))
}

// zipped is an iterable of tuples, as long as the shortest argument.
func (m *machine) zipped(c *call, parts ...value) value {
	var why *reason
	for _, v := range c.args {
		why = either(why, m.st.count(v))
	}
	fields := map[string]value{}
	for i, part := range parts {
		fields[strconv.Itoa(i)] = part
	}
	item := of(m.alloc(c.node, "item", container, "tuple", &contents{fields: fields}))
	return of(m.alloc(c.node, "zip", container, "list", &contents{diff: why, elem: item}))
}
