package universe

import "testing"

// Owners stand before what they own, everything is documented, and what a recipe
// finds is in the reference.
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
	for _, m := range Modules() {
		if env[m.Name] == nil || !names["."+m.Name] {
			t.Errorf("module %s is missing", m.Name)
		}
	}
}
