package check

import (
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// block interprets statements until the rest is unreachable.
func (m *machine) block(stmts []syntax.Stmt) {
	m.depth++
	defer func() { m.depth-- }()
	if m.depth > maxDepth {
		panic(exhausted{})
	}
	for i, s := range stmts {
		if m.st == nil {
			return
		}
		n := len(m.act.pending)
		m.stmt(s)
		if len(m.act.pending) > n {
			m.afterwards(m.act.pending[n:], stmts[i+1:])
			return
		}
	}
}

func (m *machine) stmt(s syntax.Stmt) {
	m.step(1)
	switch s := s.(type) {
	case *syntax.AssignStmt:
		m.assignment(s)
	case *syntax.BranchStmt:
		m.jump(s)
	case *syntax.DefStmt:
		if fn, ok := s.Function.(*resolve.Function); ok {
			m.assign(s.Name, m.calls.closure(s, fn))
		}
	case *syntax.ExprStmt:
		m.expr(s.X)
		if isFail(s.X) {
			m.exit("fail", syntax.Start(s), nil)
		}
	case *syntax.ForStmt:
		over := m.expr(s.X)
		why := m.st.count(over)
		m.findIdle(s)
		m.repeat(s.For, s.X, false, func() *reason {
			m.bind(s.Vars, m.element(over, s))
			return why
		}, s.Body)
	case *syntax.WhileStmt:
		id, ok := s.Cond.(*syntax.Ident)
		endless := ok && id.Name == "True"
		m.repeat(s.While, s.Cond, endless, func() *reason { return m.st.shallow(m.expr(s.Cond)) }, s.Body)
	case *syntax.IfStmt:
		cond := m.expr(s.Cond)
		why := m.st.shallow(cond)
		m.either(s.Cond, s.If, cond, why, func() { m.block(s.True) }, func() { m.block(s.False) })
	case *syntax.LoadStmt:
		m.load(s)
	case *syntax.ReturnStmt:
		result := none
		if s.Result != nil {
			result = m.expr(s.Result)
		}
		m.act.results = append(m.act.results, result)
		m.act.after = eitherState(m.act.after, m.st)
		m.exit("return", s.Return, nil)
	}
}

// exit ends the interpretation of this path.
func (m *machine) exit(verb string, pos syntax.Position, l *loop) {
	m.act.exits = append(m.act.exits, exit{verb, pos, l})
	m.st = nil
}

func (m *machine) jump(s *syntax.BranchStmt) {
	if s.Token == syntax.PASS || len(m.act.loops) == 0 {
		return
	}
	l := m.act.loops[len(m.act.loops)-1]
	if s.Token == syntax.BREAK {
		l.breaks = eitherState(l.breaks, m.st)
		m.exit("break", s.TokenPos, l)
	} else {
		l.continues = eitherState(l.continues, m.st)
		m.exit("continue", s.TokenPos, l)
	}
}

func (m *machine) assignment(s *syntax.AssignStmt) {
	v := m.expr(s.RHS)
	if s.Op == syntax.EQ {
		v.param = false
		m.bind(s.LHS, v)
		return
	}
	old := m.expr(s.LHS)
	op := s.Op - syntax.PLUS_EQ + syntax.PLUS
	if id, ok := s.LHS.(*syntax.Ident); ok && (old.param || m.idle[s] && areTensors(old)) {
		inPlace := map[syntax.Token]string{syntax.PLUS: "add_", syntax.MINUS: "sub_", syntax.STAR: "mul_", syntax.SLASH: "div_"}[op]
		advice := ""
		if inPlace != "" {
			advice = fmt.Sprintf(": %s.%s(%s) changes it in place", id.Name, inPlace, m.frame.text(s.RHS))
		}
		m.warn(id.NamePos, "%s %s … only rebinds the name %s, the %s stays as it is%s", id.Name, s.Op, id.Name, map[bool]string{true: "parameter", false: "tensor"}[old.param], advice)
	}
	if o := old.only(); o != nil && o.typ == "list" && op == syntax.PLUS { // extends in place
		m.change(old, func(c *contents, _ bool) { m.extend(c, v) })
		return
	}
	m.bind(s.LHS, m.operation(s, op, old, v))
}

// findIdle notes the statements of a loop such as p -= …, where p is the loop's variable, which its rest does not mention.
func (m *machine) findIdle(s *syntax.ForStmt) {
	mentioned := map[string]bool{}
	note := func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok {
			mentioned[id.Name] = true
		}
		return true
	}
	syntax.Walk(s.Vars, note)
	vars := maps.Clone(mentioned)
	clear(mentioned)
	for _, stmt := range slices.Backward(s.Body) {
		if a, ok := stmt.(*syntax.AssignStmt); ok && a.Op != syntax.EQ {
			if id, ok := a.LHS.(*syntax.Ident); ok && vars[id.Name] && !mentioned[id.Name] {
				m.idle[a] = true
			}
		}
		syntax.Walk(stmt, note)
	}
}

func (m *machine) bind(target syntax.Expr, v value) {
	m.step(1)
	switch t := target.(type) {
	case *syntax.Ident:
		m.assign(t, v)
	case *syntax.ParenExpr:
		m.bind(t.X, v)
	case *syntax.TupleExpr:
		m.unpack(t.List, v)
	case *syntax.ListExpr:
		m.unpack(t.List, v)
	case *syntax.IndexExpr:
		x, i := m.expr(t.X), m.expr(t.Y)
		m.reassembled(x, "")
		why := i.diff
		m.change(x, func(c *contents, certain bool) {
			v := differing(v, why)
			if i.lit != nil && !isTensor(x) {
				set(c, i.lit.String(), v, certain)
				return
			}
			c.elem = join(c.elem, v)
			c.diff = either(c.diff, why)
			if isTensor(x) {
				c.diff = either(c.diff, m.st.deep(v))
			}
		})
	case *syntax.DotExpr:
		x := m.expr(t.X)
		m.reassembled(x, t.Name.Name)
		m.change(x, func(c *contents, certain bool) { set(c, t.Name.Name, v, certain) })
	}
}

func (m *machine) unpack(targets []syntax.Expr, v value) {
	for i, t := range targets {
		m.bind(t, m.at(v, value{lit: starlark.MakeInt(i), typ: "int"}, t))
	}
}

// load binds the names of another file, which is interpreted first.
func (m *machine) load(s *syntax.LoadStmt) {
	file := m.frame.file.loads[s.Module.TokenPos]
	if file == nil {
		return
	}
	m.topLevel(file)
	for i, from := range s.From {
		v, ok := m.global(file, from.Name)
		if !ok && file.sound {
			m.fault(from.NamePos, "%s has no global %s%s", s.ModuleName(), from.Name, instead("", from.Name, "", file.globals()))
		}
		if i < len(s.To) {
			m.assign(s.To[i], v)
		}
	}
}
