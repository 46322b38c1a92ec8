package universe

import (
	"slices"
	"testing"
	"unicode"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Owners precede what they own, everything is documented, and every name that a recipe finds is in the reference.
func TestReferenceIsComplete(t *testing.T) {
	owners, names := map[string]bool{"": true}, map[string]bool{}
	for _, e := range Reference() {
		if !owners[e.Owner] {
			t.Errorf("%s stands before its owner %s", e.Name, e.Owner)
		}
		if e.Doc == "" || e.Kind == KindBuiltin && e.Signature == "" {
			t.Errorf("%s.%s is not documented", e.Owner, e.Name)
		}
		if id := e.Owner + "." + e.Name; e.Kind == KindBuiltin && names[id] {
			t.Errorf("%s is there twice", id)
		} else {
			names[id] = true
		}
		if e.Kind == KindModule || e.Kind == KindType {
			owners[e.Name] = true
		}
	}
	env := Names()
	for _, dict := range []starlark.StringDict{env, starlark.Universe} {
		for name, v := range dict {
			if _, callable := v.(*starlark.Builtin); callable && unicode.IsLetter(rune(name[0])) && !names["."+name] {
				t.Errorf("the builtin %s is missing", name)
			}
			if m, ok := v.(*starlarkstruct.Module); ok {
				for member := range m.Members {
					if !names[name+"."+member] {
						t.Errorf("%s.%s is missing", name, member)
					}
				}
			}
		}
	}
	for _, m := range Modules() {
		if env[m.Name] == nil || !names["."+m.Name] {
			t.Errorf("module %s is missing", m.Name)
		}
		defs := slices.Clone(m.All())
		for _, methods := range m.Types {
			defs = append(defs, methods.All()...)
		}
		for _, d := range defs {
			if err := d.Fits(0, nil, true); err != nil { // its signature cannot be read
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}
