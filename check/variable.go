package check

import (
	"drun/starlib/lang"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// assign gives a variable of the current function, or one that it captures.
func (m *machine) assign(id *syntax.Ident, v value) {
	if b, ok := id.Binding.(*resolve.Binding); ok && b.First != nil {
		key := m.variable(b)
		m.st.vars[key] = v
		m.mark(id, v)
		m.touch(key)
	}
}

// variable finds the activation that a binding belongs to.
func (m *machine) variable(b *resolve.Binding) variable {
	f := m.frame
	switch b.Scope {
	case resolve.Global:
		for f.parent != nil {
			f = f.parent
		}
	case resolve.Free:
		for g := f.parent; g != nil; g = g.parent {
			if _, ok := m.st.vars[variable{g, b.First}]; ok {
				return variable{g, b.First}
			}
		}
		f = f.parent
	}
	return variable{f, b.First}
}

func (m *machine) lookup(id *syntax.Ident) value {
	b, ok := id.Binding.(*resolve.Binding)
	if !ok || b.Scope == resolve.Undefined {
		return same
	}
	if b.Scope != resolve.Predeclared && b.Scope != resolve.Universal {
		v, assigned := m.st.vars[m.variable(b)]
		if local := b.Scope == resolve.Local || b.Scope == resolve.Cell; local && !assigned && !m.st.dead {
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
