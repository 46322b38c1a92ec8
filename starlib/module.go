package starlib

import (
	"errors"
	"fmt"

	"go.starlark.net/starlark"
)

// Opaque is embedded by values that are true, cannot be hashed, and have nothing to freeze. It is the name of their type.
type Opaque string

func (o Opaque) Type() string { return string(o) }

// Freeze does nothing: what such values hold is a rank's state by design, and loaded files share it.
func (Opaque) Freeze() {}

func (Opaque) Truth() starlark.Bool    { return true }
func (o Opaque) Hash() (uint32, error) { return 0, errors.New("unhashable: " + string(o)) }

// moduleValue is a module as a recipe sees it: read-only attributes.
type moduleValue struct {
	Opaque
	name    string
	members starlark.StringDict
	methods []*Methods // of the values that its builtins return
	more    func()     // adds the builtins that are made when they are needed; may be nil
}

func (m *moduleValue) String() string { return "<module " + m.name + ">" }

func (m *moduleValue) Attr(name string) (starlark.Value, error) {
	v := m.members[name]
	if v == nil && m.more != nil {
		m.complete()
		v = m.members[name]
	}
	if v == nil {
		if hint := MethodOf(name, m.methods); hint != "" {
			return nil, fmt.Errorf("%s has no .%s field or method: %s", m.name, name, hint)
		}
	}
	return v, nil
}

// MethodOf returns a hint if a name that a module lacks is a method of one of its types, else "": much that PyTorch has both
// as a function and as a method is only a method here.
func MethodOf(name string, types []*Methods) string {
	for _, t := range types {
		for _, d := range t.All() {
			if d.Name() == name {
				return fmt.Sprintf("it is a method of %s: x.%s(…)", t.Type, name)
			}
		}
	}
	return ""
}

func (m *moduleValue) AttrNames() []string {
	m.complete()
	return m.members.Keys()
}

func (m *moduleValue) complete() {
	if m.more != nil {
		m.more()
		m.more = nil
	}
}

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
