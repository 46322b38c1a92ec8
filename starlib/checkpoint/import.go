package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/codec"
	"drun/starlib/data"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// fromFile marks a checkpoint made from a file of weights: it is the name of the entry with the file's name. The
// other entries are the file's tensors, under their names in the file.
const fromFile = separator + "file"

// Import makes a checkpoint from a file of weights.
func Import(file *starlib.File, name string) (_ []Item, err error) {
	defer try.Caught(&err)
	format := try.To(data.FormatOf(name))
	tensors := try.To(format.Read(tensor.NewContext(), file))
	mark := try.To(codec.Encode(starlark.String(name)))
	items := []Item{{Name: fromFile, Data: mark}}
	for _, kv := range tensors.Items() {
		name, err := key(kv[0])
		if err == nil && strings.HasPrefix(name, separator) {
			err = fmt.Errorf("%q: a tensor's name cannot begin with a slash", name)
		}
		if err != nil {
			return nil, err
		}
		item, err := itemOf(name, kv[1])
		try.FailIf(err != nil, "%s: %w", name, err)
		items = append(items, item)
	}
	return items, nil
}

// fitter is a module that knows PyTorch's names for its tensors.
type fitter interface {
	module
	Fit(state *starlark.Dict) (differences []string, change func() error, err error)
}

// file puts the tensors of a file into the modules and tensors of a state. Names are those of
// save_file; those of the only module may lack its key, as in model.state_dict(). The rest of
// the state, which is not weights, stays as it is.
func (r *restoring) file(state *starlark.Dict) (left []string, err error) {
	defer try.Caught(&err)
	delete(r.saved, fromFile)
	keys := map[string]starlark.Value{}
	var order, modules []string
	for _, kv := range state.Items() {
		name := try.To(key(kv[0]))
		keys[name], order = kv[1], append(order, name)
		if _, ok := kv[1].(fitter); ok {
			modules = append(modules, name)
		}
	}
	bare := len(modules) == 1 && slices.ContainsFunc(keys[modules[0]].(fitter).Weights(), func(e starlib.Entry) bool { return r.saved[e.Name] != nil })
	for name := range r.saved {
		head, _, _ := strings.Cut(name, ".")
		if keys[head] != nil || keys[name] != nil {
			bare = false
		}
	}
	for _, name := range order {
		prefix := name + "."
		if bare && name == modules[0] {
			prefix = ""
		}
		switch v := keys[name].(type) {
		case fitter:
			err = r.module(prefix, v)
		case *startensor.Value:
			if saved := r.take(name, v); saved != nil {
				r.fit(name, v, saved)
			}
		default:
			left = append(left, name)
			for _, it := range r.found.Part { // of an optimizer, for example
				if it.Name == name || strings.HasPrefix(it.Name, prefix) {
					delete(r.saved, it.Name)
				}
			}
		}
		try.FailIf(err != nil, "%s: %w", name, err)
	}
	for _, it := range r.found.Part {
		if r.saved[it.Name] != nil {
			r.mismatch(it.Name, "in the file, but not in the state")
		}
	}
	return left, nil
}

// module compares a module with the tensors whose names have a prefix.
func (r *restoring) module(prefix string, m fitter) (err error) {
	defer try.Caught(&err)
	given := new(starlark.Dict)
	for _, it := range r.found.Part {
		name, ok := strings.CutPrefix(it.Name, prefix)
		if !ok || r.saved[it.Name] == nil {
			continue
		}
		v := try.To(it.value(r.ctx))
		delete(r.saved, it.Name)
		try.Ok(given.SetKey(starlark.String(name), v))
	}
	differences, change, err := m.Fit(given)
	for _, d := range differences {
		r.wrong = append(r.wrong, prefix+d)
	}
	r.changes = append(r.changes, change)
	return err
}
