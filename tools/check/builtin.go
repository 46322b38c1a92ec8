package check

import (
	"strings"

	"drun/starlib"

	"go.starlark.net/syntax"
)

// fits checks the shape of a call against a declaration.
func (m *machine) fits(name string, d *starlib.Def, c *call) {
	if err := d.Fits(len(c.args), c.names, c.spread); err != nil {
		m.fault(c.pos, "%s: %v", name, err)
	}
}

// callBuiltin calls a builtin of a module.
func (m *machine) callBuiltin(o *object, c *call, certain bool) value {
	if certain {
		m.fits(o.name, o.def, c)
	}
	if m.loading && !o.def.TopLevel {
		m.fault(c.pos, "%s cannot be called at top level: the top level is for constants, functions, run.params and load; call it in main()", o.name)
	}
	if strings.HasPrefix(o.name, "dist.") {
		clear(m.saved) // rank 0 may have arrived here by then
	}
	if v, ok := m.special(o.name, c); ok {
		return v
	}
	params := o.def.Params()
	group := m.groupOf(params, c)
	t, known := traits[o.name]
	if t.collective || m.given(params, c, t.with) {
		m.collective(o.name, c.pos, group)
	}
	if t.inPlace {
		m.clean(c)
	}
	if !known {
		m.callbacks(c)
	}
	out := m.carried(m.made(c.node, o.def.Returns(), m.resultDiffers(o.name, t, known, c, group)), c.all()...)
	if t.back {
		out = m.ofCollective(o.name, out, c, group)
	}
	if o.name == "nn.parameter" {
		out.graph = merged(out.graph, learned)
	}
	return out
}

// resultDiffers says why a builtin's result differs between ranks, nil if it does not.
func (m *machine) resultDiffers(name string, t trait, known bool, c *call, group *object) *reason {
	switch {
	case t.own:
		what := t.why
		if what == "" {
			if what = m.text(c.node); strings.Contains(what, "...") || t.origin == byData {
				what = name + "()"
			}
		}
		return m.reason(reason{what: what, pos: c.pos, from: t.origin, group: group})
	case t.equal, t.collective:
		return nil
	}
	return m.st.deep(c.all()...)
}

// groupOf is the group of ranks that a call names; nil: the world, or unknown.
func (m *machine) groupOf(params []string, c *call) *object {
	v, ok := c.arg(params, "group")
	if !ok || v.lit == "None" {
		return nil
	}
	if len(v.refs) > 0 {
		return v.refs[0]
	}
	// The argument is unknown: a group that no branch can depend on.
	return m.alloc(c.node, "group", instance, "Group", &contents{})
}

func (m *machine) given(params []string, c *call, names []string) bool {
	for _, name := range names {
		if v, ok := c.arg(params, name); ok && v.lit != "None" {
			return true
		}
	}
	return false
}

// callbacks calls the functions among the arguments, as the builtin may.
func (m *machine) callbacks(c *call) {
	m.deaf++ // what a builtin passes to them, and whether an error is intended, is unknown
	defer func() { m.deaf-- }()
	for _, v := range c.all() {
		for _, o := range v.refs {
			if o.kind == function {
				m.callFunction(o, &call{node: c.node, pos: c.pos, spread: true, rest: value{diff: m.st.deep(c.args...)}}, false)
			}
		}
	}
}

// clean records that the tensors of the first argument are now equal on all ranks.
func (m *machine) clean(c *call) {
	if len(c.args) == 0 {
		return
	}
	seen := map[*object]bool{}
	var objects func(v value)
	objects = func(v value) {
		for _, o := range v.refs {
			if seen[o] || (o.kind != container && o.kind != instance) {
				continue
			}
			seen[o] = true
			held := m.held(o)
			for _, key := range sortedKeys(held.fields) {
				objects(held.fields[key])
			}
			objects(held.elem)
			now := held.clone()
			if o.kind == instance {
				now.diff = nil
			} else {
				for key, v := range now.fields {
					now.fields[key] = cleaned(v)
				}
				now.elem = cleaned(now.elem)
			}
			m.hold(o, now)
		}
	}
	objects(c.args[0])
	// A variable of unknown type may be a tensor; numbers do not change.
	var paths func(e syntax.Expr)
	paths = func(e syntax.Expr) {
		switch e := e.(type) {
		case *syntax.Ident:
			if v := m.lookup(e); v.diff != nil && !plainTypes[v.typ] {
				m.assign(e, cleaned(v))
			}
		case *syntax.ParenExpr:
			paths(e.X)
		case *syntax.ListExpr:
			for _, x := range e.List {
				paths(x)
			}
		case *syntax.TupleExpr:
			for _, x := range e.List {
				paths(x)
			}
		}
	}
	paths(c.exprs[0])
}

func cleaned(v value) value {
	if !plainTypes[v.typ] {
		v.diff = nil
	}
	return v
}
