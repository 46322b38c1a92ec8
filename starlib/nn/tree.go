package nn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// This file is about the tree of a model: its modules by name, replacing and printing them, and hooks.

var (
	_ starlark.HasSetKey = (*Model)(nil)
	_ starlark.Mapping   = (*Model)(nil)
	_ starlark.Indexable = (*Model)(nil)
)

// part is a module, parameter, buffer or plain value in a module's fields, with its path: "layers.0".
type part struct {
	name  string
	value starlark.Value
}

// parts lists what the fields hold, and the lists and dicts in them, in order.
func (m *Model) parts() (found []part) {
	var visit func(name string, v starlark.Value)
	visit = func(name string, v starlark.Value) {
		switch v := v.(type) {
		case starlark.Tuple:
			for i, item := range v {
				visit(name+"."+strconv.Itoa(i), item)
			}
		case *starlark.Dict:
			for k, item := range v.Entries() {
				key, ok := starlark.AsString(k)
				if !ok {
					key = k.String()
				}
				visit(name+"."+key, item)
			}
		default:
			found = append(found, part{name, v})
		}
	}
	for _, f := range m.fields {
		visit(f.name, f.tree)
	}
	return found
}

// child is a module within a module, with its path: "layers.0".
type child struct {
	name string
	*Model
}

// children returns the modules in the fields, in order.
func (m *Model) children() (found []child) {
	for _, p := range m.parts() {
		if inner, ok := p.value.(*Model); ok {
			found = append(found, child{p.name, inner})
		}
	}
	return found
}

// tree returns the module and all modules within, each once, with their names: the module's own is "".
func (m *Model) tree() []child { return m.walkTree(func(*Model) bool { return true }) }

// walkTree is tree, but does not descend into modules for which enter is false.
func (m *Model) walkTree(enter func(*Model) bool) []child {
	seen := make(map[*Model]bool)
	var found []child
	var visit func(name string, m *Model)
	visit = func(name string, m *Model) {
		if seen[m] {
			return
		}
		seen[m] = true
		found = append(found, child{name, m})
		if !enter(m) {
			return
		}
		for _, c := range m.children() {
			if name != "" {
				c.name = name + "." + c.name
			}
			visit(c.name, c.Model)
		}
	}
	visit("", m)
	return found
}

var treeMethods = []*starlib.Def{
	method("modules() -> list", "The module and all modules in it, each once, from the outside in.", func(m *Model) (starlark.Value, error) {
		return listed(m.tree(), func(c child) starlark.Value { return c.Model }), nil
	}),
	method("named_modules() -> list", `Pairs of a name, such as "encoder.0", and a module, in the order of modules(); the module's own name is "".`, func(m *Model) (starlark.Value, error) {
		return listed(m.tree(), func(c child) starlark.Value { return starlark.Tuple{starlark.String(c.name), c.Model} }), nil
	}),
	method("children() -> list", "The modules that are directly in this one. In nn.sequential, m[0] or m[-1] is a part, m[0] = … replaces it, and len(m) is the number of parts.", func(m *Model) (starlark.Value, error) {
		return listed(m.children(), func(c child) starlark.Value { return c.Model }), nil
	}),
	{Sig: "apply(fn: callable) -> Module",
		Doc: "Calls fn(module) for each module within, and then for the module itself, for instance to initialise weights with nn.init. Returns the module.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			m, fn := c.Recv.(*Model), c.Callable("fn")
			seen := make(map[*Model]bool)
			var visit func(m *Model) error
			visit = func(m *Model) error {
				if seen[m] {
					return nil
				}
				seen[m] = true
				for _, c := range m.children() {
					if err := visit(c.Model); err != nil {
						return err
					}
				}
				_, err := starlark.Call(c.Thread, fn, starlark.Tuple{m}, nil)
				return err
			}
			return m, visit(m)
		}},
	{Sig: "register_forward_hook(fn: callable) -> callable",
		Doc: "Calls fn(module, args, output) after each call of the module; its result, unless None, replaces the output. Hooks run in the order of registration. Returns a function that removes the hook.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			m, h := c.Recv.(*Model), &hook{c.Callable("fn")}
			m.hooks = append(m.hooks, h)
			return starlark.NewBuiltin("remove", func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
				m.hooks = slices.DeleteFunc(slices.Clone(m.hooks), func(other *hook) bool { return other == h })
				return starlark.None, nil
			}), nil
		}},
}

func listed[T any](list []T, item func(T) starlark.Value) *starlark.List {
	return starlark.NewList(each.Of(list, item))
}

// hook is a recipe's function that is called after each call of a module.
type hook struct{ fn starlark.Callable }

// hooked passes the module's output through the hooks.
func (m *Model) hooked(thread *starlark.Thread, args starlark.Tuple, out starlark.Value) (starlark.Value, error) {
	for _, h := range m.hooks {
		v, err := starlark.Call(thread, h.fn, starlark.Tuple{m, args, out}, nil)
		if err != nil {
			return nil, err
		}
		if v != starlark.None {
			out = v
		}
	}
	return out, nil
}

// place finds a part of a sequence by its index.
func (m *Model) place(k starlark.Value) (int, error) {
	if m.kind != "sequential" {
		return 0, fmt.Errorf("nn.%s cannot be indexed: only nn.sequential can", m.kind)
	}
	i, err := starlark.AsInt32(k)
	if err != nil {
		return 0, fmt.Errorf("nn.sequential: want an index, got %s", k.Type())
	}
	if i < -len(m.fields) || i >= len(m.fields) {
		return 0, fmt.Errorf("nn.sequential: index %d is out of range for %d parts", i, len(m.fields))
	}
	return (i + len(m.fields)) % len(m.fields), nil
}

func (m *Model) Get(k starlark.Value) (starlark.Value, bool, error) {
	i, err := m.place(k)
	if err != nil {
		return nil, false, err
	}
	return m.fields[i].seen, true, nil
}

// Len is len(m), the number of parts of nn.sequential. It is negative for other modules, which have no length.
func (m *Model) Len() int {
	if m.kind != "sequential" {
		return -1
	}
	return len(m.fields)
}

// Index exists because Starlark asks only indexable values for their length.
func (m *Model) Index(i int) starlark.Value { return m.fields[i].seen }

func (m *Model) SetKey(k, v starlark.Value) error {
	i, err := m.place(k)
	if err != nil {
		return err
	}
	return m.replace(&m.fields[i], v)
}

// SetField replaces a module, parameter or buffer of a model by another, before training.
// Nothing else can be set: state that changes must be in a buffer, or checkpoints would miss it.
func (m *Model) SetField(name string, v starlark.Value) error {
	for i := range m.fields {
		if f := &m.fields[i]; f.name == name && (!m.layer || m.exchangeable(f, v)) {
			return m.replace(f, v)
		}
	}
	return fmt.Errorf("nn.%s: %s cannot be assigned: keep what changes in a buffer (nn.buffer) and change it in place, for instance with copy_()", m.kind, name)
}

// exchangeable reports whether a field of a built-in layer can be replaced: a module in it, or the weight of
// an embedding or linear layer, which may be shared with another.
func (m *Model) exchangeable(f *field, v starlark.Value) bool {
	if _, part := f.seen.(*Model); part {
		_, is := v.(*Model)
		return is
	}
	was, is := f.seen.(*startensor.Value)
	next, ok := v.(*startensor.Value)
	return (m.kind == "linear" || m.kind == "embedding") && is && ok && describe(was.Tensor()) == describe(next.Tensor())
}

func describe(t *tensor.Tensor) string { return t.DType().String() + tensor.ShapeString(t.Shape()) }

func (m *Model) replace(f *field, v starlark.Value) error {
	next := register(f.name, v)
	_, _, part := mark(v)
	_, _, was := mark(f.tree)
	_, callable := v.(starlark.Callable)
	switch {
	case m.kind == "sequential" && !callable:
		return fmt.Errorf("nn.sequential: want a module or function, got %s", v.Type())
	case m.kind != "sequential" && !(part && was):
		return fmt.Errorf("nn.%s: %s cannot be assigned: only a module, parameter or buffer can be replaced, and only by another; keep what changes in a buffer (nn.buffer) and change it in place, for instance with copy_()", m.kind, f.name)
	}
	for _, l := range m.leaves() {
		if l.Claimed() {
			return fmt.Errorf("nn.%s: %s cannot be replaced any more: an optimizer or dist.ddp holds the module's parameters, and would not see the new ones; replace it before you make those", m.kind, f.name)
		}
	}
	if inner, ok := v.(*Model); ok {
		for _, c := range inner.tree() {
			if c.Model == m {
				return fmt.Errorf("nn.%s: %s cannot be replaced by a module that contains this one", m.kind, f.name)
			}
		}
	}
	*f = next
	return nil
}

// String returns a layer's constructor call, or the tree of a model with its parameters' shapes and sizes.
func (m *Model) String() string {
	if m.layer && len(m.children()) == 0 {
		return "nn." + m.kind + "(" + m.detail + ")"
	}
	var out strings.Builder
	m.print(&out, "", make(map[*Model]bool))
	var all, frozen, buffers int
	for _, l := range m.leaves() {
		switch {
		case l.buffer:
			buffers += l.Len()
		case l.RequiresGrad():
			all += l.Len()
		default:
			all += l.Len()
			frozen += l.Len()
		}
	}
	fmt.Fprintf(&out, "  # %s parameters", thousands(all))
	if frozen > 0 {
		fmt.Fprintf(&out, ", %s of them frozen", thousands(frozen))
	}
	if buffers > 0 {
		fmt.Fprintf(&out, ", %s values in buffers", thousands(buffers))
	}
	return out.String()
}

func (m *Model) print(out *strings.Builder, indent string, above map[*Model]bool) {
	detail := m.detail
	if m.kind == "sequential" {
		detail = ""
	}
	fmt.Fprintf(out, "nn.%s(%s", m.kind, detail)
	if above[m] {
		out.WriteString(" …)")
		return
	}
	above[m] = true
	defer delete(above, m)
	var lines []func()
	var own []string
	n := 0
	for _, p := range m.parts() {
		switch v := p.value.(type) {
		case *Model:
			lines = append(lines, func() {
				fmt.Fprintf(out, "(%s): ", p.name)
				v.print(out, indent+"  ", above)
			})
		case marked:
			own = append(own, p.name+" "+startensor.Shape(v.Tensor))
			n += v.Len()
		case starlark.Callable:
			if m.kind == "sequential" {
				lines = append(lines, func() { fmt.Fprintf(out, "(%s): %s", p.name, v.Name()) })
			}
		}
	}
	for _, line := range lines {
		out.WriteString("\n" + indent + "  ")
		line()
	}
	if len(lines) > 0 {
		out.WriteString("\n" + indent)
	}
	out.WriteString(")")
	if len(own) > 0 {
		fmt.Fprintf(out, "  # %s: %s", strings.Join(own, ", "), thousands(n))
	}
}

// thousands formats a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
