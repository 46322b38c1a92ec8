package universe

import "testing"

func TestFind(t *testing.T) {
	all := Reference()
	for name, want := range map[string]string{
		"dist.all_reduce": "all_reduce", "all_reduce": "all_reduce", "dist.store.get": "get", "store.get": "get", "Work.wait": "wait",
	} {
		found := all.Find(name)
		if len(found) != 1 || found[0].Name != want || found[0].Kind != KindBuiltin {
			t.Errorf("%s finds %v", name, found)
		}
	}
	if got := all.Find(""); len(got) != len(all) {
		t.Errorf("no name finds %d of %d", len(got), len(all))
	}
	if got := all.Find("dist.nothing"); got != nil {
		t.Errorf("an unknown name finds %v", got)
	}
	if got := all.Find("Group"); len(got) < 4 || got[0].Kind != KindType {
		t.Errorf("a type finds %v", got)
	}
}

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
