package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// A Unit is a module and those of its parameters that are in no nested unit: what dist.fsdp gathers together.
type Unit struct {
	*Model
	Path   string // "" for the whole model
	Params []*tensor.Tensor
	Names  []string // of Params, in the whole model
}

// Wrap makes around wrap each call of the module, and what wraps it already.
func (m *Model) Wrap(around Around) {
	within := m.around
	m.around = around
	if within != nil {
		m.around = func(thread *starlark.Thread, compute func() (starlark.Value, error)) (starlark.Value, error) {
			return around(thread, func() (starlark.Value, error) { return within(thread, compute) })
		}
	}
}

// BatchNorms returns the batch_norm layers in m.
func (m *Model) BatchNorms() []*Model {
	return slices.DeleteFunc(models(m.tree()), func(m *Model) bool { return m.kind != "batch_norm" })
}

// Sequence returns the parts of an nn.sequential, in order; nil for another module.
func (m *Model) Sequence() (parts starlark.Tuple) {
	for _, f := range m.fields {
		if m.kind == "sequential" {
			parts = append(parts, f.seen)
		}
	}
	return parts
}

// Spread leaves an nn.sequential those of its parts that are numbered, and has forward compute the result of all.
func (m *Model) Spread(numbers []int, forward func(thread *starlark.Thread, x *tensor.Tensor) (*tensor.Tensor, error)) {
	m.Describe("pipeline", fmt.Sprintf("of %d parts", len(m.fields)))
	m.fields = each.Of(numbers, func(i int) field { return m.fields[i] })
	m.forward = starlark.NewBuiltin(m.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if len(args) == 1 && len(kwargs) == 0 {
			if x, ok := args[0].(*startensor.Value); ok {
				return startensor.Result(forward(thread, x.Tensor()))
			}
		}
		return nil, fmt.Errorf("nn.%s: it is divided over ranks, which pass one tensor on: want one Tensor as its argument", m.kind)
	})
}

// Across has a batch_norm layer compute its statistics in training over all ranks' batches; nil: over its own.
func (m *Model) Across(a tensor.Across) { m.across = a }

// Parts returns the modules in m that may be units: not those within built-in layers, which compute with their parts
// directly. The first is m itself.
func (m *Model) Parts() []*Model {
	return models(m.walkTree(func(m *Model) bool { return !m.layer }))
}

// Children returns the modules directly in m.
func (m *Model) Children() []*Model { return models(m.children()) }

func models(list []child) (found []*Model) {
	for _, c := range list {
		found = append(found, c.Model)
	}
	return found
}

// Units divides a model: the first unit is m, the others are the chosen modules within that have parameters. A
// parameter of several units belongs to m.
func (m *Model) Units(chosen map[*Model]bool) []*Unit {
	root := &Unit{Model: m}
	units, of := []*Unit{root}, map[*Model]*Unit{m: root}
	for _, c := range m.tree()[1:] {
		if chosen[c.Model] {
			u := &Unit{Model: c.Model, Path: c.name}
			units, of[c.Model] = append(units, u), u
		}
	}
	owner := map[*tensor.Tensor]*Unit{}
	type visit struct {
		m *Model
		u *Unit
	}
	seen := map[visit]bool{}
	var walk func(m *Model, u *Unit)
	walk = func(m *Model, u *Unit) {
		if of[m] != nil {
			u = of[m]
		}
		if seen[visit{m, u}] {
			return
		}
		seen[visit{m, u}] = true
		for _, p := range m.parts() {
			switch v := p.value.(type) {
			case *Model:
				walk(v, u)
			case marked:
				if was := owner[v.Tensor]; was != nil && was != u {
					owner[v.Tensor] = root
				} else {
					owner[v.Tensor] = u
				}
			}
		}
	}
	walk(m, root)
	for _, l := range m.leaves() {
		if !l.buffer {
			u := owner[l.Tensor]
			u.Params, u.Names = append(u.Params, l.Tensor), append(u.Names, l.name)
		}
	}
	return slices.DeleteFunc(units, func(u *Unit) bool { return u != root && len(u.Params) == 0 })
}

// String names a unit in messages.
func (u *Unit) String() string {
	if u.Path == "" {
		return "the whole model"
	}
	return fmt.Sprintf("%s (nn.%s)", u.Path, u.kind)
}

// NewLayer makes a layer for the module dist: forward takes one tensor; bias may be nil.
func NewLayer(ctx *tensor.Context, kind, detail string, weight, bias *tensor.Tensor, forward func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error)) *Model {
	return builtIn(ctx, "dist.", kind, detail, weights(weight, bias), "(x: Tensor) -> Tensor", func(_ *Model, c *starlib.Call) (starlark.Value, error) {
		return startensor.Result(forward(c, startensor.Arg(c, "x")))
	})
}
