package check

import (
	"fmt"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

const (
	maxSteps = 1_000_000 // of the interpretation; a recipe of 100 lines takes a few thousand
	maxCalls = 40        // nested calls that are followed
	maxDepth = 20_000    // nested expressions and statements in all calls
	maxRound = 8         // of a loop until nothing new is learned
)

// A machine interprets a recipe abstractly: every branch is taken, loops are
// repeated until nothing new is learned, and each value is tracked for whether it
// differs between ranks. Calls are followed with their arguments.
type machine struct {
	ref      *Reference
	files    map[string]*source
	findings *findings

	st      *state // nil: this point is never reached
	frame   *frame
	act     *activation
	trace   []*event
	writes  []map[any]bool
	stack   []place // calls that lead here
	running []*resolve.Function
	loading bool // the top level runs
	steps   int
	depth   int
	vars    int // how many variables there are

	objects map[site]*object
	frames  map[site]*frame
	reasons map[reason]*reason
	graphs  map[graph]*graph
	seen    map[*resolve.Function]bool // functions that were interpreted
	params  map[string]syntax.Position // of run.params
	warned  map[string]bool

	memo    map[string]result        // of calls that were run on shapes
	shapes  map[*syntax.Ident]*shape // of names, at their positions; nil: not always the same
	deaf    int                      // above 0 shape errors are not reported: in a callback
	rebuilt bool                     // a model is changed after its construction

	saved       map[*object]string // the paths that save_file returned since the last synchronisation, with the names, as literals
	distributed bool               // the recipe synchronises with other ranks somewhere
	unsynced    bool               // the recipe turns ddp's synchronisation off at times
}

// An activation is the machine's state for one call of a function.
type activation struct {
	loops   []*loop
	exits   []exit
	pending []*departure
	results []value
	after   *state  // where it returns
	differs *reason // why its result does
}

type loop struct{ breaks, continues *state }

// An exit is a statement that leaves a loop or function early.
type exit struct {
	verb string
	pos  syntax.Position
	loop *loop // the loop that it leaves or repeats; nil: the function
}

func newMachine(ref *Reference, files map[string]*source, f *findings) *machine {
	return &machine{
		ref: ref, files: files, findings: f, st: &state{}, act: &activation{},
		objects: map[site]*object{}, frames: map[site]*frame{}, reasons: map[reason]*reason{}, graphs: map[graph]*graph{}, unsynced: mentions(files, "set_sync"),
		saved: map[*object]string{}, distributed: mentions(files, "dist."), seen: map[*resolve.Function]bool{}, params: map[string]syntax.Position{}, warned: map[string]bool{}, memo: map[string]result{}, shapes: map[*syntax.Ident]*shape{},
	}
}

// exhausted ends an interpretation that takes too long; its findings are kept.
type exhausted struct{}

func (m *machine) step(n int) {
	if m.steps += n; m.steps > maxSteps {
		panic(exhausted{})
	}
}

// branch copies the state for one of several branches.
func (m *machine) branch() *state {
	m.step(4)
	return m.st.clone()
}

func (m *machine) touch(what any) {
	if n := len(m.writes); n > 0 {
		m.writes[n-1][what] = true
	}
}

// watch returns the collectives that fn calls, and what it writes.
func (m *machine) watch(fn func()) ([]*event, map[any]bool) {
	outer := m.trace
	m.trace = nil
	m.writes = append(m.writes, map[any]bool{})
	fn()
	last := len(m.writes) - 1
	events, written := m.trace, m.writes[last]
	m.trace, m.writes = outer, m.writes[:last]
	for what := range written {
		m.touch(what)
	}
	return events, written
}

// emit adds watched events to those here.
func (m *machine) emit(events []*event) {
	m.step(len(events))
	m.trace = append(m.trace, events...)
}

// collective records a call that all ranks have to make.
func (m *machine) collective(name string, pos syntax.Position, group *object) {
	clear(m.saved)
	chain := append(append([]place{}, m.stack...), place{pos, m.functionName()})
	m.trace = append(m.trace, &event{name: name, group: group, chain: chain})
}

func (m *machine) functionName() string {
	if m.frame.fn != nil {
		return m.frame.fn.Name
	}
	return ""
}

// reason returns the one reason with this content.
func (m *machine) reason(r reason) *reason {
	if known := m.reasons[r]; known != nil {
		return known
	}
	known := r
	known.id = len(m.reasons) + 1
	m.reasons[r] = &known
	return &known
}

// taint marks what was written in branches that only some ranks take: before is the state before the branches.
func (m *machine) taint(written map[any]bool, before *state, why *reason) {
	if m.st == nil {
		return
	}
	m.step(len(written))
	for what := range written {
		switch what := what.(type) {
		case *variable:
			if v := m.st.vars.get(what.id); v != nil {
				w := differing(*v, why)
				m.st.vars.set(what.id, &w)
			}
		case *object:
			old, now := before.heap.get(what.id), m.st.heap.get(what.id)
			if old == nil || now == nil || old.equal(now) {
				continue
			}
			c := now.clone()
			if !c.elem.equal(old.elem) || len(c.fields) != len(old.fields) {
				c.diff = either(c.diff, why)
			}
			if !c.elem.equal(old.elem) {
				c.elem = differing(c.elem, why)
			}
			for k, v := range c.fields {
				if w, ok := old.fields[k]; !ok || !v.equal(w) {
					c.fields[k] = differing(v, why)
				}
			}
			m.st.heap.set(what.id, c)
		}
		m.touch(what)
	}
}

// attributes lists what a native value has.
func (m *machine) attributes(name string) []string {
	if v, ok := m.ref.env[name].(starlark.HasAttrs); ok {
		return v.AttrNames()
	}
	return nil
}

func (m *machine) fault(pos syntax.Position, format string, args ...any) {
	m.findings.add(pos, Error, fmt.Sprintf(format, args...))
}

func (m *machine) warn(pos syntax.Position, format string, args ...any) {
	m.findings.add(pos, Warning, fmt.Sprintf(format, args...))
}

// warnOnce warns about a collective at a position only once, however many paths lead there.
func (m *machine) warnOnce(pos syntax.Position, name, format string, args ...any) {
	if key := pos.String() + name; !m.warned[key] {
		m.warned[key] = true
		m.warn(pos, format, args...)
	}
}

// text is the source of a node on one line, shortened if long.
func (m *machine) text(n syntax.Node) string {
	start, end := n.Span()
	text := m.frame.file.between(start, end)
	text = strings.Join(strings.Fields(text), " ")
	for _, pair := range []string{"[]", "()"} { // some nodes end before their bracket
		if strings.Count(text, pair[:1]) > strings.Count(text, pair[1:]) {
			text += pair[1:]
		}
	}
	if r := []rune(text); len(r) > 60 {
		text = string(r[:57]) + "..."
	}
	return text
}
