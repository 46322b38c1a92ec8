package nn

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
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
		method("parameters() -> list", "The trainable tensors, each once, in the order of the fields.",
			func(m *Model) (starlark.Value, error) { return listed(m.only(false), leaf.value), nil }),
		method("named_parameters() -> list", `Pairs of a name, such as "0.weight", and a parameter.`,
			func(m *Model) (starlark.Value, error) {
				return listed(m.only(false), func(l leaf) starlark.Value { return starlark.Tuple{starlark.String(l.name), l.value()} }), nil
			}),
		method("buffers() -> list", "The tensors that are part of the model's state but are not trained, such as running means.",
			func(m *Model) (starlark.Value, error) { return listed(m.only(true), leaf.value), nil }),
		method("train() -> Module", "Puts the module and all modules in it into training mode: dropout drops, batch_norm uses the batch's statistics. Returns the module.",
			func(m *Model) (starlark.Value, error) {
				return m.setTraining(true), nil
			}),
		method("eval() -> Module", "Puts the module and all modules in it into evaluation mode. Returns the module.",
			func(m *Model) (starlark.Value, error) {
				return m.setTraining(false), nil
			}),
		{Sig: "to(dtype: string) -> Module",
			Doc: "Converts all parameters and buffers of floats to another dtype, before an optimizer is made, and returns the module. In bfloat16 they cannot be trained, only used: nn.autocast trains with products in bfloat16.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return c.Recv.(*Model).to(startensor.DType(c))
			}},
		converting("float", dtype.Float32), converting("double", dtype.Float64), converting("bfloat16", dtype.BFloat16),
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
		{Sig: "load_state(dict: dict, strict: bool = True) -> list",
			Doc: `Copies tensors into the parameters and buffers of the same names, as returned by state() and checkpoint.load_file. Names and layouts are PyTorch's: weight of linear is (o, i), of conv2d (o, i, kh, kw); num_batches_tracked of batch_norm is ignored. A tensor that is in the module twice may be given under each of its names, with equal values.
Missing or unexpected names and different shapes or dtypes are an error that lists them all, and nothing is changed. strict = False loads what matches, and returns a list of the differences, one line each.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				differences := try.To(c.Recv.(*Model).LoadState(c.Arg("dict").(*starlark.Dict), c.Bool("strict")))
				return listed(differences, func(d string) starlark.Value { return starlark.String(d) }), nil
			}},
	}, treeMethods...),
}

func method(sig, doc string, fn func(*Model) (starlark.Value, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return fn(c.Recv.(*Model))
	}}
}

// converting declares a shorthand for to(dtype).
func converting(name string, d dtype.Type) *starlib.Def {
	return method(name+"() -> Module", fmt.Sprintf("to(%q).", d.String()), func(m *Model) (starlark.Value, error) { return m.to(d) })
}

func (m *Model) to(d dtype.Type) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	try.FailIf(!d.IsFloat() || d == dtype.Float16, "nn.%s.to: want float32, float64 or bfloat16, not %s", m.kind, d)
	leaves := m.leaves()
	for _, l := range leaves {
		try.FailIf(l.Claimed(), "nn.%s.to: an optimizer or dist.ddp holds the module's parameters, and would not see those of another dtype; convert before you make those", m.kind)
	}
	for _, l := range leaves {
		try.Ok(l.Convert(d))
	}
	return m, nil
}

func (m *Model) setTraining(on bool) *Model {
	for _, c := range m.tree() {
		c.training = on
	}
	return m
}

// only returns the buffers, or the parameters.
func (m *Model) only(buffers bool) []leaf {
	return slices.DeleteFunc(m.leaves(), func(l leaf) bool { return l.buffer != buffers })
}

func (l leaf) value() starlark.Value { return (*startensor.Value)(l.Tensor) }

func (m *Model) Parameters() (names []string, tensors []*tensor.Tensor) {
	for _, l := range m.only(false) {
		names, tensors = append(names, l.name), append(tensors, l.Tensor)
	}
	return names, tensors
}

func (m *Model) State() []starlib.Entry { return entries(m.leaves()) }

func entries(leaves []leaf) []starlib.Entry {
	return each.Of(leaves, func(l leaf) starlib.Entry { return starlib.Entry{Name: l.name, Value: l.value()} })
}

// SetState copies tensors into parameters and buffers; nothing is changed if one of them does not fit.
func (m *Model) SetState(entries []starlib.Entry) error {
	live := make(map[string]*tensor.Tensor)
	for _, l := range m.leaves() {
		live[l.name] = l.Tensor
	}
	return startensor.Restore(m.ctx, "nn."+m.kind, live, entries)
}

func checkCallables(args starlark.Tuple) error {
	for i, a := range args {
		if _, ok := a.(starlark.Callable); !ok {
			return fmt.Errorf("argument %d: want a module or function, got %s", i+1, a.Type())
		}
	}
	return nil
}

// Weights returns every parameter and buffer as in PyTorch's state_dict: one that is in several places has an entry for each.
func (m *Model) Weights() []starlib.Entry { return entries(m.walk(true).found) }

// counter is a buffer of PyTorch's batch norm that is not used here.
const counter = "num_batches_tracked"

// LoadState copies tensors into the parameters and buffers of the same names, and returns the differences. If there
// are any, and strict is set, nothing is changed. The parameters must have been gathered.
func (m *Model) LoadState(state *starlark.Dict, strict bool) (differences []string, err error) {
	defer try.Caught(&err)
	differences, change := try.To2(m.Fit(state))
	if strict && differences != nil {
		return nil, fmt.Errorf("the state does not fit nn.%s (strict = False loads what matches):\n  %s", m.kind, strings.Join(differences, "\n  "))
	}
	return differences, change()
}

// Fit compares tensors with the parameters and buffers of the same names: it returns the differences, and a function
// that copies those that fit. Nothing is changed before that is called.
func (m *Model) Fit(state *starlark.Dict) (differences []string, change func() error, err error) {
	defer try.Caught(&err)
	w := m.walk(true)
	given := make(map[string]starlark.Value, state.Len())
	for _, kv := range state.Items() {
		name, ok := starlark.AsString(kv[0])
		if !ok {
			return nil, nil, fmt.Errorf("a state's keys are names, not %s", kv[0])
		}
		given[name] = kv[1]
	}
	for _, name := range w.counters {
		delete(given, name)
	}
	named := map[*tensor.Tensor]bool{} // tensors that have a value under one of their names
	storages := map[*tensor.Storage]bool{}
	for _, l := range w.found {
		named[l.Tensor] = named[l.Tensor] || given[l.name] != nil
		storages[l.Tensor.Storage()] = true
	}
	taken := map[*tensor.Tensor]*tensor.Tensor{} // the value that each gets
	var order []leaf
	differ := func(name, format string, args ...any) {
		differences = append(differences, name+": "+fmt.Sprintf(format, args...))
	}
	for _, l := range w.found {
		v := given[l.name]
		delete(given, l.name)
		value, isTensor := v.(*startensor.Value)
		switch {
		case v == nil && named[l.Tensor]:
			// it has a value under another name
		case v == nil:
			differ(l.name, "missing")
		case !isTensor:
			differ(l.name, "want a Tensor, got %s", v.Type())
		case describeTensor(value.Tensor()) != describeTensor(l.Tensor):
			differ(l.name, "want %s, got %s", describeTensor(l.Tensor), describeTensor(value.Tensor()))
		case l.Frozen():
			differ(l.name, "made at top level, so it cannot be changed")
		case taken[l.Tensor] == nil:
			src := value.Tensor().Detach()
			if storages[src.Storage()] {
				// It may change before its turn comes.
				src = try.To(tensor.Clone(src))
			}
			taken[l.Tensor] = src
			order = append(order, l)
		default:
			same := try.To(equal(taken[l.Tensor], value.Tensor()))
			if !same {
				first := slices.IndexFunc(order, func(o leaf) bool { return o.Tensor == l.Tensor })
				differ(l.name, "the same tensor as %s here, but the state has different values for it", order[first].name)
			}
		}
	}
	for _, kv := range state.Items() {
		if name, _ := starlark.AsString(kv[0]); given[name] != nil {
			differ(name, "unexpected")
		}
	}
	return differences, func() error {
		m.ctx.BeginNoGrad()
		defer m.ctx.EndNoGrad()
		for _, l := range order {
			if err := tensor.CopyInto(l.Tensor, taken[l.Tensor]); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		return nil
	}, nil
}

func describeTensor(t *tensor.Tensor) string {
	return fmt.Sprintf("%s of shape %s", t.DType(), startensor.Shape(t))
}

// equal reports whether two tensors of one type and shape have the same bits.
func equal(a, b *tensor.Tensor) (_ bool, err error) {
	defer try.Caught(&err)
	a = try.To(tensor.Contiguous(a.Detach()))
	b = try.To(tensor.Contiguous(b.Detach()))
	return bytes.Equal(a.Content(), b.Content()), nil
}
