package check

import (
	"fmt"
	"strconv"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// A call is a call's arguments.
type call struct {
	node   syntax.Node
	pos    syntax.Position
	text   string        // the callee as written
	exprs  []syntax.Expr // of the positional arguments, to clean what is changed in place
	args   []value
	names  []string
	named  map[string]value
	spread bool  // *args or **kwargs are given too,
	rest   value // which hold this
}

// all values that are given.
func (c *call) all() []value {
	out := append([]value{c.rest}, c.args...)
	for _, name := range c.names {
		out = append(out, c.named[name])
	}
	return out
}

// arg is a parameter's argument.
func (c *call) arg(params []string, name string) (value, bool) {
	if v, ok := c.named[name]; ok {
		return v, true
	}
	for i, p := range params {
		if p == name && i < len(c.args) {
			return c.args[i], true
		}
	}
	return same, false
}

func (m *machine) callExpr(e *syntax.CallExpr) value {
	fn := m.expr(e.Fn)
	c := &call{node: e, pos: syntax.Start(e), text: nameOf(e.Fn), named: map[string]value{}}
	for _, arg := range e.Args {
		if named, ok := arg.(*syntax.BinaryExpr); ok && named.Op == syntax.EQ {
			name := named.X.(*syntax.Ident).Name
			c.names = append(c.names, name)
			c.named[name] = m.expr(named.Y)
			continue
		}
		if star, ok := arg.(*syntax.UnaryExpr); ok && (star.Op == syntax.STAR || star.Op == syntax.STARSTAR) {
			v := m.expr(star.X)
			c.spread = true
			c.rest = join(c.rest, value{diff: m.st.deep(v), refs: v.refs})
			continue
		}
		c.args = append(c.args, m.expr(arg))
		c.exprs = append(c.exprs, arg)
	}
	return m.call(fn, c)
}

// nameOf is how messages name a callee.
func nameOf(fn syntax.Expr) string {
	switch fn := fn.(type) {
	case *syntax.Ident:
		return fn.Name
	case *syntax.DotExpr:
		if x, ok := fn.X.(*syntax.Ident); ok {
			return x.Name + "." + fn.Name.Name
		}
		return fn.Name.Name
	}
	return "the function"
}

// call calls whatever fn may be.
func (m *machine) call(fn value, c *call) value {
	if len(fn.refs) == 0 {
		return m.unknown(c.node, either(fn.diff, m.st.deep(c.all()...)))
	}
	if len(fn.refs) == 1 {
		return differing(m.callObject(fn.refs[0], c, fn.only() != nil), fn.diff)
	}
	// Several functions: all ranks call the same one, or each its own.
	before := m.st
	var after *state
	var out value
	var first []*event
	var ways [][]*event
	for i, o := range fn.refs {
		m.st = before
		m.st = m.branch()
		var v value
		events, written := m.watch(func() { v = m.callObject(o, c, false) })
		if fn.diff != nil {
			m.taint(written, before, fn.diff)
		}
		after = eitherState(after, m.st)
		ways = append(ways, events)
		if i == 0 {
			out, first = v, events
			continue
		}
		out = join(out, v)
		if fn.diff != nil {
			a, b := differ(first, events)
			f := m.fork("called by what differs between ranks, ", c.pos, c.text, fn.diff)
			m.report(a, f)
			m.report(b, f)
		}
	}
	m.st = after
	m.emit(choice(ways...))
	return differing(out, fn.diff)
}

func (m *machine) callObject(o *object, c *call, certain bool) value {
	switch o.kind {
	case function:
		return m.callFunction(o, c, certain)
	case builtin:
		return m.callBuiltin(o, c, certain)
	case module:
		if o.module.Call != nil {
			return m.callBuiltin(&object{kind: builtin, name: o.name, def: o.module.Call}, c, certain)
		}
	case native:
		return m.callNative(o, c, certain)
	case method:
		return m.callMethod(o, c, certain)
	case instance:
		return m.callInstance(o, c)
	}
	return m.unknown(c.node, m.st.deep(append(c.all(), of(o))...))
}

// closure makes the value of a def or lambda.
func (m *machine) closure(node syntax.Node, fn *resolve.Function) value {
	c := &contents{fields: map[string]value{}}
	for i, p := range fn.Params {
		if p, ok := p.(*syntax.BinaryExpr); ok {
			c.fields[strconv.Itoa(i)] = m.expr(p.Y)
		}
	}
	o := m.alloc(node, "function", function, "function", c)
	o.fn, o.frame, o.name, o.pos = fn, m.frame, fn.Name, fn.Pos
	m.frame.file.functions[fn] = o
	return of(o)
}

// callFunction interprets a function of the recipe with the arguments of a call.
func (m *machine) callFunction(o *object, c *call, certain bool) value {
	if certain {
		if msg := misfit(o.fn, c); msg != "" {
			m.fault(c.pos, "%s: %s", c.text, msg)
		}
	}
	for _, fn := range m.running {
		if fn == o.fn || len(m.running) > maxCalls {
			return m.unknown(c.node, m.st.deep(c.all()...))
		}
	}
	m.stack = append(m.stack, place{c.pos, m.functionName()})
	result := m.enter(o, c)
	m.stack = m.stack[:len(m.stack)-1]
	return result
}

func (m *machine) enter(o *object, c *call) value {
	m.seen[o.fn] = true
	frame, act, before := m.frame, m.act, m.st
	m.running = append(m.running, o.fn)
	m.frame, m.act = m.activation(o, c.node), &activation{}
	m.bindParams(o, c)
	m.block(o.fn.Body)
	if m.st != nil {
		m.act.results = append(m.act.results, none)
	}
	out := same
	for i, v := range m.act.results {
		if i == 0 {
			out = v
		} else {
			out = join(out, v)
		}
	}
	if len(m.act.results) > 1 && (out.lit == "" || len(out.refs) > 0) {
		out = differing(out, m.act.differs)
	}
	m.st = eitherState(m.st, m.act.after)
	if m.st == nil { // it ends the run, or never returns
		m.st = before
	}
	m.frame, m.act = frame, act
	m.running = m.running[:len(m.running)-1]
	return out
}

// bindParams gives the parameters their arguments.
func (m *machine) bindParams(o *object, c *call) {
	defaults := m.held(o).fields
	next, byName := 0, false
	used := map[string]bool{}
	for i, p := range o.fn.Params {
		switch p := p.(type) {
		case *syntax.Ident, *syntax.BinaryExpr:
			id, _ := p.(*syntax.Ident)
			v := differing(same, m.st.deep(c.rest))
			if b, ok := p.(*syntax.BinaryExpr); ok {
				id, _ = b.X.(*syntax.Ident)
				v = differing(defaults[strconv.Itoa(i)], v.diff)
			}
			if id == nil {
				continue
			}
			if given, ok := c.named[id.Name]; ok {
				v = given
			} else if !byName && next < len(c.args) {
				v = c.args[next]
			}
			next++
			used[id.Name] = true
			m.assign(id, v)
		case *syntax.UnaryExpr:
			id, _ := p.X.(*syntax.Ident)
			byName = true
			if id == nil {
				continue
			}
			held := &contents{elem: c.rest, diff: c.rest.diff, fields: map[string]value{}}
			if p.Op == syntax.STAR {
				for j := next; j < len(c.args); j++ {
					held.fields[strconv.Itoa(j-next)] = c.args[j]
				}
				m.assign(id, of(m.alloc(p, "args", container, "tuple", held)))
				continue
			}
			for _, name := range c.names {
				if !used[name] {
					held.fields[strconv.Quote(name)] = c.named[name]
				}
			}
			m.assign(id, of(m.alloc(p, "kwargs", container, "dict", held)))
		}
	}
}

// misfit says how a call does not fit a function of the recipe, "" if it does.
func misfit(fn *resolve.Function, c *call) string {
	var params, missing []string
	byName, positional := false, 0
	for _, p := range fn.Params {
		name, required := "", false
		switch p := p.(type) {
		case *syntax.Ident:
			name, required = p.Name, true
		case *syntax.BinaryExpr:
			if id, ok := p.X.(*syntax.Ident); ok {
				name = id.Name
			}
		default:
			byName = true
			continue
		}
		_, named := c.named[name]
		byPosition := !byName && positional < len(c.args)
		if named && byPosition {
			return fmt.Sprintf("argument %s is given twice", name)
		}
		if required && !named && !byPosition && !c.spread {
			missing = append(missing, name)
		}
		params = append(params, name)
		if !byName {
			positional++
		}
	}
	if len(c.args) > positional && !fn.HasVarargs {
		return fmt.Sprintf("got %d arguments, want at most %d: %s(%s)", len(c.args), positional, fn.Name, strings.Join(params, ", "))
	}
	for _, name := range c.names {
		if !fn.HasKwargs && !has(params, name) {
			return fmt.Sprintf("unexpected argument %s%s: %s(%s)", name, instead(name, "", params), fn.Name, strings.Join(params, ", "))
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("missing argument %s: %s(%s)", strings.Join(missing, ", "), fn.Name, strings.Join(params, ", "))
	}
	return ""
}

func has(list []string, name string) bool {
	for _, x := range list {
		if x == name {
			return true
		}
	}
	return false
}
