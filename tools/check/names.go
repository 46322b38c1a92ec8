package check

import (
	"slices"

	"drun/starlib"
	"drun/starlib/lang"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// names finds what names and attributes stand for.
type names struct{ *machine }

func (n *names) attribute(e *syntax.DotExpr, x value) value {
	name := e.Name.Name
	if len(x.refs) == 0 {
		if v, ok := n.wellKnown(e, x.diff); ok {
			return v
		}
		return n.methodOf(e, x)
	}
	var out union
	for _, o := range x.refs {
		out.add(n.attributeOf(e, x, o, name))
	}
	return n.ofShape(e, x, differing(out.value, x.diff))
}

func (n *names) attributeOf(e *syntax.DotExpr, x value, o *object, name string) value {
	c := n.held(o)
	certain := x.only() != nil
	switch {
	case o.kind == module:
		return n.moduleAttribute(e, o)
	case o.kind == native:
		if x, ok := n.ref.env[o.name].(starlark.HasAttrs); ok && !slices.Contains(x.AttrNames(), name) {
			n.sure(e.Name.NamePos, "%s has no %s%s", o.name, name, instead("", name, o.name+".", x.AttrNames()))
			return same
		}
		return n.nativeValue(o.name + "." + name)
	case o.kind == container && o.typ == "struct":
		if v, ok := c.fields[name]; ok {
			return v
		}
		if c.closed && certain {
			n.sure(e.Name.NamePos, "%s has no %s%s", n.frame.text(e.X), name, instead("", name, n.frame.text(e.X)+".", sortedKeys(c.fields)))
		}
		return c.elem
	case o.kind == instance:
		if v, ok := c.fields[name]; ok {
			return v
		}
		return n.instanceAttribute(e, x, o)
	}
	return n.methodOf(e, itself(o, x))
}

// itself returns x narrowed to one of the objects that it may be.
func itself(o *object, x value) value {
	v := of(o)
	v.graph, v.shape, v.layer = x.graph, x.shape, x.layer
	return v
}

func (n *names) moduleAttribute(e *syntax.DotExpr, o *object) value {
	name := e.Name.Name
	full := o.name + "." + name
	if d := member(o.module.Defs, o.module.More, name); d != nil {
		return of(n.object(site{role: full}, object{kind: builtin, name: full, def: d}))
	}
	if v, ok := o.module.Values[name]; ok {
		if plainTypes[v.Type()] {
			return value{typ: v.Type()}
		}
		if inner := n.ref.modules[full]; inner != nil {
			return of(n.object(site{role: full}, object{kind: module, name: full, module: inner}))
		}
		return n.nativeValue(full)
	}
	hint := instead("module", name, o.name+".", members(o.module))
	if method := starlib.MethodOf(name, o.module.Types); method != "" {
		hint = ": " + method
	}
	n.sure(e.Name.NamePos, "%s has no %s%s", o.name, name, hint)
	return same
}

// nativeValue returns a value without a declaration, by its qualified name.
func (n *names) nativeValue(name string) value {
	return of(n.object(site{role: "native " + name}, object{kind: native, name: name}))
}

// anyFields are types whose attributes the recipe chooses, or that forward to such a type.
var anyFields = map[string]bool{"Module": true, "Pipeline": true, "DataParallel": true, "FSDP": true, "": true}

func (n *names) instanceAttribute(e *syntax.DotExpr, x value, o *object) value {
	name := e.Name.Name
	c := n.held(o)
	if v, ok := n.wellKnown(e, n.st.count(of(o))); ok {
		return v
	}
	t := n.ref.types[o.typ]
	if t == nil {
		return n.methodOf(e, itself(o, x))
	}
	if d := member(t.Defs, t.More, name); d != nil {
		v := n.methodOf(e, itself(o, x))
		v.refs[0].def = d
		return v
	}
	for _, a := range t.Attrs {
		if a[0] == name {
			if name == "grad" {
				return n.made(e, "", c.diff)
			}
			return n.unknown(e, c.diff)
		}
	}
	if anyFields[o.typ] {
		return n.methodOf(e, itself(o, x))
	}
	if x.only() != nil {
		n.sure(e.Name.NamePos, "%s (%s) has no %s%s", n.frame.text(e.X), o.typ, name, instead(o.typ, name, "", t.AttrNames()))
	}
	return same
}

// wellKnown returns an attribute that is the same on all ranks, or differs only for the reason why, whatever else in
// the value differs.
func (n *names) wellKnown(e *syntax.DotExpr, why *reason) (value, bool) {
	switch e.Name.Name {
	case "dtype", "requires_grad", "training":
		return same, true
	case "shape": // only the first dimension may count samples, and so differ between ranks
		c := &contents{fields: map[string]value{"0": {typ: "int", diff: why}}}
		return of(n.alloc(e, "shape", container, "tuple", c)), true
	}
	return same, false
}

// methodOf returns a method of a value, or any other attribute of it.
func (n *names) methodOf(e *syntax.DotExpr, self value) value {
	o := n.alloc(e, "method", method, "", &contents{diff: n.st.deep(self), fields: map[string]value{"self": self}})
	o.name, o.def = e.Name.Name, nil
	return of(o)
}

func isFail(e syntax.Expr) bool {
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

func (n *names) lookup(id *syntax.Ident) value {
	b, ok := id.Binding.(*resolve.Binding)
	if !ok || b.Scope == resolve.Undefined {
		return same
	}
	if b.Scope != resolve.Predeclared && b.Scope != resolve.Universal {
		v := same
		if known := n.st.vars.get(n.variable(b).id); known != nil {
			v = *known
		} else if local := b.Scope == resolve.Local || b.Scope == resolve.Cell; local && !n.st.dead {
			n.fault(id.NamePos, "%s", lang.Hinted("local variable "+id.Name+" referenced before assignment"))
		}
		n.mark(id, v)
		return v
	}
	switch id.Name {
	case "None":
		return none
	case "True", "False":
		return value{lit: starlark.Bool(id.Name == "True"), typ: "bool"}
	}
	if mod := n.ref.modules[id.Name]; mod != nil {
		return of(n.object(site{role: "module " + id.Name}, object{kind: module, name: id.Name, module: mod}))
	}
	return n.nativeValue(id.Name)
}
