package check

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/syntax"
)

// findings collects what is wrong with a recipe.
type findings struct {
	list   []Finding
	warned map[string]bool // by position and collective
	doubt  int             // how many branches, loops and early exits may keep a run from reaching this point
}

func (f *findings) add(pos syntax.Position, severity Severity, message string) {
	file := ""
	if pos.IsValid() {
		file = pos.Filename()
	}
	f.list = append(f.list, Finding{File: file, Line: int(pos.Line), Col: int(pos.Col), Severity: severity, Message: message})
}

// sure is fault for something that always fails when it is reached.
func (f *findings) sure(pos syntax.Position, format string, args ...any) {
	f.fault(pos, format, args...)
	f.list[len(f.list)-1].Certain = f.doubt == 0
}

func (f *findings) fault(pos syntax.Position, format string, args ...any) {
	f.add(pos, Error, fmt.Sprintf(format, args...))
}

func (f *findings) warn(pos syntax.Position, format string, args ...any) {
	f.add(pos, Warning, fmt.Sprintf(format, args...))
}

// warnOnce warns about a collective at a position only once, however many paths lead there.
func (f *findings) warnOnce(pos syntax.Position, name, format string, args ...any) {
	if key := pos.String() + name; !f.warned[key] {
		f.warned[key] = true
		f.warn(pos, format, args...)
	}
}

// report warns about every collective that only some ranks reach.
func (f *findings) report(events []*event, where fork) {
	collectives(events, func(e *event) {
		if e.group != nil && (where.why.group != e.group || where.why.member) {
			return // only some ranks are members
		}
		if where.depth >= len(e.chain) {
			return
		}
		at := e.chain[where.depth]
		name := e.name
		if last := e.chain[len(e.chain)-1]; where.depth < len(e.chain)-1 {
			name += fmt.Sprintf(" (%s, in %s)", lineOf(last.pos, at.pos), last.fn)
		}
		f.warnOnce(at.pos, name, "%s is %s%s (%s)%s: ranks that do not come here will hang the others",
			name, where.how, where.cond, lineOf(where.pos, at.pos), because(where, at.pos))
	})
}

// because names the source of the difference, unless the condition does.
func because(f fork, from syntax.Position) string {
	if strings.Contains(f.cond, f.why.what) {
		return ""
	}
	return fmt.Sprintf(", which depends on %s (%s)", f.why.what, lineOf(f.why.pos, from))
}

// lineOf names a line as seen from another position.
func lineOf(pos, from syntax.Position) string {
	if pos.Filename() == from.Filename() {
		return fmt.Sprintf("line %d", pos.Line)
	}
	return fmt.Sprintf("%s:%d", pos.Filename(), pos.Line)
}

// reportDepartures reports the collectives that only ranks that left, or only those
// that stayed, reach; events are those after the departures.
func (f *findings) reportDepartures(departures []*departure, events []*event) {
	for _, d := range departures {
		if d.open {
			d.open = false
			leaving, staying := differ(d.leaving, slices.Concat(d.staying, events))
			f.report(leaving, d.leaves)
			f.report(staying, d.left())
		} else {
			f.report(events, d.left())
		}
	}
}
