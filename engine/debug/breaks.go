package debug

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/engine"
	"drun/starlib"
	"drun/starlib/lang"
)

type breakpoint struct {
	engine.Breakpoint
	expr *lang.Expression // the condition, or what changes; nil: there is none

	// Of one at changes:
	known bool          // the expression has had a value
	value uint64        // its digest
	where place         // the latest statement in the function
	since engine.Moment // when it began
}

// replace sets the breakpoints.
func (a *Agent) replace(list []engine.Breakpoint) {
	a.breaks, a.Tensors.Made = nil, nil
	for _, b := range list {
		if b.Ranks != nil && !slices.Contains(b.Ranks, a.Rank.Rank) {
			continue
		}
		own := &breakpoint{Breakpoint: b}
		if src := b.Condition + b.Changes; src != "" {
			own.expr, _ = Parse(src, a.Env) // the debugger has parsed it
		}
		if a.breaks = append(a.breaks, own); b.NotFinite {
			a.Tensors.Made = a.operation
		}
	}
}

// passes reports whether the rank goes on where it meets a breakpoint, which it then notes if that is wanted.
func (a *Agent) passes(b *breakpoint, text string) bool {
	pos := starlib.Position(a.Thread)
	return a.goesOn(engine.Met{Moment: a.now(), Break: b.ID, File: pos.Filename(), Line: pos.Line, Text: text})
}

func (a *Agent) goesOn(m engine.Met) bool {
	if a.going.Meets == engine.Note && (a.going.After == nil || !m.Moment.Before(*a.going.After)) {
		if len(a.met) == engine.MetAtMost && a.going.Last {
			a.met = append(a.met[:0], a.met[engine.MetAtMost/2:]...)
		}
		if len(a.met) < engine.MetAtMost {
			a.met = append(a.met, m)
		}
	}
	return a.going.Meets != engine.Stop
}

// meet stops at a breakpoint, unless the rank passes it.
func (a *Agent) meet(b *breakpoint, text string) (stopped bool) {
	if a.passes(b, text) {
		return false
	}
	a.stop(engine.Stopped{Why: engine.AtBreakpoint, Break: b.ID, Text: text})
	return true
}

// holds evaluates a breakpoint's condition. One that fails holds, and text says so.
func (a *Agent) holds(b *breakpoint) (text string, holds bool) {
	if b.expr == nil {
		return "", true
	}
	v, err := a.evaluate(b.expr, 0)
	if t, ok := v.(lang.Truther); ok {
		holds, err = t.TruthValue()
	} else if err == nil {
		holds = bool(v.Truth())
	}
	if err != nil {
		return fmt.Sprintf("the condition %s could not be evaluated: %v", b.Condition, err), true
	}
	return "", holds
}

func (a *Agent) compareAll(at place) {
	for _, b := range a.breaks {
		if b.Changes != "" {
			a.compare(b, at)
		}
	}
}

// compare looks, where a statement begins, whether the value of a breakpoint has changed since the latest statement of its
// function.
func (a *Agent) compare(b *breakpoint, at place) {
	fn, ok := a.Thread.DebugFrame(0).Callable().(*starlark.Function)
	if !ok || fn.Name() != b.Func || fn.Position().String() != b.At {
		return
	}
	before, since := b.where, b.since
	b.where, b.since = at, a.now()
	v, err := a.evaluate(b.expr, 0)
	if err != nil { // it has no value yet, or none in this call
		b.known = false
		return
	}
	sum := Digest(v)
	if b.known && sum == b.value {
		return
	}
	first := b.value == 0
	b.known, b.value = true, sum
	if before.in == nil {
		before, since = b.where, b.since
	}
	a.goesOn(engine.Met{Moment: since, Break: b.ID, File: before.in.File, Line: before.line, Value: sum, Calls: a.calls, First: first, NotFinite: !finite(v, 0)})
}
