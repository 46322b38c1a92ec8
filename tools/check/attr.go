package check

import (
	"slices"

	"drun/starlib"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// attribute returns the value of x.name.
func (m *machine) attribute(e *syntax.DotExpr, x value) value {
	name := e.Name.Name
	if len(x.refs) == 0 {
		if v, ok := m.wellKnown(e, x.diff); ok {
			return v
		}
		return m.methodOf(e, x)
	}
	var out union
	for _, o := range x.refs {
		out.add(m.attributeOf(e, x, o, name))
	}
	return m.ofShape(e, x, differing(out.value, x.diff))
}

func (m *machine) attributeOf(e *syntax.DotExpr, x value, o *object, name string) value {
	c := m.held(o)
	certain := x.only() != nil
	switch {
	case o.kind == module:
		return m.moduleAttribute(e, o)
	case o.kind == native:
		if names := m.attributes(o.name); names != nil && !slices.Contains(names, name) {
			m.fault(e.Name.NamePos, "%s has no %s%s", o.name, name, instead("", name, o.name+".", names))
			return same
		}
		return m.nativeValue(o.name + "." + name)
	case o.kind == container && o.typ == "struct":
		if v, ok := c.fields[name]; ok {
			return v
		}
		if c.closed && certain {
			m.fault(e.Name.NamePos, "%s has no %s%s", m.text(e.X), name, instead("", name, m.text(e.X)+".", sortedKeys(c.fields)))
		}
		return c.elem
	case o.kind == instance:
		if v, ok := c.fields[name]; ok {
			return v
		}
		return m.instanceAttribute(e, x, o)
	}
	return m.methodOf(e, itself(o, x))
}

// itself is x narrowed to one of the objects that it may be.
func itself(o *object, x value) value {
	v := of(o)
	v.graph, v.shape, v.layer = x.graph, x.shape, x.layer
	return v
}

func (m *machine) moduleAttribute(e *syntax.DotExpr, o *object) value {
	name := e.Name.Name
	full := o.name + "." + name
	if d := member(o.module.Defs, name); d != nil {
		return of(m.object(site{role: full}, object{kind: builtin, name: full, def: d}))
	}
	if v, ok := o.module.Values[name]; ok {
		if plainTypes[v.Type()] {
			return value{typ: v.Type()}
		}
		return m.nativeValue(full)
	}
	hint := instead("module", name, o.name+".", members(o.module))
	if method := starlib.MethodOf(name, o.module.Types); method != "" {
		hint = ": " + method
	}
	m.fault(e.Name.NamePos, "%s has no %s%s", o.name, name, hint)
	return same
}

// nativeValue is a value without a declaration, by its qualified name.
func (m *machine) nativeValue(name string) value {
	return of(m.object(site{role: "native " + name}, object{kind: native, name: name}))
}

// anyFields are types whose attributes the recipe chooses, or that forward to such a type.
var anyFields = map[string]bool{"Module": true, "Pipeline": true, "DataParallel": true, "FSDP": true, "": true}

func (m *machine) instanceAttribute(e *syntax.DotExpr, x value, o *object) value {
	name := e.Name.Name
	c := m.held(o)
	if v, ok := m.wellKnown(e, m.st.count(of(o))); ok {
		return v
	}
	t := m.ref.types[o.typ]
	if t == nil {
		return m.methodOf(e, itself(o, x))
	}
	if d := member(t.Defs, name); d != nil {
		v := m.methodOf(e, itself(o, x))
		v.refs[0].def = d
		return v
	}
	for _, a := range t.Attrs {
		if a[0] == name {
			if name == "grad" {
				return m.made(e, "", c.diff)
			}
			return m.unknown(e, c.diff)
		}
	}
	if anyFields[o.typ] {
		return m.methodOf(e, itself(o, x))
	}
	if x.only() != nil {
		m.fault(e.Name.NamePos, "%s (%s) has no %s%s", m.text(e.X), o.typ, name, instead(o.typ, name, "", t.AttrNames()))
	}
	return same
}

// wellKnown returns an attribute that is equal on all ranks, or differs only for the reason why, whatever else in the
// value differs.
func (m *machine) wellKnown(e *syntax.DotExpr, why *reason) (value, bool) {
	switch e.Name.Name {
	case "dtype", "requires_grad", "training":
		return same, true
	case "shape": // only the first dimension may count samples, of which ranks have their own
		c := &contents{fields: map[string]value{"0": {typ: "int", diff: why}}}
		return of(m.alloc(e, "shape", container, "tuple", c)), true
	}
	return same, false
}

// methodOf is a method of a value, or any other attribute of it.
func (m *machine) methodOf(e *syntax.DotExpr, self value) value {
	o := m.alloc(e, "method", method, "", &contents{diff: m.st.deep(self), fields: map[string]value{"self": self}})
	o.name = e.Name.Name
	o.def = nil
	return of(o)
}

// isFail recognises a call of fail.
func (m *machine) isFail(e syntax.Expr) bool {
	call, ok := e.(*syntax.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fn.(*syntax.Ident)
	if !ok || id.Name != "fail" {
		return false
	}
	b, ok := id.Binding.(*resolve.Binding)
	return ok && (b.Scope == resolve.Predeclared || b.Scope == resolve.Universal)
}
