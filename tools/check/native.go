package check

import (
	"cmp"
	"maps"
	"strconv"

	"go.starlark.net/starlark"

	"drun/internal/each"
)

// callNative calls a builtin of the language or of one of its modules.
func (b *builtins) callNative(o *object, c *call, certain bool) value {
	if d := b.ref.natives[o.name]; d != nil && certain {
		b.fits(o.name, d, c)
	}
	if t, ok := traits[o.name]; ok {
		if t.collective {
			b.collective(o.name, c.pos, nil)
		}
		return b.unknown(c.node, b.resultDiffers(o.name, t, c, nil))
	}
	arg := c.first()
	switch o.name {
	case "struct":
		held := &contents{fields: maps.Clone(c.named), closed: !c.spread, elem: value{diff: b.st.deep(c.rest)}}
		return of(b.alloc(c.node, "struct", container, "struct", held))
	case "dict":
		return b.newDict(arg, c)
	case "list", "tuple", "set", "sorted", "reversed":
		b.callbacks(c)
		typ := cmp.Or(map[string]string{"sorted": "list", "reversed": "list"}[o.name], o.name)
		return of(b.alloc(c.node, "copy", container, typ, &contents{diff: b.st.count(arg), elem: b.element(arg, c.node)}))
	case "enumerate":
		return b.zipped(c, value{typ: "int"}, b.element(arg, c.node))
	case "zip":
		elems := each.Of(c.args, func(v value) value { return b.element(v, c.node) })
		return b.zipped(c, elems...)
	case "range":
		why := b.st.deep(c.all()...)
		return of(b.alloc(c.node, "range", container, "list", &contents{diff: why, elem: value{typ: "int"}}))
	case "len":
		return value{typ: "int", diff: b.st.count(arg)}
	case "bool":
		return value{typ: "bool", diff: b.st.shallow(arg)}
	case "type", "hasattr", "dir":
		return value{typ: "string"}
	case "print":
		return none
	}
	b.callbacks(c)
	why := b.st.deep(c.all()...)
	if d := b.ref.natives[o.name]; d != nil && plainTypes[d.Returns()] {
		return b.made(c.node, d.Returns(), why)
	}
	if o.name == "min" || o.name == "max" || o.name == "sum" {
		return b.carried(b.unknown(c.node, why), c.all()...)
	}
	return value{typ: maybe, diff: why}
}

func (b *builtins) newDict(arg value, c *call) value {
	held := &contents{fields: map[string]value{}, elem: value{diff: c.rest.diff}}
	for _, o := range arg.refs {
		if o.typ == "dict" {
			b.extend(held, of(o))
			continue
		}
		pair := b.held(o).every()
		held.elem = held.also(b.at(pair, value{lit: starlark.MakeInt(1), typ: "int"}, c.node))
		held.diff = either(held.diff, b.held(o).diff)
	}
	held.diff = either(held.diff, arg.diff)
	for name, v := range c.named {
		held.fields[strconv.Quote(name)] = v
	}
	return of(b.alloc(c.node, "dict", container, "dict", held))
}

// zipped returns an iterable of tuples, as long as the shortest argument.
func (b *builtins) zipped(c *call, elems ...value) value {
	var why *reason
	for _, v := range c.args {
		why = either(why, b.st.count(v))
	}
	fields := map[string]value{}
	for i, elem := range elems {
		fields[strconv.Itoa(i)] = elem
	}
	item := of(b.alloc(c.node, "item", container, "tuple", &contents{fields: fields}))
	return of(b.alloc(c.node, "zip", container, "list", &contents{diff: why, elem: item}))
}
