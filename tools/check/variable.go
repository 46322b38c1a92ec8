package check

import (
	"drun/starlib/lang"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// assign sets a variable of the current function, or one that it captures.
func (m *machine) assign(id *syntax.Ident, v value) {
	if b, ok := id.Binding.(*resolve.Binding); ok && b.First != nil {
		key := m.variable(b)
		m.st.vars.set(key.id, &v)
		m.mark(id, v)
		m.touch(key)
	}
}

// variable finds the activation that a binding belongs to.
func (m *machine) variable(b *resolve.Binding) *variable {
	f := m.frame
	switch b.Scope {
	case resolve.Global:
		for f.parent != nil {
			f = f.parent
		}
	case resolve.Free:
		for g := f.parent; g != nil; g = g.parent {
			if v := g.vars[b.First]; v != nil && m.st.vars.get(v.id) != nil {
				return v
			}
		}
		f = f.parent
	}
	return m.named(f, b.First)
}

// named is the variable of an activation that first binds.
func (m *machine) named(f *frame, first *syntax.Ident) *variable {
	v := f.vars[first]
	if v == nil {
		if f.vars == nil {
			f.vars = map[*syntax.Ident]*variable{}
		}
		v = &variable{m.vars}
		f.vars[first] = v
		m.vars++
	}
	return v
}

func (m *machine) lookup(id *syntax.Ident) value {
	b, ok := id.Binding.(*resolve.Binding)
	if !ok || b.Scope == resolve.Undefined {
		return same
	}
	if b.Scope != resolve.Predeclared && b.Scope != resolve.Universal {
		v := same
		if known := m.st.vars.get(m.variable(b).id); known != nil {
			v = *known
		} else if local := b.Scope == resolve.Local || b.Scope == resolve.Cell; local && !m.st.dead {
			m.fault(id.NamePos, "%s", lang.Hinted("local variable "+id.Name+" referenced before assignment"))
		}
		m.mark(id, v)
		return v
	}
	switch id.Name {
	case "None":
		return none
	case "True", "False":
		return value{lit: id.Name, typ: "bool"}
	}
	return m.predeclared(id.Name)
}

func (m *machine) predeclared(name string) value {
	if mod := m.ref.modules[name]; mod != nil {
		return of(m.object(site{role: "predeclared " + name}, object{kind: module, name: name, module: mod}))
	}
	return of(m.object(site{role: "predeclared " + name}, object{kind: native, name: name}))
}
