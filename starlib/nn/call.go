package nn

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// functionalCall is nn.functional_call.
var functionalCall = &starlib.Def{
	Sig: "functional_call(module: Module, parameter_and_buffer_dicts: dict | tuple | list, args = (), kwargs: dict = None)",
	Doc: `Calls module(*args, **kwargs) as if its parameters and buffers of these names, such as "0.weight", were other tensors, through which gradients flow: the steps of a meta-learner, for example. Several dicts are joined. The tensors have the shapes of those they stand for; afterwards the module is as before. args may be a single argument.`,
	Fn: func(c *starlib.Call) (_ starlark.Value, err error) {
		m := c.Arg("module").(*Model)
		dicts, ok := c.Arg("parameter_and_buffer_dicts").(starlark.Indexable)
		if d, one := c.Arg("parameter_and_buffer_dicts").(*starlark.Dict); one || !ok {
			dicts = starlark.Tuple{d}
		}
		for i := range dicts.Len() {
			d, ok := dicts.Index(i).(*starlark.Dict)
			try.FailIf(!ok, "parameter_and_buffer_dicts: want dicts, got %s", dicts.Index(i).Type())
			for name, v := range d.Entries() {
				f := try.To(m.exchange(name, v))
				was := *f
				defer func() { *f = was }()
				f.seen, f.tree = v, marked{v.(*startensor.Value).Tensor(), was.tree.(marked).buffer}
			}
		}
		args, ok := c.Arg("args").(starlark.Tuple)
		if !ok {
			args = starlark.Tuple{c.Arg("args")}
		}
		var named []starlark.Tuple
		if d, ok := c.Arg("kwargs").(*starlark.Dict); ok {
			named = d.Items()
		}
		return starlark.Call(c.Thread, m, args, named)
	},
}

// exchange finds the field of a parameter or buffer by its path, which v is to take the place of.
func (m *Model) exchange(path, v starlark.Value) (*field, error) {
	name, ok := starlark.AsString(path)
	given, isTensor := v.(*startensor.Value)
	if !ok || !isTensor {
		return nil, fmt.Errorf("want names and Tensors, got %s and %s", path.Type(), v.Type())
	}
	f := m.find(name)
	if f == nil {
		return nil, fmt.Errorf("the module has no parameter or buffer %q of its own or of a module within", name)
	}
	if was := f.tree.(marked); !slices.Equal(was.Shape(), given.Tensor().Shape()) {
		return nil, fmt.Errorf("%s has shape %s, and a tensor of shape %s cannot stand for it", name, startensor.Shape(was.Tensor), startensor.Shape(given.Tensor()))
	}
	return f, nil
}

func (m *Model) find(path string) *field {
	i := slices.IndexFunc(m.fields, func(f field) bool { return f.name == path })
	if i >= 0 {
		if _, ok := m.fields[i].tree.(marked); ok {
			return &m.fields[i]
		}
	}
	for _, c := range m.children() {
		if rest, ok := strings.CutPrefix(path, c.name+"."); ok {
			if f := c.find(rest); f != nil {
				return f
			}
		}
	}
	return nil
}

// Paths lists the modules within, such as "blocks.0.query".
func (m *Model) Paths() []string {
	return each.Of(m.tree()[1:], func(c child) string { return c.name })
}

// At returns the module within that has this path, one of Paths.
func (m *Model) At(path string) *Model {
	tree := m.tree()
	return tree[slices.IndexFunc(tree, func(c child) bool { return c.name == path })].Model
}

// Layer returns the module's kind, and its own weight and bias, nil if it has none.
func (m *Model) Layer() (kind string, weight, bias *tensor.Tensor) {
	for _, f := range m.fields {
		if t, ok := f.tree.(marked); ok && f.name == "weight" {
			weight = t.Tensor
		} else if ok && f.name == "bias" {
			bias = t.Tensor
		}
	}
	return m.kind, weight, bias
}

// Shared returns the name of a parameter or buffer that the module with a path has in common with the rest of m; "": there is none.
func (m *Model) Shared(path string) string {
	within := map[*tensor.Tensor]bool{}
	for _, l := range m.At(path).leaves() {
		within[l.Tensor] = true
	}
	for _, l := range m.walk(true).found {
		if within[l.Tensor] && !strings.HasPrefix(l.name, path+".") {
			return l.name
		}
	}
	return ""
}

// Exchange puts another module in the place of the one with a path, as an assignment in a recipe does.
func (m *Model) Exchange(path string, other *Model) error {
	for _, c := range m.tree() {
		for i := range c.fields {
			if f := &c.fields[i]; f.name == path[strings.LastIndexByte(path, '.')+1:] && strings.TrimPrefix(c.name+"."+f.name, ".") == path {
				return c.replace(f, other)
			}
		}
	}
	return fmt.Errorf("%s is in a list or dict, whose modules cannot be replaced: make them parts of nn.sequential", path)
}
