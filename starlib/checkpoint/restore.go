package checkpoint

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// restoring is a state that is being compared with a checkpoint. Nothing is changed before everything has been compared.
type restoring struct {
	ctx     *tensor.Context
	found   *Restored
	saved   map[string]*Item // by name; take removes what it returns
	differ  map[string]bool  // the same of names whose values were not equal on all ranks
	wrong   []string         // what does not fit
	changes []func() error
	derived []string // values whose streams of random numbers start afresh
	cut     []string // shards whose rows were divided anew
	filled  map[starlark.Value]bool
}

// apply puts a checkpoint back into a state, and returns notes for the user.
func apply(ctx *tensor.Context, state *starlark.Dict, always []Named, found *Restored, strict bool) (notes []string, err error) {
	defer try.Caught(&err)
	r := &restoring{ctx: ctx, found: found, saved: make(map[string]*Item, len(found.Part)),
		differ: make(map[string]bool, len(found.Differ)), filled: make(map[starlark.Value]bool)}
	for i := range found.Part {
		r.saved[found.Part[i].Name] = &found.Part[i]
	}
	for _, name := range found.Differ {
		r.differ[name] = true
	}
	if r.saved[fromFile] != nil {
		left, err := r.file(state)
		if err == nil {
			err = r.change(strict)
		}
		return r.notesOfFile(left), err
	}
	for _, kv := range state.Items() {
		name := try.To(key(kv[0]))
		if s, ok := kv[1].(starlib.Stateful); ok {
			_, open := s.(starlib.Growing)
			r.stateful(name+separator, s, open)
			continue
		}
		if saved := r.take(name, kv[1]); saved != nil {
			if v := r.fit(name, kv[1], saved); !isKept(kv[1], v) {
				r.changes = append(r.changes, func() error { return state.SetKey(kv[0], v) })
			}
		}
	}
	for _, n := range always {
		r.stateful(separator+n.Name+separator, n.Value, true)
	}
	for i := range found.Part {
		if name := found.Part[i].Name; r.saved[name] != nil {
			r.mismatch(name, extra)
			delete(r.differ, name)
		}
	}
	for _, name := range found.Differ {
		if r.differ[name] {
			r.mismatch(name, extra)
		}
	}
	try.Ok(r.change(strict))
	return r.notes(), nil
}

// change applies what fits, after everything has been compared.
func (r *restoring) change(strict bool) (err error) {
	defer try.Caught(&err)
	if strict && len(r.wrong) > 0 {
		return differences(r.wrong)
	}
	for _, change := range r.changes {
		try.Ok(change())
	}
	return nil
}

// notesOfFile returns the notes for the user about a restore from a file of weights.
func (r *restoring) notesOfFile(left []string) (notes []string) {
	if left != nil {
		notes = append(notes, "the weights file has nothing for: "+strings.Join(left, ", "))
	}
	return append(notes, r.unmatched()...)
}

func (r *restoring) notes() (notes []string) {
	if r.found.Saved != r.found.World {
		by := "1 rank"
		if r.found.Saved > 1 {
			by = fmt.Sprintf("%d ranks", r.found.Saved)
		}
		text := fmt.Sprintf("saved by %s, restored by %d: values equal on all ranks go to every rank", by, r.found.World)
		if len(r.derived) > 0 {
			text += ", and random streams that belong to one rank start afresh (" + strings.Join(r.derived, ", ") + ")"
		}
		if len(r.cut) > 0 {
			text += ", and row shards are split again (" + strings.Join(some(r.cut), ", ") + ")"
		}
		notes = append(notes, text)
	}
	return append(notes, r.unmatched()...)
}

func (r *restoring) unmatched() []string {
	if len(r.wrong) == 0 {
		return nil
	}
	return []string{"what does not match was left unchanged:\n  " + strings.Join(some(summary(r.wrong)), "\n  ")}
}

const extra = "in the checkpoint, but not in the state"

// summary makes one line of the entries of a value, such as an optimizer, that the state lacks.
func summary(wrong []string) (lines []string) {
	count := map[string]int{}
	for _, line := range wrong {
		name, is := strings.CutSuffix(line, ": "+extra)
		if value, _, part := strings.Cut(name, separator); is && part {
			if count[value]++; count[value] > 1 {
				continue
			}
			line = value
		}
		lines = append(lines, line)
	}
	for i, line := range lines {
		if n := count[line]; n == 1 {
			lines[i] = line + ": an entry is " + extra
		} else if n > 1 {
			lines[i] = fmt.Sprintf("%s: %d entries are %s", line, n, extra)
		}
	}
	return lines
}

func (r *restoring) mismatch(name, format string, args ...any) {
	r.wrong = append(r.wrong, label(name)+": "+fmt.Sprintf(format, args...))
}

// label names an entry for the user; drun's own begin with a slash.
func label(name string) string {
	switch own, is := strings.CutPrefix(name, separator); {
	case !is:
		return name
	case own == "random/shared":
		return "the shared generator"
	case own == "random" || strings.HasPrefix(own, "random/"):
		return "the run's other generators"
	default:
		return "the run's " + strings.TrimPrefix(own, "run/")
	}
}

// take returns the saved value for a live one of that name; nil if this rank has none.
func (r *restoring) take(name string, live starlark.Value) starlark.Value {
	it, differs := r.saved[name], r.differ[name]
	delete(r.saved, name)
	delete(r.differ, name)
	if rows := r.rows(name, live, it, differs); rows != nil {
		r.cut = append(r.cut, label(name))
		return rows
	}
	switch {
	case differs:
		r.mismatch(name, "the %d ranks that saved it had different values, so only %d ranks can restore it", r.found.Saved, r.found.Saved)
		return nil
	case it == nil:
		r.mismatch(name, "not in the checkpoint")
		return nil
	}
	v, err := it.value(r.ctx)
	if err != nil {
		r.mismatch(name, "%v", err)
		return nil
	}
	return v
}

// rows returns this rank's part, in another world size, of a tensor whose rows are divided equally among the ranks;
// nil if it is no such tensor. The live one's shape shows that it is one: its total number of rows over today's ranks
// equals that of the saved one over the ranks that saved it. If all ranks saved the same value it counts as one
// only if others do, and if all its rows are the same.
func (r *restoring) rows(name string, live starlark.Value, saved *Item, differs bool) starlark.Value {
	t, ok := live.(*startensor.Value)
	if !ok || len(r.found.Cut) == 0 || t.Tensor().Share() != nil {
		return nil
	}
	var item *Item
	if differs {
		i := slices.IndexFunc(r.found.Cut, func(it Item) bool { return it.Name == name })
		if i >= 0 {
			item = &r.found.Cut[i]
		}
	} else if shape := t.Tensor().Shape(); saved != nil && len(shape) > 0 && len(saved.Shape) == len(shape) && saved.Shape[0] > 0 &&
		shape[0] != saved.Shape[0] && shape[0]*r.found.World == saved.Shape[0]*r.found.Saved {
		size := len(saved.Data) / saved.Shape[0]
		if row := saved.Data[:size]; bytes.Equal(saved.Data, bytes.Repeat(row, saved.Shape[0])) {
			item = &Item{Name: name, DType: saved.DType, Shape: append([]int{shape[0]}, saved.Shape[1:]...), Data: bytes.Repeat(row, shape[0])}
		}
	}
	if item == nil {
		return nil
	}
	v, err := item.value(r.ctx)
	if err != nil || describe(v) != describe(live) {
		return nil
	}
	return v
}

// stateful compares a value that has state of its own. open: it accepts entries that it does not know yet.
func (r *restoring) stateful(prefix string, s starlib.Stateful, open bool) {
	resolved := map[string]starlark.Value{}
	value, resized := s.(starlib.Resizable)
	if resized = resized && r.found.Saved != r.found.World; resized {
		resolved = r.resize(prefix, value)
	}
	var entries []starlib.Entry
	add := func(name string, live starlark.Value) {
		v, ok := resolved[name]
		if delete(resolved, name); !ok {
			v = r.take(prefix+name, live)
		}
		if v == nil {
			return
		}
		if t, ok := live.(*startensor.Value); ok && !r.same(prefix+name, t, v) {
			return
		}
		entries = append(entries, starlib.Entry{Name: name, Value: v})
	}
	for _, e := range s.State() {
		add(e.Name, e.Value)
	}
	if open {
		for _, it := range r.found.Part {
			if name, ok := strings.CutPrefix(it.Name, prefix); ok && r.saved[it.Name] != nil {
				add(name, nil)
			}
		}
	}
	if c, ok := s.(starlib.Compared); ok {
		for _, d := range c.Differences(entries, resized) {
			r.mismatch(strings.TrimSuffix(prefix, separator), "%s", d)
		}
	}
	r.changes = append(r.changes, func() error { return s.SetState(entries) })
}

// resize asks a value which of its state is still valid in another world size.
func (r *restoring) resize(prefix string, value starlib.Resizable) map[string]starlark.Value {
	var saved []starlib.Entry
	differ := map[string]bool{}
	for _, it := range r.found.Part {
		name, ok := strings.CutPrefix(it.Name, prefix)
		if !ok || r.saved[it.Name] == nil {
			continue
		}
		v, err := it.value(r.ctx)
		if err != nil {
			continue // take will say so
		}
		saved = append(saved, starlib.Entry{Name: name, Value: v})
		differ[name] = r.differ[it.Name]
	}
	if len(saved) == 0 {
		return nil
	}
	entries, derived := value.Resize(slices.Clone(saved), starlib.Resized{World: r.found.World, Step: r.found.Step,
		Differ: func(name string) bool { return differ[name] }})
	if derived {
		r.derived = append(r.derived, label(strings.TrimSuffix(prefix, separator)))
	}
	resolved := make(map[string]starlark.Value, len(entries))
	for _, e := range entries {
		resolved[e.Name] = e.Value
	}
	// A saved entry that is left over counts as missing only if the value has it.
	live := map[string]bool{}
	for _, e := range value.State() {
		live[e.Name] = true
	}
	forget := func(full string) {
		if name, ok := strings.CutPrefix(full, prefix); ok && (resolved[name] != nil || !live[name]) {
			delete(r.saved, full)
			delete(r.differ, full)
		}
	}
	for _, it := range r.found.Part {
		forget(it.Name)
	}
	for _, name := range r.found.Differ {
		forget(name)
	}
	return resolved
}

// same reports whether a saved value is a tensor like the live one.
func (r *restoring) same(name string, live *startensor.Value, saved starlark.Value) bool {
	want, got := describe(live), describe(saved)
	if want != got {
		r.mismatch(name, "the state has %s, the checkpoint %s", want, got)
	}
	return want == got
}

func describe(v starlark.Value) string {
	if t, ok := v.(*startensor.Value); ok {
		return fmt.Sprintf("%s%s", t.Tensor().DType(), strings.ReplaceAll(fmt.Sprint(t.Tensor().WholeShape()), " ", ","))
	}
	if holdsTensors(v) {
		return "a " + v.Type() + " with tensors"
	}
	return "a plain value"
}
