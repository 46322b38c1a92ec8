package check

import (
	"testing"

	"drun/starlib/universe"

	"go.starlark.net/starlark"
)

// Every builtin of dist has traits: a new one is a collective or is not, and the
// check cannot guess which.
func TestTraits(t *testing.T) {
	for _, e := range universe.Reference() {
		if e.Kind != universe.KindBuiltin || e.Owner != "dist" {
			continue
		}
		if _, ok := traits["dist."+e.Name]; !ok {
			t.Errorf("traits.go does not say whether dist.%s is a collective", e.Name)
		}
	}
	for name, trait := range traits {
		if trait.own && trait.equal {
			t.Errorf("%s: the result cannot be both the rank's own and the same on all ranks", name)
		}
	}
}

// The language's builtins have the names that recipes use.
func TestLanguage(t *testing.T) {
	ref := NewReference(universe.Modules(), universe.Names())
	for name, d := range ref.natives {
		if _, err := d.Params(), d.Fits(len(d.Params()), nil, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !ref.env.Has(name) && !starlark.Universe.Has(name) {
			t.Errorf("there is no builtin %s", name)
		}
	}
}
