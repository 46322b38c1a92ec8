package starlib

import (
	"fmt"

	"go.starlark.net/starlark"
)

// moduleValue is a module as a recipe sees it: read-only attributes.
type moduleValue struct {
	name    string
	members starlark.StringDict
}

var _ starlark.HasAttrs = (*moduleValue)(nil)

func (m *moduleValue) String() string        { return "<module " + m.name + ">" }
func (m *moduleValue) Type() string          { return "module" }
func (m *moduleValue) Truth() starlark.Bool  { return true }
func (m *moduleValue) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: module") }

// Freeze does nothing: builtins hold a rank's state by design, and loaded files
// share them.
func (m *moduleValue) Freeze() {}

func (m *moduleValue) Attr(name string) (starlark.Value, error) { return m.members[name], nil }

func (m *moduleValue) AttrNames() []string { return m.members.Keys() }

// callableModule is a module that is a function too: tensor([1, 2]).
type callableModule struct {
	*moduleValue
	fn *starlark.Builtin
}

var _ starlark.Callable = (*callableModule)(nil)

func (m *callableModule) Name() string { return m.name }

func (m *callableModule) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return m.fn.CallInternal(thread, args, kwargs)
}
