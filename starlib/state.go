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

// Resizable values have a state of which a part belongs to a rank, so that it
// takes more than SetState when another number of ranks restores it.
type Resizable interface {
	Stateful
	// Resize turns the entries that rank 0 saved into what every rank of the new
	// world passes to SetState. Entries that it leaves out count as missing. derived
	// tells that streams of random numbers begin anew.
	Resize(saved []Entry, to Resized) (entries []Entry, derived bool)
}

// Resized says how a state came into another world size.
type Resized struct {
	World  int                    // ranks that restore
	Step   int64                  // of the checkpoint
	Differ func(name string) bool // the ranks that saved had different values
}
