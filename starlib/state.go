package starlib

import "go.starlark.net/starlark"

// Entry is one named piece of a value's state: a tensor or a plain value.
type Entry struct {
	Name  string
	Value starlark.Value
}

// Stateful values (modules, optimizers, loaders, generators) can be put into a
// checkpoint and taken from one.
type Stateful interface {
	// State lists the state in a fixed order. Tensors are the live ones, not copies.
	State() []Entry
	// SetState takes values of the same names; tensors are copied into the live
	// ones. Names that are absent leave their state as it was.
	SetState(entries []Entry) error
}
