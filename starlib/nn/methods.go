package nn

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

var methods = &starlib.Methods{
	Type: "Module",
	Doc:  "A part of a model; calling it computes its output. Its fields are read as attributes.",
	Attrs: [][2]string{
		{"training", "True after train() and in a new module, False after eval()"},
	},
	Defs: append([]*starlib.Def{
		method("parameters() -> list", "The tensors that training changes, each once, in the order of the fields.",
			func(m *Model) (starlark.Value, error) {
				return m.list(false, func(l leaf) starlark.Value { return (*startensor.Value)(l.Tensor) }), nil
			}),
		method("named_parameters() -> list", `Pairs of a name, such as "0.weight", and a parameter.`,
			func(m *Model) (starlark.Value, error) {
				return m.list(false, func(l leaf) starlark.Value {
					return starlark.Tuple{starlark.String(l.name), (*startensor.Value)(l.Tensor)}
				}), nil
			}),
		method("buffers() -> list", "The tensors that are part of the model's state but are not trained, such as running means.",
			func(m *Model) (starlark.Value, error) {
				return m.list(true, func(l leaf) starlark.Value { return (*startensor.Value)(l.Tensor) }), nil
			}),
		method("train() -> Module", "Puts the module and all modules in it into training mode: dropout drops, batch_norm uses the batch's statistics. Returns the module.",
			func(m *Model) (starlark.Value, error) {
				return m.setTraining(true), nil
			}),
		method("eval() -> Module", "Puts the module and all modules in it into evaluation mode. Returns the module.",
			func(m *Model) (starlark.Value, error) {
				return m.setTraining(false), nil
			}),
		method("state() -> dict", "A dict from names to all parameters and buffers: the tensors themselves, not copies.",
			func(m *Model) (starlark.Value, error) {
				d := new(starlark.Dict)
				for _, l := range m.leaves() {
					if err := d.SetKey(starlark.String(l.name), (*startensor.Value)(l.Tensor)); err != nil {
						return nil, err
					}
				}
				return d, nil
			}),
		{
			Sig: "load_state(dict: dict, strict: bool = True) -> list",
			Doc: `Copies tensors into the parameters and buffers of the same names, as returned by state() and checkpoint.load_file. Names and layouts are PyTorch's: weight of linear is (o, i), of conv2d (o, i, kh, kw); num_batches_tracked of batch_norm is ignored. A tensor that is in the module twice may be given under each of its names, with equal values.
Names that are missing or unexpected and other shapes and dtypes are an error that lists them all, and nothing is changed. strict = False loads what matches, and returns the list of the differences, a line each.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				differences, err := c.Recv.(*Model).LoadState(c.Arg("dict").(*starlark.Dict), c.Bool("strict"))
				if err != nil {
					return nil, err
				}
				list := new(starlark.List)
				for _, d := range differences {
					if err := list.Append(starlark.String(d)); err != nil {
						return nil, err
					}
				}
				return list, nil
			},
		},
	}, treeMethods...),
}

func method(sig, doc string, fn func(*Model) (starlark.Value, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return fn(c.Recv.(*Model))
	}}
}

func (m *Model) setTraining(on bool) *Model {
	for _, c := range m.tree() {
		c.training = on
	}
	return m
}

func (m *Model) list(buffers bool, item func(leaf) starlark.Value) *starlark.List {
	var items []starlark.Value
	for _, l := range m.leaves() {
		if l.buffer == buffers {
			items = append(items, item(l))
		}
	}
	return starlark.NewList(items)
}

// Parameters are the module's trained tensors with their names.
func (m *Model) Parameters() (names []string, tensors []*tensor.Tensor) {
	for _, l := range m.leaves() {
		if !l.buffer {
			names, tensors = append(names, l.name), append(tensors, l.Tensor)
		}
	}
	return names, tensors
}

// State is every parameter and buffer.
func (m *Model) State() []starlib.Entry {
	var entries []starlib.Entry
	for _, l := range m.leaves() {
		entries = append(entries, starlib.Entry{Name: l.name, Value: (*startensor.Value)(l.Tensor)})
	}
	return entries
}

// SetState copies tensors into parameters and buffers; nothing is changed if one
// of them does not fit.
func (m *Model) SetState(entries []starlib.Entry) error {
	live := make(map[string]*tensor.Tensor)
	for _, l := range m.leaves() {
		live[l.name] = l.Tensor
	}
	return startensor.Restore(m.ctx, "nn."+m.kind, live, entries)
}

// checkCallables checks arguments that must be callable.
func checkCallables(args starlark.Tuple) error {
	for i, a := range args {
		if _, ok := a.(starlark.Callable); !ok {
			return fmt.Errorf("argument %d: want a module or function, got %s", i+1, a.Type())
		}
	}
	return nil
}
