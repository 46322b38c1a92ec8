package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/lang"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Model is a module, a part of a model: fields, which may be modules in turn, and
// the function that calling it computes.
type Model struct {
	kind     string // "linear"
	detail   string // what distinguishes it from others of its kind: "64, 128"
	fields   []field
	training bool
	forward  starlark.Callable // takes the call's arguments
	layer    bool              // a built-in layer, which keeps no tensor
	of       layer             // what it computes, if it takes one tensor
	self     bool              // forward is a recipe's function that takes the module as its first argument
	hooks    []*hook
	around   Around
	heads    *heads        // of multi_head_attention, for the blocks that contain it
	maxima   *maxima       // of max_pool2d
	across   tensor.Across // of batch_norm: the ranks over which a batch is divided; nil: each has its own
	// with computes a conv2d and the pooling of its result at once; it returns nil if they must be computed one after the other.
	with func(x *tensor.Tensor, pool maxima) (*tensor.Tensor, error)
	ctx  *tensor.Context
}

// maxima describes the windows of a max pooling.
type maxima struct{ size, stride, padding [2]int }

// layer computes a layer's output.
type layer func(m *Model, x *tensor.Tensor) (*tensor.Tensor, error)

// Around wraps each call of a module, including its hooks: it calls compute and returns the result.
type Around func(thread *starlark.Thread, compute func() (starlark.Value, error)) (starlark.Value, error)

// field is a named part of a module.
type field struct {
	name string
	seen starlark.Value // what a recipe gets when it reads the field
	tree starlark.Value // the same with parameters and buffers marked
}

// marked is a tensor in a module's fields: a parameter, or a buffer. nn.buffer returns one for a field; recipes that
// read the field get the tensor.
type marked struct {
	*tensor.Tensor
	buffer bool
}

func (m marked) Type() string          { return "Buffer" }
func (m marked) Freeze()               { m.Tensor.Freeze() }
func (m marked) Truth() starlark.Bool  { return true }
func (m marked) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: Buffer") }

// register makes a field from a value. A list or dict that holds a part of the model is copied, so that the module's
// content stays fixed.
func register(name string, v starlark.Value) field {
	seen, tree, _ := mark(v)
	return field{name, seen, tree}
}

// wrapped returns an error if v is or holds a module that something wraps, as dist.ddp does: it would be taken for a function, and its
// parameters be lost.
func wrapped(v starlark.Value) (err error) {
	defer try.Caught(&err)
	switch v := v.(type) {
	case *Model:
	case interface {
		starlark.Value
		Parameters() (names []string, tensors []*tensor.Tensor)
	}:
		return fmt.Errorf("%s cannot be a part of a model, which would not know its parameters: make the model of the modules themselves, and wrap all of it", v.Type())
	case *starlark.Dict:
		for _, item := range v.Entries() {
			try.Ok(wrapped(item))
		}
	case *starlark.List, starlark.Tuple:
		for item := range starlark.Elements(v.(starlark.Iterable)) {
			try.Ok(wrapped(item))
		}
	}
	return nil
}

// mark also reports whether v is or holds a part of a model.
func mark(v starlark.Value) (seen, tree starlark.Value, part bool) {
	switch v := v.(type) {
	case *Model:
		return v, v, true
	case marked:
		return (*startensor.Value)(v.Tensor), v, true
	case *startensor.Value:
		if t := v.Tensor(); t.RequiresGrad() && t.IsLeaf() {
			return v, marked{t, false}, true
		}
	case *starlark.List:
		items := starlark.Tuple(each.UpTo(v.Len(), v.Index))
		if s, t, part := mark(items); part {
			return s, t, true
		}
	case starlark.Tuple:
		s, t := make(starlark.Tuple, len(v)), make(starlark.Tuple, len(v))
		for i, item := range v {
			var p bool
			s[i], t[i], p = mark(item)
			part = part || p
		}
		if part {
			return s, t, true
		}
	case *starlark.Dict:
		s, t := starlark.NewDict(v.Len()), starlark.NewDict(v.Len())
		for key, item := range v.Entries() {
			itemSeen, itemTree, p := mark(item)
			part = part || p
			if s.SetKey(key, itemSeen) != nil || t.SetKey(key, itemTree) != nil {
				return v, v, false // cannot happen: it was a key before
			}
		}
		if part {
			return s, t, true
		}
	}
	return v, v, false
}

var (
	_ starlib.Stateful     = (*Model)(nil)
	_ lang.Transient       = (*Model)(nil)
	_ starlark.HasSetField = (*Model)(nil)
)

// Type returns the name that signatures use.
func (m *Model) Type() string          { return "Module" }
func (m *Model) Truth() starlark.Bool  { return true }
func (m *Model) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: Module") }

// Freeze does nothing: modules are not made at top level.
func (m *Model) Freeze() {}

// Name returns the name that backtraces show.
func (m *Model) Name() string { return "nn." + m.kind }

func (m *Model) Training() bool { return m.training }

// CallInternal computes the module's output.
func (m *Model) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if m.around != nil {
		return m.around(thread, func() (starlark.Value, error) { return m.called(thread, args, kwargs) })
	}
	return m.called(thread, args, kwargs)
}

// ForBackward returns m as m(x).backward() calls it: the pass frees the result's memory. A module that wraps m by
// embedding it is called as usual.
func (m *Model) ForBackward(f starlark.Callable) starlark.Callable {
	if f == starlark.Callable(m) {
		return forBackward{m}
	}
	return f
}

type forBackward struct{ *Model }

// CallInternal marks the result, unless something may keep it: a hook or a function of the recipe, or a name, if the result is
// an argument. Hooks may have been added since ForBackward, while the arguments were computed.
func (f forBackward) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	sole := f.keepsNothing()
	out, err := f.Model.CallInternal(thread, args, kwargs)
	t, ok := out.(*startensor.Value)
	if ok && sole && !slices.Contains(args, out) && !slices.ContainsFunc(kwargs, func(kv starlark.Tuple) bool { return kv[1] == out }) {
		t.Tensor().Transient()
	}
	return out, err
}

// keepsNothing reports whether m computes only with built-in layers of one tensor.
func (m *Model) keepsNothing() bool {
	if m.hooks != nil || m.around != nil {
		return false
	}
	if m.kind != "sequential" {
		return m.layer && m.of != nil
	}
	for i := range m.fields {
		if l, ok := m.fields[i].seen.(*Model); !ok || !l.keepsNothing() {
			return false
		}
	}
	return true
}

func (m *Model) called(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	out, err := m.compute(thread, args, kwargs)
	if err != nil || m.hooks == nil {
		return out, err
	}
	return m.hooked(thread, args, out)
}

func (m *Model) compute(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if m.self {
		return starlark.Call(thread, m.forward, append(starlark.Tuple{m}, args...), kwargs)
	}
	if m.direct(args, kwargs) {
		return m.layered(args[0].(*startensor.Value))
	}
	return m.forward.CallInternal(thread, args, kwargs)
}

// direct reports whether m takes one tensor, and gets just that, so that no arguments need checking.
func (m *Model) direct(args starlark.Tuple, kwargs []starlark.Tuple) bool {
	if m.of == nil || len(args) != 1 || len(kwargs) != 0 {
		return false
	}
	_, ok := args[0].(*startensor.Value)
	return ok
}

// layered computes a layer's output; errors begin with the name of its builtin.
func (m *Model) layered(x *startensor.Value) (out starlark.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, starlib.Panicked(m.Name(), p)
		}
	}()
	t, err := m.of(m, x.Tensor())
	if err != nil {
		return nil, starlib.Failed(m.Name(), err)
	}
	return (*startensor.Value)(t), nil
}

// pooled computes a convolution and the pooling after it at once; nil if they must be computed one after the other.
func (m *Model) pooled(pool *Model, x *startensor.Value) (out starlark.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, starlib.Panicked(m.Name(), p)
		}
	}()
	t, err := m.with(x.Tensor(), *pool.maxima)
	if err != nil {
		return nil, starlib.Failed(m.Name(), err)
	}
	if t == nil {
		return nil, nil
	}
	return (*startensor.Value)(t), nil
}

func (m *Model) Attr(name string) (starlark.Value, error) {
	if name == "training" {
		return starlark.Bool(m.training), nil
	}
	for i := range m.fields {
		if f := &m.fields[i]; f.name == name {
			return f.seen, nil
		}
	}
	return methods.Attr(m, name)
}

// Describe says which layer a model is that is made of others.
func (m *Model) Describe(kind, detail string) { m.kind, m.detail = kind, detail }

// AttrNames lists fields and methods.
func (m *Model) AttrNames() []string {
	names := append([]string(nil), methods.AttrNames()...)
	for _, f := range m.fields {
		names = append(names, f.name)
	}
	return names
}

// leaf is a parameter or buffer with its path in the module: "0.weight".
type leaf struct {
	name string
	marked
}

// leaves lists parameters and buffers in the order of the fields, each once.
func (m *Model) leaves() []leaf {
	return m.walk(false).found
}

func (m *Model) walk(every bool) *walker {
	w := &walker{every: every, seen: make(map[any]bool)}
	w.module("", m)
	return w
}

type walker struct {
	every    bool // whatever is in several places is listed for each
	found    []leaf
	counters []string // names of buffers that only PyTorch's modules have
	seen     map[any]bool
}

func (w *walker) module(prefix string, m *Model) {
	if w.seen[m] && !w.every {
		return
	}
	w.seen[m] = true
	if slices.ContainsFunc(m.fields, func(f field) bool { return m.layer && f.name == "running_mean" }) {
		w.counters = append(w.counters, prefix+counter)
	}
	for _, p := range m.parts() {
		switch v := p.value.(type) {
		case *Model:
			w.module(prefix+p.name+".", v)
		case marked:
			w.leaf(leaf{prefix + p.name, v})
		}
	}
}

func (w *walker) leaf(l leaf) {
	if w.every || !w.seen[l.Tensor] {
		w.seen[l.Tensor] = true
		w.found = append(w.found, l)
	}
}
