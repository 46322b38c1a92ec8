package checkpoint

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/starlib/lang"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// fit compares a plain value with the saved one, and returns its replacement. A recipe may refer to the tensors,
// lists and dicts within by other names: they are kept, and get the saved contents when the changes are made.
func (r *restoring) fit(name string, live, saved starlark.Value) starlark.Value {
	switch live := live.(type) {
	case *startensor.Value:
		if r.same(name, live, saved) {
			r.changes = append(r.changes, func() error {
				return tensor.CopyWhole(live.Tensor().Detach(), saved.(*startensor.Value).Tensor())
			})
		}
		return live
	case *starlark.List:
		if saved, ok := saved.(*starlark.List); ok {
			items := r.fitItems(name, slices.Collect(starlark.Elements(live)), slices.Collect(starlark.Elements(saved)))
			if !r.fills(live, changeableList(live)) {
				return starlark.NewList(items)
			}
			r.changes = append(r.changes, func() error { return refill(live, items) })
			return live
		}
	case starlark.Tuple:
		if saved, ok := saved.(starlark.Tuple); ok {
			return starlark.Tuple(r.fitItems(name, live, saved))
		}
	case *starlark.Dict:
		if saved, ok := saved.(*starlark.Dict); ok {
			items := r.fitDict(name, live, saved)
			if !r.fills(live, changeableDict(live)) {
				return items
			}
			r.changes = append(r.changes, func() error { return refillDict(live, items) })
			return live
		}
	case *starlarkstruct.Struct:
		if saved, ok := saved.(*starlarkstruct.Struct); ok {
			return r.fitStruct(name, live, saved)
		}
	}
	if holdsTensors(live) {
		r.mismatch(name, "the state has %s, the checkpoint %s", describe(live), describe(saved))
		return live
	}
	return saved
}

// fills reports whether a list or dict itself gets the saved items: not if it cannot be changed, nor twice, since
// what was saved under its two names may differ.
func (r *restoring) fills(live starlark.Value, changeable bool) bool {
	if !changeable || r.filled[live] {
		return false
	}
	r.filled[live] = true
	return true
}

func (r *restoring) fitItems(name string, live, saved []starlark.Value) []starlark.Value {
	var items []starlark.Value
	for i := range max(len(live), len(saved)) {
		if i >= len(live) || i < len(saved) && isSimple(live[i]) {
			items = append(items, saved[i])
			continue
		}
		at := fmt.Sprintf("%s[%d]", name, i)
		if i < len(saved) {
			items = append(items, r.fit(at, live[i], saved[i]))
		} else {
			items = r.missing(at, live[i], items)
		}
	}
	return items
}

// isSimple reports whether a value contains no others.
func isSimple(v starlark.Value) bool {
	switch v.(type) {
	case *startensor.Value, *starlark.List, starlark.Tuple, *starlark.Dict, *starlarkstruct.Struct:
		return false
	}
	return true
}

// isKept reports whether fit returned the live value itself.
func isKept(live, v starlark.Value) bool {
	switch live.(type) {
	case *startensor.Value, *starlark.List, *starlark.Dict: // these can be compared
		return live == v
	}
	return false
}

// missing keeps, and reports, a live item that the checkpoint lacks, if it holds tensors.
func (r *restoring) missing(name string, live starlark.Value, items []starlark.Value) []starlark.Value {
	if !holdsTensors(live) {
		return items
	}
	r.mismatch(name, "not in the checkpoint")
	return append(items, live)
}

func (r *restoring) fitDict(name string, live, saved *starlark.Dict) *starlark.Dict {
	items := starlark.NewDict(saved.Len())
	for _, kv := range saved.Items() {
		v := kv[1]
		if old, ok, _ := live.Get(kv[0]); ok {
			v = r.fit(fmt.Sprintf("%s[%s]", name, kv[0]), old, v)
		}
		_ = items.SetKey(kv[0], v) // a key of a dict, put into a new one
	}
	for _, kv := range live.Items() {
		if _, ok, _ := saved.Get(kv[0]); ok {
			continue
		}
		if kept := r.missing(fmt.Sprintf("%s[%s]", name, kv[0]), kv[1], nil); kept != nil {
			_ = items.SetKey(kv[0], kept[0])
		}
	}
	return items
}

func (r *restoring) fitStruct(name string, live, saved *starlarkstruct.Struct) starlark.Value {
	fields := starlark.StringDict{}
	saved.ToStringDict(fields)
	was := starlark.StringDict{}
	live.ToStringDict(was)
	for _, field := range was.Keys() {
		at := name + "." + field
		if v, ok := fields[field]; ok {
			fields[field] = r.fit(at, was[field], v)
		} else if kept := r.missing(at, was[field], nil); kept != nil {
			fields[field] = kept[0]
		}
	}
	return starlarkstruct.FromStringDict(saved.Constructor(), fields)
}

// A list or dict cannot be changed while it is frozen or a loop runs over it. Setting an item to itself shows whether it can.
func changeableList(l *starlark.List) bool {
	if l.Len() == 0 {
		return l.Clear() == nil
	}
	return l.SetIndex(0, l.Index(0)) == nil
}

func changeableDict(d *starlark.Dict) bool {
	if d.Len() == 0 {
		return d.Clear() == nil
	}
	first := d.Items()[0]
	return d.SetKey(first[0], first[1]) == nil
}

func refill(l *starlark.List, items []starlark.Value) (err error) {
	defer try.Caught(&err)
	try.Ok(l.Clear())
	for _, v := range items {
		try.Ok(l.Append(v))
	}
	return nil
}

func refillDict(d, items *starlark.Dict) (err error) {
	defer try.Caught(&err)
	try.Ok(d.Clear())
	for _, kv := range items.Items() {
		try.Ok(d.SetKey(kv[0], kv[1]))
	}
	return nil
}

func holdsTensors(v starlark.Value) (found bool) {
	seen := map[starlark.Value]bool{}
	var look func(v starlark.Value) bool
	look = func(v starlark.Value) bool {
		switch v.(type) {
		case *startensor.Value:
			found = true
		case *starlark.List, *starlark.Dict: // which may contain themselves
			if seen[v] {
				return true
			}
			seen[v] = true
		}
		if !found {
			lang.Parts(v, look)
		}
		return !found
	}
	look(v)
	return found
}
