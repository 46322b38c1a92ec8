package check

import (
	"slices"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"

	"drun/starlib"
)

// calls interprets calls of the recipe's functions, of methods and of values that may be several things.
type calls struct {
	*machine
	stack   []callSite // that lead here
	running []*resolve.Function
	seen    map[*resolve.Function]bool // functions that were interpreted
}

type call struct {
	node   syntax.Node
	pos    syntax.Position
	text   string                        // the callee as written
	exprs  []syntax.Expr                 // the positional arguments as written, to clean those that are changed in place
	byName map[string]*syntax.BinaryExpr // the named arguments: name = value
	args   []value
	names  []string
	named  map[string]value
	spread bool  // *args or **kwargs are given too,
	rest   value // which hold this
}

func (c *call) all() []value {
	out := append([]value{c.rest}, c.args...)
	for _, name := range c.names {
		out = append(out, c.named[name])
	}
	return out
}

func (c *call) arg(params []string, name string) (value, bool) {
	if v, ok := c.named[name]; ok {
		return v, true
	}
	if i := slices.Index(params, name); 0 <= i && i < len(c.args) {
		return c.args[i], true
	}
	return same, false
}

// spell gives the arguments the names that a declaration has, where the recipe wrote other spellings.
func (c *call) spell(d *starlib.Def) {
	for i, name := range c.names {
		if own := d.Spelled(name); own != name {
			if _, twice := c.named[own]; twice {
				continue
			}
			c.names[i], c.named[own], c.byName[own] = own, c.named[name], c.byName[name]
			delete(c.named, name)
			delete(c.byName, name)
		}
	}
}

func (c *call) first() value {
	if len(c.args) == 0 {
		return same
	}
	return c.args[0]
}

func (cs *calls) callExpr(e *syntax.CallExpr) value {
	fn := cs.expr(e.Fn)
	c := &call{node: e, pos: syntax.Start(e), text: nameOf(e.Fn), named: map[string]value{}, byName: map[string]*syntax.BinaryExpr{}}
	for _, arg := range e.Args {
		if named, ok := arg.(*syntax.BinaryExpr); ok && named.Op == syntax.EQ {
			name := named.X.(*syntax.Ident).Name
			c.names = append(c.names, name)
			c.named[name], c.byName[name] = cs.expr(named.Y), named
			continue
		}
		if star, ok := arg.(*syntax.UnaryExpr); ok && (star.Op == syntax.STAR || star.Op == syntax.STARSTAR) {
			v := cs.expr(star.X)
			c.spread = true
			c.rest = join(c.rest, value{diff: cs.st.deep(v), refs: v.refs})
			continue
		}
		c.args = append(c.args, cs.expr(arg))
		c.exprs = append(c.exprs, arg)
	}
	return cs.call(fn, c)
}

// nameOf returns how messages name a callee.
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

func (cs *calls) call(fn value, c *call) value {
	if len(fn.refs) == 0 {
		return cs.carried(cs.unknown(c.node, either(fn.diff, cs.st.deep(c.all()...))), append(c.all(), fn)...)
	}
	if len(fn.refs) == 1 {
		out := cs.infer(fn, c, differing(cs.callObject(fn.refs[0], c, fn.only() != nil), fn.diff))
		if fn.graph != nil && fn.graph.calls != "" { // a module in ddp
			out = cs.carried(out, value{graph: fn.graph})
		}
		return out
	}
	// It may be one of several functions: all ranks call the same one, or each its own.
	before := cs.st
	var after *state
	var out value
	var first []*event
	var ways [][]*event
	for i, o := range fn.refs {
		cs.st = before
		cs.st = cs.branch()
		var v value
		events, written := cs.watch(func() { v = cs.callObject(o, c, false) })
		if fn.diff != nil {
			cs.taint(written, before, fn.diff)
		}
		after = eitherState(after, cs.st)
		ways = append(ways, events)
		if i == 0 {
			out, first = v, events
			continue
		}
		out = join(out, v)
		if fn.diff != nil {
			a, b := differ(first, events)
			f := cs.fork("called by what differs between ranks, ", c.pos, c.text, fn.diff)
			cs.report(a, f)
			cs.report(b, f)
		}
	}
	cs.st = after
	cs.emit(choice(ways...))
	return differing(out, fn.diff)
}

func (cs *calls) callObject(o *object, c *call, certain bool) value {
	switch o.kind {
	case function:
		return cs.callFunction(o, c, certain)
	case builtin:
		return cs.builtins.callBuiltin(o, c, certain)
	case module:
		if o.module.Call != nil {
			return cs.builtins.callBuiltin(&object{kind: builtin, name: o.name, def: o.module.Call}, c, certain)
		}
	case native:
		return cs.builtins.callNative(o, c, certain)
	case method:
		return cs.callMethod(o, c, certain)
	case instance:
		return cs.callInstance(o, c)
	}
	return cs.unknown(c.node, cs.st.deep(append(c.all(), of(o))...))
}
