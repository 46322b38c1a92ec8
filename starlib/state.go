package starlib

import "go.starlark.net/starlark"

// Entry is one named piece of a value's state: a tensor or a plain value.
type Entry struct {
	Name  string
	Value starlark.Value
}

// Stateful values (modules, optimizers, loaders, generators) can be saved to and restored from a checkpoint.
type Stateful interface {
	// State lists the state in a fixed order. Tensors are the live ones, not copies.
	State() []Entry
	// SetState takes values of the same names; tensors are copied into the live
	// ones. State under absent names stays as it is.
	SetState(entries []Entry) error
}

// Growing values have state that comes as they are used: SetState takes entries that State does not list yet.
type Growing interface {
	Stateful
	Grows()
}

// Compared values check the contents of a state before it is set.
type Compared interface {
	// Differences lists the reasons not to continue from the saved entries, or, if resized, from those that Resize returned.
	// A restore with strict = False calls SetState nevertheless.
	Differences(saved []Entry, resized bool) []string
}

// Resizable values have a state that partly belongs to a rank, so that restoring it with another number of ranks
// takes more than SetState.
type Resizable interface {
	Stateful
	// Resize turns the entries that rank 0 saved into what every rank of the new world passes to SetState. Entries
	// that it leaves out count as missing. derived reports that streams of random numbers start afresh.
	Resize(saved []Entry, to Resized) (entries []Entry, derived bool)
}

// Resized describes a state's change of world size.
type Resized struct {
	World  int                    // ranks that restore
	Step   int64                  // of the checkpoint
	Differ func(name string) bool // the ranks that saved had different values
}
