package check

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"drun/starlib"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// inference infers the shapes of tensors, and reports those that cannot fit.
type inference struct {
	*memory
	*findings
	ref     *Reference
	memo    map[string]result        // of calls that were run on shapes
	shapes  map[*syntax.Ident]*shape // of names, at their positions; nil: not always the same
	deaf    int                      // above 0 shape errors are not reported: in a callback
	rebuilt bool                     // a model is changed after its construction
}

// errUnknown says that something cannot be computed from shapes alone.
var errUnknown = errors.New("not known")

// run1 calls a builtin on tensors without elements.
func (inf *inference) run1(fn starlark.Value, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	v, err := guarded(func() (starlark.Value, error) { return starlark.Call(inf.ref.thread, fn, args, kwargs) })
	var fault *starlib.PanicError
	var elements interface{ NoElements() }
	if errors.As(err, &fault) || errors.As(err, &elements) {
		return nil, errUnknown
	}
	return v, err
}

// guarded calls fn, and turns a panic into errUnknown.
func guarded(fn func() (starlark.Value, error)) (v starlark.Value, err error) {
	defer func() {
		if recover() != nil {
			v, err = nil, errUnknown
		}
	}()
	return fn()
}

// A plainCall is a call in which everything but some tensors is a plain value.
type plainCall struct {
	args   []starlark.Value // nil for a tensor whose shape is not fully known
	open   []int            // the indices of these
	shapes []*shape
	sizes  []int // sizes that occur in the call
	key    strings.Builder
}

// plain returns the values of arguments if all are plain, tensors or layers; else false.
func (inf *inference) plain(values []value, written []syntax.Expr) (p *plainCall, ok bool) {
	p = &plainCall{sizes: []int{1, manyOf, 2 * manyOf}} // two large sizes show what depends on them
	for i, v := range values {
		p.args = append(p.args, nil)
		if v.shape != nil && !v.shape.exact() {
			p.open, p.shapes = append(p.open, i), append(p.shapes, v.shape)
			p.note(v.shape)
			continue
		}
		var e syntax.Expr
		if i < len(written) {
			e = written[i]
		}
		x := inf.concrete(v, e, p)
		if x == nil {
			return p, false
		}
		p.args[i] = x
	}
	return p, true
}

func (p *plainCall) note(s *shape) {
	p.key.WriteString(s.String())
	for _, d := range s.dims() {
		if n, err := strconv.Atoi(d); err == nil {
			p.size(n)
		}
	}
}

func (p *plainCall) size(n int) {
	fmt.Fprintf(&p.key, " %d", n)
	if n > 0 && !slices.Contains(p.sizes, n) {
		p.sizes = append(p.sizes, n)
	}
}

// concrete returns the one value that v, written as e, can be; nil if unknown.
func (inf *inference) concrete(v value, e syntax.Expr, p *plainCall) starlark.Value {
	switch {
	case v.layer != nil:
		fmt.Fprintf(&p.key, " %p", v.layer)
		return v.layer
	case v.shape != nil && v.shape.exact():
		p.note(v.shape)
		if t := inf.samples(v.shape, nil); len(t) == 1 {
			return t[0]
		}
		return nil
	case v.lit != nil:
		fmt.Fprintf(&p.key, " %s %s", v.typ, v.lit)
		known := constant(v)
		if n, ok := known.(starlark.Int); ok {
			if size, err := starlark.AsInt32(n); err == nil {
				p.size(size)
			}
		}
		return known
	}
	// A tuple cannot change; a list may, unless it is a literal at its point of use.
	o := v.only()
	var items []syntax.Expr
	if list, ok := e.(*syntax.ListExpr); ok {
		items = list.List
	}
	if o == nil || o.kind != container || o.typ != "tuple" && (o.typ != "list" || items == nil) {
		return nil
	}
	held := inf.held(o)
	if o.typ == "tuple" && !held.whole || items != nil && len(items) != len(held.fields) {
		return nil
	}
	p.key.WriteString(" [")
	defer p.key.WriteString("]")
	list := make([]starlark.Value, len(held.fields))
	for i := range list {
		var e syntax.Expr
		if items != nil {
			e = items[i]
		}
		if list[i] = inf.concrete(held.fields[strconv.Itoa(i)], e, p); list[i] == nil {
			return nil
		}
	}
	if o.typ == "tuple" {
		return starlark.Tuple(list)
	}
	return starlark.NewList(list)
}

// aboutShapes matches the errors that are reported: others may depend on what the check does not follow.
var aboutShapes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`shape|dimension|sizes? |elements|columns|broadcast`) })

// result is what all tried variants of a call have in common.
type result struct {
	some  bool
	shape *shape
	value starlark.Value // the same in each
	items []*shape       // of a tuple
	err   error
}

// try calls fn for each choice of the unknown sizes. ok means that something is known about the result or the error.
func (inf *inference) try(p *plainCall, what any, fn func(args []starlark.Value) (starlark.Value, error)) (r result, ok bool) {
	key := fmt.Sprint(what, " ", p.key.String())
	if r, ok := inf.memo[key]; ok {
		return r, r.some || r.err != nil
	}
	defer func() { inf.memo[key] = r }()
	choices := make([][]starlark.Value, len(p.open))
	ways := 1
	for i, s := range p.shapes {
		choices[i] = inf.samples(s, p.sizes)
		ways *= len(choices[i])
	}
	if ways == 0 || ways > maxTries {
		return r, false
	}
	inf.step(ways)
	for way := range ways {
		args := slices.Clone(p.args)
		for i, at := range p.open {
			args[at] = choices[i][way%len(choices[i])]
			way /= len(choices[i])
		}
		v, err := fn(args)
		switch {
		case errors.Is(err, errUnknown):
			return result{}, false
		case err != nil:
			if r.err == nil {
				r.err = err
			}
			continue
		}
		s := shapeOf(v)
		var items []*shape
		if t, ok := v.(starlark.Tuple); ok {
			for _, item := range t {
				items = append(items, shapeOf(item))
			}
		}
		if !r.some {
			r.some, r.shape, r.value, r.items = true, s, v, items
			continue
		}
		r.shape = joined(r.shape, s)
		if a, ok := r.value.(starlark.Int); !ok || v != starlark.Value(a) {
			r.value = nil
		}
		if len(items) != len(r.items) {
			r.items = nil
		}
		for i := range r.items {
			r.items[i] = joined(r.items[i], items[i])
		}
	}
	return r, r.some || r.err != nil
}

// infer adds what is known about shapes to the result of a call of fn, and reports an error that is certain.
func (inf *inference) infer(fn value, c *call, out value) value {
	o := fn.only()
	if o == nil || c.spread || inf.deaf > 0 {
		return out
	}
	values, written := slices.Clone(c.args), slices.Clone(c.exprs)
	for _, name := range c.names {
		values, written = append(values, c.named[name]), append(written, c.byName[name].Y)
	}
	var callee starlark.Value
	var self []value
	name := o.name
	switch {
	case o.kind == builtin && inferred(o.name) || o.kind == module && o.name == "tensor":
		path := strings.Split(o.name, ".")
		callee = inf.ref.env[path[0]]
		for _, attribute := range path[1:] {
			if x, ok := callee.(starlark.HasAttrs); ok {
				callee, _ = x.Attr(attribute)
			}
		}
	case o.kind == method && o.def != nil:
		x := inf.held(o).fields["self"]
		if x.shape == nil || !isTensor(x) || strings.HasSuffix(o.name, "_") {
			return out
		}
		self = []value{x}
	case o.kind == instance && fn.layer != nil && !inf.rebuilt:
		callee, name = fn.layer, fn.layer.(starlark.Callable).Name()
		if len(values) == 1 && values[0].shape == nil && len(values[0].refs) == 0 {
			values[0].shape = &shape{open: true}
		}
	}
	if callee == nil && self == nil {
		return out
	}
	if self != nil {
		written = append([]syntax.Expr{nil}, written...)
	}
	p, ok := inf.plain(append(self, values...), written)
	if !ok {
		return out
	}
	weights := inf.weights(callee, p)
	if self != nil && (name == "reshape" || name == "view") && len(p.open) > 0 {
		return inf.reshaped(p, out)
	}
	what := fmt.Sprint(name, c.names, o.id)
	if fn.layer != nil {
		what = fmt.Sprintf("%p", fn.layer)
	} else if _, makes := c.node.(*syntax.CallExpr); makes && strings.HasPrefix(name, "nn.") {
		what += fmt.Sprintf(" %p", c.node) // each call site makes its own layer
	}
	r, ok := inf.try(p, what, func(args []starlark.Value) (starlark.Value, error) {
		target := callee
		if self != nil {
			target, _ = args[0].(starlark.HasAttrs).Attr(name)
			args = args[1:]
		}
		var kwargs []starlark.Tuple
		for i, name := range c.names {
			kwargs = append(kwargs, starlark.Tuple{starlark.String(name), args[len(c.args)+i]})
		}
		return inf.run1(target, args[:len(c.args):len(c.args)], kwargs)
	})
	if !ok {
		return out
	}
	if !r.some {
		// If sizes are unknown, only a layer's weights can show that none fits; if the number of dimensions is unknown, only linear's can.
		open := slices.ContainsFunc(p.shapes, func(s *shape) bool { return s.open })
		if len(p.open) == 0 || weights && !open || name == "nn.linear" && fn.layer != nil && p.shapes[0].sizes != "" {
			inf.misshapen(c.pos, r.err, p)
		}
		return out
	}
	return inf.known(c.node, r, out)
}

// inferred reports whether a builtin may run here: its result depends only on its arguments.
func inferred(name string) bool {
	return strings.HasPrefix(name, "tensor.") && name != "tensor.no_grad" && name != "tensor.multinomial" ||
		strings.HasPrefix(name, "fft.") || strings.HasPrefix(name, "nn.") && name != "nn.sequential" && name != "nn.module"
}

// weights records the sizes of a layer's parameters, and reports whether it has any.
func (inf *inference) weights(layer starlark.Value, p *plainCall) bool {
	x, ok := layer.(starlark.HasAttrs)
	if !ok || layer.Type() != "Module" {
		return false
	}
	get, err := x.Attr("parameters")
	if err != nil || get == nil {
		return false
	}
	list, err := inf.run1(get, nil, nil)
	params, ok := list.(*starlark.List)
	if err != nil || !ok {
		return false
	}
	for i := range params.Len() {
		if s := shapeOf(params.Index(i)); s != nil {
			p.note(s)
		}
	}
	return params.Len() > 0
}

// reshaped returns the result of reshaping a tensor of unknown size: it has the shape in the call.
func (inf *inference) reshaped(p *plainCall, out value) value {
	sizes := p.args[1:]
	if len(sizes) == 1 {
		switch list := sizes[0].(type) {
		case starlark.Tuple, *starlark.List:
			sizes = slices.Collect(starlark.Elements(list.(starlark.Iterable)))
		}
	}
	s := &shape{dtype: p.shapes[0].dtype}
	for _, v := range sizes {
		n, err := starlark.AsInt32(v)
		if err != nil || len(p.open) != 1 || p.open[0] != 0 {
			return out
		}
		if n < 0 {
			s.sizes += "?,"
		} else {
			s.sizes += strconv.Itoa(n) + ","
		}
	}
	if isTensor(out) {
		out.shape = s
	}
	return out
}

// known adds a result's shape and value.
func (inf *inference) known(node syntax.Node, r result, out value) value {
	switch v := r.value.(type) {
	case nil:
	case starlark.Int:
		out.lit, out.typ, out.refs = v, "int", nil
		return out
	case starlark.Callable:
		if v.Type() == "Module" {
			if off, err := v.(starlark.HasAttrs).Attr("eval"); err == nil {
				_, _ = inf.run1(off, nil, nil) // dropout does not affect shapes
			}
			out.layer = v
		}
		return out
	}
	switch o := out.only(); {
	case r.items != nil && o != nil && o.kind == container && o.typ == "tuple":
		held := inf.held(o).clone()
		for i, s := range r.items {
			if x, ok := held.fields[strconv.Itoa(i)]; ok {
				x.shape = s
				held.fields[strconv.Itoa(i)] = x
			}
		}
		inf.hold(o, held)
	case r.shape == nil:
	case len(out.refs) == 0 && out.typ == "": // of no known type
		out = of(inf.alloc(node, "result", instance, "Tensor", &contents{diff: out.diff}))
		out.shape = r.shape
	case isTensor(out) || o != nil && o.kind == instance && o.typ == "":
		out.shape = r.shape
	}
	return out
}

// misshapen reports an error of a builtin. The message shows ? in place of the sizes that were tried.
func (inf *inference) misshapen(pos syntax.Position, err error, p *plainCall) {
	text := err.Error()
	if inner := (*starlark.EvalError)(nil); errors.As(err, &inner) {
		text = inner.Msg
	}
	if inf.st.dead || !aboutShapes().MatchString(text) {
		return
	}
	for _, s := range p.shapes {
		text += fmt.Sprintf("; the input is %s", s)
	}
	inf.fault(pos, "%s", text)
}

// operate adds the shape of x op y.
func (inf *inference) operate(pos syntax.Position, op syntax.Token, x, y, out value) value {
	if inf.deaf > 0 || x.shape == nil && y.shape == nil || !isTensor(out) && len(out.refs) > 0 || comparisons[op] && (op == syntax.IN || op == syntax.NOT_IN) {
		return out
	}
	p, ok := inf.plain([]value{x, y}, nil)
	if !ok {
		return out
	}
	sum := op
	if comparisons[op] { // their shapes are those of a sum
		sum = syntax.PLUS
	}
	r, ok := inf.try(p, op, func(args []starlark.Value) (starlark.Value, error) {
		return guarded(func() (starlark.Value, error) { return starlark.Binary(sum, args[0], args[1]) })
	})
	switch {
	case !ok:
	case !r.some:
		if len(p.open) == 0 {
			inf.misshapen(pos, r.err, p)
		}
	case r.shape != nil:
		if comparisons[op] {
			r.shape = &shape{sizes: r.shape.sizes, open: r.shape.open, dtype: "bool"}
		}
		out.shape = r.shape
	}
	return out
}

// ofShape adds the value of an attribute of a tensor of known shape.
func (inf *inference) ofShape(e *syntax.DotExpr, x, out value) value {
	if x.shape == nil || !isTensor(x) {
		return out
	}
	dims := x.shape.dims()
	switch o := out.only(); e.Name.Name {
	case "shape":
		if o == nil || o.typ != "tuple" || x.shape.open {
			return out
		}
		held := inf.held(o).clone()
		held.whole = true
		for i, size := range dims {
			item := held.fields[strconv.Itoa(i)]
			if item.typ = "int"; size != "?" {
				n, _ := strconv.Atoi(size)
				item.lit = starlark.MakeInt(n)
			}
			held.fields[strconv.Itoa(i)] = item
		}
		inf.hold(o, held)
	case "ndim":
		if !x.shape.open {
			return value{typ: "int", lit: starlark.MakeInt(len(dims))}
		}
	case "T", "mT":
		s := *x.shape
		if n := len(dims); n > 1 && (n == 2 && !s.open || e.Name.Name == "mT") {
			dims[n-1], dims[n-2] = dims[n-2], dims[n-1]
			s.sizes = strings.Join(dims, ",") + ","
			out = of(inf.alloc(e, "result", instance, "Tensor", &contents{diff: inf.st.shallow(x)}))
			out.shape = &s
		}
	}
	return out
}

// reassembled records that a part of a model is replaced, so that what was known about its layers no longer holds.
func (inf *inference) reassembled(x value, field string) {
	if field == "grad" || field == "requires_grad" {
		return
	}
	for _, o := range x.refs {
		if o.kind == container || o.kind == instance && o.typ == "Tensor" {
			return
		}
	}
	inf.rebuilt = true
}
