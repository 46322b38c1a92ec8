package check

import (
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

var comparisons = map[syntax.Token]bool{
	syntax.EQL: true, syntax.NEQ: true, syntax.LT: true, syntax.LE: true, syntax.GT: true, syntax.GE: true,
	syntax.IN: true, syntax.NOT_IN: true,
}

// operation interprets x op y, also in an augmented assignment.
func (m *machine) operation(node syntax.Node, op syntax.Token, x, y value) value {
	start, _ := node.Span()
	return m.operate(start, op, x, y, m.carried(folded(op, x, y, m.combined(node, op, x, y)), x, y))
}

func (m *memory) combined(node syntax.Node, op syntax.Token, x, y value) value {
	if op == syntax.IN || op == syntax.NOT_IN {
		why := either(m.st.shallow(y), m.st.deep(x))
		for _, o := range y.refs {
			if o.typ == "list" || o.typ == "tuple" || o.typ == "set" {
				why = either(why, m.st.deep(y))
			}
		}
		return value{typ: "bool", diff: why}
	}
	why := m.st.deep(x, y)
	shaped := func(v value) value {
		for _, operand := range []value{x, y} {
			if !plainTypes[operand.typ] && (!isTensor(operand) || m.st.count(operand) != nil) {
				return v
			}
		}
		return m.shaped(v)
	}
	switch {
	case comparisons[op] && (isTensor(x) || isTensor(y)):
		return shaped(m.made(node, "Tensor", why))
	case comparisons[op] && plainTypes[x.typ] && plainTypes[y.typ]:
		return value{typ: "bool", diff: m.membership(op, y, why)}
	case op == syntax.PERCENT && x.typ == "string":
		return value{typ: "string", diff: why}
	case plainTypes[x.typ] && plainTypes[y.typ]:
		typ := "number"
		if x.typ == "string" || y.typ == "string" {
			typ = "string"
		}
		return value{typ: typ, diff: why}
	case isTensor(x) || isTensor(y):
		return shaped(m.made(node, "Tensor", why))
	}
	if a, b := x.only(), y.only(); a != nil && a.kind == container {
		c := &contents{diff: either(x.diff, m.held(a).diff), elem: m.held(a).every()}
		if b != nil && b.kind == container {
			c.diff = either(c.diff, either(y.diff, m.held(b).diff))
			c.elem = join(c.elem, m.held(b).every())
		} else {
			c.diff = either(c.diff, m.st.deep(y))
		}
		return of(m.alloc(node, "sum", container, a.typ, c))
	}
	return m.unknown(node, why)
}

// membership recognises comparisons of a group's rank that only ask whether this rank belongs to the group.
func (m *memory) membership(op syntax.Token, y value, why *reason) *reason {
	if why == nil || why.group == nil || y.diff != nil {
		return why
	}
	asks := y.lit == starlark.MakeInt(0) && (op == syntax.GE || op == syntax.LT) ||
		y.lit == starlark.MakeInt(-1) && (op == syntax.EQL || op == syntax.NEQ || op == syntax.GT || op == syntax.LE)
	if !asks {
		return why
	}
	r := *why
	r.id, r.member = 0, true
	return m.reason(r)
}

func isTensor(v value) bool {
	o := v.only()
	return o != nil && o.typ == "Tensor"
}

// areTensors reports whether a value is a tensor, whichever it may be.
func areTensors(v value) bool {
	return len(v.refs) > 0 && !slices.ContainsFunc(v.refs, func(o *object) bool { return o.typ != "Tensor" })
}

// at interprets x[i].
func (m *memory) at(x, i value, node syntax.Node) value {
	why := either(x.diff, m.st.deep(i))
	var out union
	for _, o := range x.refs {
		c := m.held(o)
		switch {
		case isTensor(x):
			return m.made(node, "Tensor", either(why, m.st.deep(x)))
		case o.kind != container:
			out.add(m.unknown(node, c.diff))
		case i.lit != nil:
			if v, ok := c.fields[i.lit.String()]; ok {
				out.add(v)
			} else if i.lit.String()[0] == '-' {
				out.add(c.every())
			} else {
				out.add(c.elem)
			}
		default:
			out.add(c.every())
		}
	}
	return differing(out.value, why)
}

func (m *machine) slice(e *syntax.SliceExpr) value {
	x := m.expr(e.X)
	var why *reason
	for _, bound := range []syntax.Expr{e.Lo, e.Hi, e.Step} {
		if bound != nil {
			why = either(why, m.st.deep(m.expr(bound)))
		}
	}
	o := x.only()
	switch {
	case plainTypes[x.typ]:
		return value{typ: x.typ, diff: either(why, x.diff)}
	case isTensor(x):
		out := m.made(e, "Tensor", either(why, m.st.deep(x)))
		if why == nil && m.st.count(x) == nil {
			out = m.shaped(out)
		}
		return m.carried(out, x)
	case o != nil && o.kind == container:
		c := m.held(o)
		return of(m.alloc(e, "slice", container, o.typ, &contents{
			diff: either(why, either(x.diff, c.diff)), elem: differing(c.every(), why)}))
	}
	return m.carried(m.unknown(e, either(why, m.st.deep(x))), x)
}

// element returns what a loop over v yields in each iteration.
func (m *memory) element(v value, node syntax.Node) value {
	var out union
	for _, o := range v.refs {
		c := m.held(o)
		switch {
		case o.typ == "dict": // its keys
			out.add(value{diff: c.diff})
		case o.kind == container || o.typ == "Loader":
			out.add(c.every())
		case o.typ == "Tensor":
			out.add(m.made(node, "Tensor", c.diff))
		default:
			out.add(m.unknown(node, c.diff))
		}
	}
	return differing(out.value, v.diff)
}
