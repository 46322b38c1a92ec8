package universe

import (
	"strings"

	"drun/starlib"
	"drun/starlib/testing"
)

// Kind is the kind of an entry of the reference.
type Kind string

// The kinds of entries.
const (
	KindModule    Kind = "module"
	KindType      Kind = "type"
	KindBuiltin   Kind = "builtin"
	KindAttribute Kind = "attribute"
)

// Entry documents one name.
type Entry struct {
	Kind      Kind   `json:"kind"`
	Owner     string `json:"owner,omitempty"` // the module or type it belongs to
	Name      string `json:"name"`
	Signature string `json:"signature,omitempty"`
	Doc       string `json:"doc"`
}

// Entries are a reference, owners before what they own.
type Entries []Entry

// Reference documents everything that recipes can call: the language's own names,
// and the modules, from their builtins' declarations.
func Reference() Entries {
	out := Language()
	add := func(owner string, defs []*starlib.Def) {
		for _, d := range defs {
			out = append(out, Entry{Kind: KindBuiltin, Owner: owner, Name: d.Name(), Signature: d.Sig, Doc: d.Doc})
		}
	}
	for _, m := range append(Modules(), testing.Module("")) {
		out = append(out, Entry{Kind: KindModule, Name: m.Name, Doc: m.Doc})
		for _, name := range m.Values.Keys() {
			out = append(out, Entry{Kind: KindAttribute, Owner: m.Name, Name: name, Signature: name, Doc: m.Values[name].Type()})
		}
		add(m.Name, m.All())
		for _, t := range m.Types {
			out = append(out, Entry{Kind: KindType, Name: t.Type, Doc: t.Doc})
			for _, a := range t.Attrs {
				out = append(out, Entry{Kind: KindAttribute, Owner: t.Type, Name: a[0], Signature: a[0], Doc: a[1]})
			}
			add(t.Type, t.All())
		}
	}
	return out
}

// Find returns the entries that a name means: an owner with all that it owns, owner.name,
// or a name under any owner. A module's value also stands for its type: dist.store.get is store.get.
func (all Entries) Find(name string) Entries {
	var out Entries
	name = strings.TrimPrefix(name, "torch.")
	if function, ok := strings.CutPrefix(name, "F."); ok {
		name = "functional." + function
	}
	module, rest, _ := strings.Cut(name, ".")
	value, _, _ := strings.Cut(rest, ".")
	for _, e := range all {
		switch {
		case e.Owner == name, e.Name == name, e.Owner+"."+e.Name == name:
			out = append(out, e)
		}
		if e.Kind == KindAttribute && e.Owner == module && e.Name == value && e.Doc == value {
			return all.Find(rest)
		}
	}
	return out
}
