package check

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/syntax"
)

// A fork is a place where ranks take different branches.
type fork struct {
	how   string // completes "dist.barrier is …"
	why   *reason
	pos   syntax.Position
	cond  string
	depth int // the number of calls that lead to it
}

func (m *machine) fork(how string, at syntax.Position, cond string, why *reason) fork {
	return fork{how, why, at, cond, len(m.calls.stack)}
}

// where returns the fork for the branch taken if cond is met, or if it is not.
func (m *machine) where(cond syntax.Expr, met bool, at syntax.Position, why *reason) fork {
	text := m.frame.text(cond)
	if !met {
		if rest, negated := strings.CutPrefix(text, "not "); negated && !strings.ContainsAny(rest, " ") {
			text = rest
		} else if strings.Contains(text, " ") {
			text = "not (" + text + ")"
		} else {
			text = "not " + text
		}
	}
	return m.fork("called only where ", at, text, why)
}

// A departure is a place where some ranks leave a loop or function early. Only the other ranks call what follows.
type departure struct {
	why   *reason
	exits []exit
	cond  string
	pos   syntax.Position // of the condition
	depth int

	// While the rest of the block is unknown: what the leaving ranks call, what the others call up to that point,
	// and the branches in which they do.
	open    bool
	leaving []*event
	staying []*event
	leaves  fork
}

// left returns the fork at which ranks left.
func (d *departure) left() fork {
	e := d.exits[0]
	how := fmt.Sprintf("not reached by ranks that %s on line %d where ", e.verb, e.pos.Line)
	return fork{how, d.why, d.pos, d.cond, d.depth}
}

// afterwards interprets what follows a departure in its block.
func (m *machine) afterwards(departures []*departure, rest []syntax.Stmt) {
	departures = slices.Clone(departures)
	if m.st == nil {
		m.reportDepartures(departures, nil)
		return
	}
	before := m.branch()
	events, written := m.watch(func() { m.block(rest) })
	m.reportDepartures(departures, events)
	for _, d := range departures {
		m.taint(written, before, d.why)
	}
	m.emit(events)
}

// mayHaveEnded records that a function, or with fail the run, may not reach what follows.
func (m *machine) mayHaveEnded(exits []exit) {
	for _, e := range exits {
		switch e.verb {
		case "return":
			m.doubt++
			m.act.doubt++
		case "fail":
			m.doubt++
		}
	}
}

// either interprets the two branches of a condition, whose value may be known, and joins their results.
func (m *machine) either(cond syntax.Expr, at syntax.Position, known value, why *reason, yes, no func()) {
	before := m.st
	holds, certain := truth(known)
	run := func(way func(), dead bool) (events []*event, written map[any]bool, after *state, exits []exit) {
		m.st = before
		m.st = m.branch()
		m.st.dead = m.st.dead || dead
		n := len(m.act.exits)
		events, written = m.watchDoubtful(way)
		return events, written, m.st, m.act.exits[n:len(m.act.exits):len(m.act.exits)]
	}
	yesEvents, yesWrites, yesState, yesExits := run(yes, certain && !holds)
	noEvents, noWrites, noState, noExits := run(no, certain && holds)
	m.emit(choice(yesEvents, noEvents))
	yesEnds, noEnds := yesState == nil, noState == nil
	m.st = eitherState(yesState, noState)
	m.mayHaveEnded(slices.Concat(yesExits, noExits))
	if why == nil {
		return
	}
	m.taint(yesWrites, before, why)
	m.taint(noWrites, before, why)
	// If a rank fails the run ends, and no rank waits for it.
	yesFails, noFails := yesEnds && fails(yesExits), noEnds && fails(noExits)
	yesExits, noExits = diverging(yesExits), diverging(noExits)
	if slices.ContainsFunc(slices.Concat(yesExits, noExits), func(e exit) bool { return e.verb == "return" }) {
		m.act.differs = either(m.act.differs, why)
	}
	if len(yesEvents)+len(noEvents)+len(yesExits)+len(noExits) == 0 {
		return
	}
	met, unmet := m.where(cond, true, at, why), m.where(cond, false, at, why)
	d := &departure{why: why, pos: at, depth: len(m.calls.stack), cond: met.cond}
	switch {
	case len(yesExits) > 0 && yesEnds && len(noExits) == 0 && !noEnds:
		d.open, d.exits, d.leaving, d.staying, d.leaves = true, yesExits, yesEvents, noEvents, met
	case len(noExits) > 0 && noEnds && len(yesExits) == 0 && !yesEnds:
		d.open, d.exits, d.leaving, d.staying, d.leaves = true, noExits, noEvents, yesEvents, unmet
		d.cond = unmet.cond
	default:
		onlyYes, onlyNo := differ(yesEvents, noEvents)
		if !noFails {
			m.report(onlyYes, met)
		}
		if !yesFails {
			m.report(onlyNo, unmet)
		}
		if yesEnds && noEnds && sameExit(yesExits, noExits) {
			return // all leave for the same place
		}
		d.exits = slices.Concat(yesExits, noExits)
		if len(yesExits) == 0 {
			d.cond = unmet.cond
		}
	}
	if len(d.exits) > 0 {
		m.act.pending = append(m.act.pending, d)
	}
}

// diverging returns the exits after which the other ranks continue alone. After fail they
// do not: it ends the run on all ranks, with the recipe's message.
func diverging(exits []exit) []exit {
	return slices.DeleteFunc(slices.Clone(exits), func(e exit) bool { return e.verb == "fail" })
}

// fails reports whether a branch that ends does so only in fail.
func fails(exits []exit) bool { return len(exits) > 0 && len(diverging(exits)) == 0 }

func sameExit(a, b []exit) bool {
	for _, x := range a {
		for _, y := range b {
			if x.verb != y.verb || x.loop != y.loop {
				return false
			}
		}
	}
	return true
}
