package starlib

import (
	"fmt"

	"go.starlark.net/starlark"
)

// moduleValue is a module as a recipe sees it: read-only attributes.
type moduleValue struct {
	name    string
	members starlark.StringDict
	methods []*Methods // of the values that its builtins return
}

var _ starlark.HasAttrs = (*moduleValue)(nil)

func (m *moduleValue) String() string        { return "<module " + m.name + ">" }
func (m *moduleValue) Type() string          { return "module" }
func (m *moduleValue) Truth() starlark.Bool  { return true }
func (m *moduleValue) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: module") }

// Freeze does nothing: builtins hold a rank's state by design, and loaded files
// share them.
func (m *moduleValue) Freeze() {}

func (m *moduleValue) Attr(name string) (starlark.Value, error) {
	v := m.members[name]
	if v == nil {
		if hint := MethodOf(name, m.methods); hint != "" {
			return nil, fmt.Errorf("%s has no .%s field or method: %s", m.name, name, hint)
		}
	}
	return v, nil
}

// MethodOf says that a name which a module lacks is a method of one of its types, or "": what PyTorch has as both
// function and method is only a method here.
func MethodOf(name string, types []*Methods) string {
	for _, t := range types {
		for _, d := range t.Defs {
			if d.Name() == name {
				return fmt.Sprintf("it is a method of %s: x.%s(…)", t.Type, name)
			}
		}
	}
	return ""
}

func (m *moduleValue) AttrNames() []string { return m.members.Keys() }

// callableModule is a module that is also a function: tensor([1, 2]).
type callableModule struct {
	*moduleValue
	fn *starlark.Builtin
}

var _ starlark.Callable = (*callableModule)(nil)

func (m *callableModule) Name() string { return m.name }

func (m *callableModule) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return m.fn.CallInternal(thread, args, kwargs)
}
