package check

import (
	"slices"

	"go.starlark.net/syntax"
)

// repeat interprets a loop. head begins an iteration and returns why the number of iterations may differ between ranks;
// endless loops end only at a break.
func (m *machine) repeat(pos syntax.Position, over syntax.Expr, endless bool, head func() *reason, body []syntax.Stmt) {
	l := &loop{}
	before := m.st
	entry := m.branch()
	pending, exits := len(m.act.pending), len(m.act.exits)
	m.act.loops = append(m.act.loops, l)
	var events []*event
	var written map[any]bool
	var count *reason
	for range maxRound {
		m.act.pending, m.act.exits = m.act.pending[:pending], m.act.exits[:exits]
		l.breaks, l.continues = nil, nil
		m.st = entry
		m.st = m.branch()
		events, written = m.watchDoubtful(func() {
			count = head()
			m.block(body)
		})
		if back := eitherState(m.st, l.continues); back == nil || !entry.merge(back) {
			break
		}
	}
	m.act.loops = m.act.loops[:len(m.act.loops)-1]
	m.mayHaveEnded(m.act.exits[exits:])
	m.st = l.breaks
	if !endless {
		m.st = eitherState(entry, l.breaks)
	}
	m.emit(block("loop", events))
	if count != nil {
		m.report(events, m.fork("called in a loop over ", pos, m.frame.text(over), count))
		m.taint(written, before, count)
	}
	m.leaveLoop(l, pending, exits, events, written, before)
}

// leaveLoop ends the departures that concern only this loop. After some ranks leave it, the others continue alone
// with whole iterations.
func (m *machine) leaveLoop(l *loop, pending, exits int, events []*event, written map[any]bool, before *state) {
	within := func(e exit) bool { return e.loop == l }
	kept := m.act.pending[:pending]
	for _, d := range m.act.pending[pending:] {
		if slices.ContainsFunc(d.exits, func(e exit) bool { return !within(e) || e.verb == "break" }) {
			m.report(events, d.left())
			m.taint(written, before, d.why)
		}
		if d.exits = slices.DeleteFunc(d.exits, within); len(d.exits) > 0 {
			kept = append(kept, d)
		}
	}
	m.act.pending = kept
	m.act.exits = append(m.act.exits[:exits], slices.DeleteFunc(m.act.exits[exits:], within)...)
}

// comprehension interprets the clauses from i on, then the body.
func (m *machine) comprehension(e *syntax.Comprehension, i int, body func()) (count *reason) {
	if i == len(e.Clauses) {
		body()
		return nil
	}
	before := m.branch()
	rest := func() { count = either(count, m.comprehension(e, i+1, body)) }
	switch c := e.Clauses[i].(type) {
	case *syntax.ForClause:
		over := m.expr(c.X)
		why := m.st.count(over)
		events, written := m.watchDoubtful(func() {
			m.bind(c.Vars, m.element(over, c))
			rest()
		})
		m.emit(block("loop", events))
		if why != nil {
			m.report(events, m.fork("called in a loop over ", c.For, m.frame.text(c.X), why))
			m.taint(written, before, why)
		}
		count = either(count, why)
	case *syntax.IfClause:
		why := m.st.shallow(m.expr(c.Cond))
		events, written := m.watchDoubtful(rest)
		m.emit(choice(events, nil))
		if why != nil {
			m.report(events, m.where(c.Cond, true, c.If, why))
			m.taint(written, before, why)
		}
		count = either(count, why)
	}
	return count
}
