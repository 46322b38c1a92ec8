package check

import (
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

const (
	maxSteps = 1_000_000 // steps of the interpretation; a recipe of 100 lines takes a few thousand
	maxCalls = 40        // nested calls that are followed
	maxDepth = 20_000    // nested expressions and statements in all calls
	maxRound = 8         // rounds of a loop, which usually ends sooner, when nothing new is learned
)

// A machine interprets the statements and expressions of a recipe abstractly: every branch is taken, loops are
// repeated until nothing new is learned, and each value is tracked for whether it differs between ranks.
type machine struct {
	*memory    // what is known about variables and objects
	*findings  // what is wrong
	*inference // shapes of tensors

	names    *names    // what names and attributes stand for
	calls    *calls    // of functions of the recipe, methods and whatever else
	builtins *builtins // what drun's builtins do

	ref     *Reference
	files   map[string]*source
	act     *activation
	trace   []*event                    // the collectives called so far
	loading bool                        // the top level runs
	idle    map[*syntax.AssignStmt]bool // p -= … of a loop's variable that the loop does not read afterwards
	depth   int                         // of nested statements and expressions
}

// An activation is the machine's state for one call of a function.
type activation struct {
	loops   []*loop
	exits   []exit
	pending []*departure
	results []value
	after   *state  // the state in which it returns
	differs *reason // why its result differs
	doubt   int     // ways in which it may have returned before
}

type loop struct{ breaks, continues *state }

// An exit is a statement that leaves a loop or function early.
type exit struct {
	verb string
	pos  syntax.Position
	loop *loop // the loop that it leaves or repeats; nil: the function
}

// averaging are the functions of dist that a recipe may use to keep the ranks' models equal.
var averaging = []string{"sync_", "ddp", "fsdp", "data_parallel", "all_reduce", "reduce", "broadcast", "average_tensors", "pipeline", "rpc", "remote", "send", "isend"}

func newMachine(ref *Reference, files map[string]*source, found *findings) *machine {
	known := newMemory(ref.types)
	m := &machine{ref: ref, files: files, memory: known, findings: found, act: &activation{}, idle: map[*syntax.AssignStmt]bool{},
		inference: &inference{memory: known, findings: found, ref: ref, memo: map[string]result{}, shapes: map[*syntax.Ident]*shape{}}}
	m.names = &names{m}
	m.calls = &calls{machine: m, seen: map[*resolve.Function]bool{}}
	m.builtins = &builtins{machine: m, params: map[string]syntax.Position{}, saved: map[*object]starlark.Value{},
		distributed: mentions(files, "dist."), unsynced: mentions(files, "set_sync")}
	for _, name := range averaging {
		m.builtins.averages = m.builtins.averages || mentions(files, "dist."+name)
	}
	return m
}

// exhausted is panicked with to end an interpretation that takes too long; its findings are kept.
type exhausted struct{}

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

// watchDoubtful is watch for something that not every run reaches.
func (m *machine) watchDoubtful(fn func()) (events []*event, written map[any]bool) {
	m.doubt++
	events, written = m.watch(fn)
	m.doubt--
	return events, written
}

// emit appends watched events to the trace.
func (m *machine) emit(events []*event) {
	m.step(len(events))
	m.trace = append(m.trace, events...)
}
