package check

import (
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
func (m *memory) variable(b *resolve.Binding) *variable {
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

// named returns the variable of an activation that the identifier first binds.
func (m *memory) named(f *frame, first *syntax.Ident) *variable {
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
