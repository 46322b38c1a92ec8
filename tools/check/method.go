package check

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"drun/starlib"
	"drun/starlib/lang"

	"go.starlark.net/starlark"
)

// formatSpec finds "{:.3f}", which format does not support.
var formatSpec = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\w*:([^{}]+)\}`) })

// callMethod calls a method of a value, known by its declaration or only by its name.
func (cs *calls) callMethod(o *object, c *call, certain bool) value {
	self := cs.held(o).fields["self"]
	if o.def != nil && certain {
		cs.builtins.fits(c.text, o.def, c)
	}
	if o.def != nil {
		c.spell(o.def)
	}
	text, _ := starlark.AsString(self.lit)
	if spec := formatSpec().FindStringSubmatch(strings.ReplaceAll(text, "{{", "")); o.name == "format" && spec != nil {
		cs.fault(c.pos, "%s", lang.Hinted("format spec features not supported in replacement fields: "+spec[1]))
	}
	if o.name == "register_forward_hook" || o.name == "apply" {
		cs.rebuilt = true
	}
	if x := self.only(); x != nil {
		if dist := cs.ref.modules["dist"]; dist != nil && slices.ContainsFunc(dist.Types, func(t *starlib.Methods) bool { return t.Type == x.typ }) {
			clear(cs.builtins.saved)
		}
		switch {
		case x.typ == "Group" && o.name == "rank":
			return value{typ: "int", diff: cs.reason(reason{what: cs.frame.text(c.node), pos: c.pos, group: x})}
		case x.typ == "Group":
			return same
		case x.kind == container && x.typ != "struct":
			return cs.containerMethod(o, self, x, c)
		case x.typ == "Generator" && o.def != nil && cs.st.deep(c.all()...) == nil:
			return cs.shaped(cs.made(c.node, o.def.Returns(), cs.st.shallow(self)))
		case x.typ == "Tensor" && o.name == "tolist" && cs.held(x).shaped:
			return of(cs.alloc(c.node, "result", container, "list", &contents{elem: value{diff: cs.st.deep(self)}}))
		case x.typ == "Loader" && o.name == "epochs":
			return of(cs.alloc(c.node, "epochs", container, "list", &contents{
				diff: cs.st.deep(c.all()...), elem: value{typ: "int"}}))
		}
	}
	if g := cs.graphOf(self); o.name == "backward" && g != nil && g.calls != "" && !cs.builtins.unsynced {
		cs.builtins.collective(g.calls, c.pos, g.group)
	}
	why := either(cs.st.shallow(self), cs.st.deep(c.all()...))
	switch {
	case o.name == "parameters" && len(c.args) == 0:
		return of(cs.alloc(c.node, "parameters", container, "list", &contents{elem: cs.parameter(c)}))
	case o.name == "named_parameters" && len(c.args) == 0:
		pair := of(cs.alloc(c.node, "pair", container, "tuple", &contents{
			fields: map[string]value{"0": {typ: "string"}, "1": cs.parameter(c)}}))
		return of(cs.alloc(c.node, "parameters", container, "list", &contents{elem: pair}))
	case strings.HasSuffix(o.name, "_") && !strings.HasPrefix(o.name, "_"):
		cs.inPlace(o.name, self, c)
		return self
	}
	cs.builtins.callbacks(c)
	from := append(c.all(), self)
	if ownGraph[o.name] {
		from = nil
	}
	if o.def == nil {
		return cs.carried(cs.unknown(c.node, either(cs.held(o).diff, why)), from...)
	}
	return cs.carried(cs.made(c.node, o.def.Returns(), why), from...)
}

func (cs *calls) parameter(c *call) value {
	v := of(cs.alloc(c.node, "parameter", instance, "Tensor", &contents{}))
	v.param, v.graph = true, learned
	return v
}

// inPlace interprets a method that changes its tensor.
func (cs *calls) inPlace(name string, self value, c *call) {
	why := cs.st.deep(c.all()...)
	cs.change(self, func(held *contents, certain bool) {
		if certain && (name == "zero_" || name == "fill_" || name == "copy_") {
			held.diff = why
		} else {
			held.diff = either(held.diff, why)
		}
	})
}

// containerMethod interprets a method of a list, dict, set or tuple.
func (cs *calls) containerMethod(o *object, self value, x *object, c *call) value {
	held := cs.held(x)
	arg := func(i int) value {
		if i >= 0 && i < len(c.args) {
			return c.args[i]
		}
		return none
	}
	elements := func(v value) value {
		return of(cs.alloc(c.node, "elements", container, "list", &contents{diff: held.diff, elem: v}))
	}
	switch o.name {
	case "append", "add", "insert":
		v := arg(len(c.args) - 1)
		cs.change(self, func(held *contents, _ bool) {
			held.elem = held.also(v)
		})
		return none
	case "extend", "update":
		cs.change(self, func(held *contents, certain bool) {
			cs.extend(held, arg(0))
			for _, name := range c.names {
				set(held, `"`+name+`"`, c.named[name], certain)
			}
		})
		return none
	case "get", "setdefault", "pop":
		v := cs.at(self, arg(0), c.node)
		if len(c.args) > 1 {
			v = join(v, c.args[1])
		} else if len(c.args) == 0 {
			v = held.every()
		}
		if o.name == "setdefault" {
			cs.change(self, func(held *contents, _ bool) {
				if key := arg(0).lit; key != nil {
					set(held, key.String(), v, false)
				} else {
					held.elem = held.also(arg(1))
				}
			})
		}
		return v
	case "values":
		return elements(held.every())
	case "keys":
		return elements(value{diff: held.diff})
	case "items":
		return elements(of(cs.alloc(c.node, "item", container, "tuple", &contents{
			fields: map[string]value{"0": {diff: held.diff}, "1": held.every()}})))
	case "clear":
		cs.change(self, func(held *contents, certain bool) {
			if certain {
				*held = contents{fields: map[string]value{}}
			}
		})
		return none
	}
	return cs.unknown(c.node, cs.st.deep(append(c.all(), self)...))
}

// also adds v to the elements of a container at unknown positions.
func (held *contents) also(v value) value {
	if held.elem.equal(same) {
		return v
	}
	return join(held.elem, v)
}

// extend adds the elements of v, a list or a dict.
func (m *memory) extend(held *contents, v value) {
	held.diff = either(held.diff, m.st.shallow(v))
	for _, o := range v.refs {
		other := m.held(o)
		if o.typ == "dict" {
			for key, x := range other.fields {
				set(held, key, x, len(v.refs) == 1)
			}
			held.elem = held.also(other.elem)
			continue
		}
		held.elem = held.also(other.every())
	}
}
