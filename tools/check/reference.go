package check

import (
	"maps"
	"slices"
	"sync"

	"drun/internal/spelling"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/universe"

	"go.starlark.net/starlark"
)

// A Reference holds what is predeclared in recipes, in the form that the check needs.
type Reference struct {
	env     starlark.StringDict
	modules map[string]*starlib.Module
	types   map[string]*starlib.Methods
	natives map[string]*starlib.Def // the language's own builtins

	mu     sync.Mutex // guards env, whose tensors are made by one goroutine at a time
	thread *starlark.Thread
	zeros  starlark.Value
}

// NewReference makes a reference from the modules and the environment of recipes (universe.Modules and
// universe.Names, whose tensors have only shapes).
func NewReference(modules []*starlib.Module, env starlark.StringDict) *Reference {
	r := &Reference{env: env, modules: map[string]*starlib.Module{}, types: map[string]*starlib.Methods{}, natives: map[string]*starlib.Def{},
		thread: &starlark.Thread{Name: "check"}}
	if tensors, ok := env["tensor"].(starlark.HasAttrs); ok {
		r.zeros, _ = tensors.Attr("zeros")
	}
	for _, m := range modules {
		r.modules[m.Name] = m
		for _, t := range m.Types {
			r.types[t.Type] = t
		}
		// A value such as nn.functional, whose methods are functions, is a module within the module.
		for name, v := range m.Values {
			if t := r.types[v.Type()]; t != nil && v.Type() == "functional" {
				r.modules[m.Name+"."+name] = &starlib.Module{Name: m.Name + "." + name, Defs: t.Defs, More: t.More}
			}
		}
	}
	for _, e := range universe.Language() {
		if e.Owner == "" && e.Kind == universe.KindBuiltin && e.Name != "dict" { // dict accepts pairs = 1, too
			r.natives[e.Name] = &starlib.Def{Sig: e.Signature}
		}
	}
	return r
}

// member returns the builtin of a name, among those of more, which may be nil, only if the others lack it.
func member(defs []*starlib.Def, more func() []*starlib.Def, name string) *starlib.Def {
	for _, d := range defs {
		if d.Name() == name {
			return d
		}
	}
	if more != nil {
		return member(more(), nil, name)
	}
	return nil
}

func members(m *starlib.Module) []string {
	names := m.Values.Keys()
	for _, d := range m.All() {
		names = append(names, d.Name())
	}
	return names
}

// instead suggests a name for one that does not exist, or "". typ is the type of value that lacks it, "" for a module.
func instead(typ, name, prefix string, names []string) string {
	if hint := lang.ForeignMethod(typ, name); hint != "" {
		return ": " + hint
	}
	if near := spelling.Nearest(name, names); near != "" {
		return " (did you mean " + prefix + near + "?)"
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
