package check

import (
	"strconv"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

func (m *machine) expr(e syntax.Expr) value {
	m.step(1)
	if m.depth++; m.depth > maxDepth {
		panic(exhausted{})
	}
	defer func() { m.depth-- }()
	switch e := e.(type) {
	case *syntax.Ident:
		return m.names.lookup(e)
	case *syntax.Literal:
		return literal(e)
	case *syntax.ParenExpr:
		return m.expr(e.X)
	case *syntax.TupleExpr:
		return m.sequence(e, "tuple", e.List)
	case *syntax.ListExpr:
		return m.sequence(e, "list", e.List)
	case *syntax.DictExpr:
		return m.dict(e)
	case *syntax.UnaryExpr:
		return m.unary(e)
	case *syntax.BinaryExpr:
		if e.Op == syntax.AND || e.Op == syntax.OR {
			return m.shortCircuit(e)
		}
		x := m.expr(e.X)
		return m.operation(e, e.Op, x, m.expr(e.Y))
	case *syntax.CondExpr:
		cond := m.expr(e.Cond)
		why := m.st.shallow(cond)
		var a, b value
		m.either(e.Cond, e.If, cond, why, func() { a = m.expr(e.True) }, func() { b = m.expr(e.False) })
		if a.lit != nil && a.equal(b) {
			return a
		}
		return differing(join(a, b), why)
	case *syntax.Comprehension:
		return m.comprehended(e)
	case *syntax.LambdaExpr:
		if fn, ok := e.Function.(*resolve.Function); ok {
			return m.calls.closure(e, fn)
		}
	case *syntax.DotExpr:
		return m.names.attribute(e, m.expr(e.X))
	case *syntax.IndexExpr:
		x := m.expr(e.X)
		return m.carried(m.at(x, m.expr(e.Y), e), value{graph: x.graph})
	case *syntax.SliceExpr:
		return m.slice(e)
	case *syntax.CallExpr:
		return m.calls.callExpr(e)
	}
	return same
}

func literal(e *syntax.Literal) value {
	switch x := e.Value.(type) {
	case string:
		if e.Token == syntax.BYTES {
			return value{lit: starlark.Bytes(x), typ: "bytes"}
		}
		return value{lit: starlark.String(x), typ: "string"}
	case float64:
		return value{lit: starlark.Float(x), typ: "float"}
	case int64:
		return value{lit: starlark.MakeInt64(x), typ: "int"}
	}
	return value{typ: "int"} // of more than 64 bits
}

func (m *machine) sequence(node syntax.Node, typ string, list []syntax.Expr) value {
	c := &contents{fields: make(map[string]value, len(list)), whole: typ == "tuple"}
	for i, x := range list {
		c.fields[strconv.Itoa(i)] = m.expr(x)
	}
	return of(m.alloc(node, typ, container, typ, c))
}

func (m *machine) dict(e *syntax.DictExpr) value {
	c := &contents{fields: map[string]value{}}
	for _, x := range e.List {
		entry, ok := x.(*syntax.DictEntry)
		if !ok {
			continue
		}
		key := m.expr(entry.Key)
		v := differing(m.expr(entry.Value), key.diff)
		if key.lit != nil {
			c.fields[key.lit.String()] = v
		} else {
			c.elem = join(c.elem, v)
			c.diff = either(c.diff, key.diff)
		}
	}
	return of(m.alloc(e, "dict", container, "dict", c))
}

func (m *machine) comprehended(e *syntax.Comprehension) value {
	c := &contents{}
	c.diff = m.comprehension(e, 0, func() {
		if entry, ok := e.Body.(*syntax.DictEntry); ok {
			why := m.expr(entry.Key).diff
			c.elem = differing(m.expr(entry.Value), why)
			c.diff = either(c.diff, why)
			return
		}
		c.elem = m.expr(e.Body)
	})
	typ := "list"
	if e.Curly {
		typ = "dict"
	}
	return of(m.alloc(e, typ, container, typ, c))
}

func (m *machine) unary(e *syntax.UnaryExpr) value {
	if e.X == nil {
		return same
	}
	x := m.expr(e.X)
	switch {
	case e.Op == syntax.NOT:
		out := value{typ: "bool", diff: m.st.shallow(x)}
		if yes, known := truth(x); known {
			out.lit = starlark.Bool(!yes)
		}
		return out
	case e.Op == syntax.MINUS && x.typ == "int":
		return folded(syntax.MINUS, value{typ: "int", lit: starlark.MakeInt(0)}, x, value{typ: "int", diff: x.diff})
	case plainTypes[x.typ]:
		return value{typ: x.typ, diff: x.diff}
	case isTensor(x):
		return m.carried(m.made(e, "Tensor", m.st.deep(x)), x)
	}
	return m.carried(m.unknown(e, m.st.deep(x)), x)
}

func (m *machine) shortCircuit(e *syntax.BinaryExpr) value {
	x := m.expr(e.X)
	why := m.st.shallow(x)
	var y value
	right, skip := func() { y = m.expr(e.Y) }, func() {}
	if e.Op == syntax.AND {
		m.either(e.X, e.OpPos, x, why, right, skip)
	} else {
		m.either(e.X, e.OpPos, x, why, skip, right)
	}
	if yes, known := truth(x); known && yes == (e.Op == syntax.AND) {
		return differing(y, why)
	} else if known {
		return differing(x, why)
	}
	return differing(join(x, y), why)
}
