package debug

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/engine"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/tensor"
)

// entry is a statement that the rank has begun.
type entry struct {
	engine.Moment
	depth int
	at    place
}

// log remembers the latest statements.
type log struct {
	ring []entry
	n    int // in all
}

// logged is how many statements are remembered: far more than anybody steps back over.
const logged = 1 << 14

func (l *log) add(e entry) {
	if len(l.ring) < logged {
		l.ring = append(l.ring, e)
	} else {
		l.ring[l.n%logged] = e
	}
	l.n++
}

// before finds the latest statement before a moment that began at a depth or above it; nil if none is remembered.
func (l *log) before(m engine.Moment, depth int) *engine.Moment {
	for i := l.n - 1; i >= max(0, l.n-len(l.ring)); i-- {
		if e := &l.ring[i%logged]; e.depth <= depth && e.Moment.Before(m) {
			return &e.Moment
		}
	}
	return nil
}

// finding is a search under way.
type finding struct {
	engine.Find
	expr  *lang.Expression
	known bool          // the expression has had a value
	was   uint64        // its digest
	bad   bool          // it was not finite
	op    string        // the first operation since the latest statement whose result was not finite
	where place         // the latest statement in the function
	since engine.Moment // when it began
	kept  []engine.FoundMoment
	n     int
}

// foundAtMost limits what is kept of a search.
const foundAtMost = 10_000

func (a *Agent) newFinding(f *engine.Find) (*finding, error) {
	found := &finding{Find: *f}
	if f.Expr == "" {
		return found, nil
	}
	expr, err := a.parse(f.Expr)
	found.expr = expr
	return found, err
}

func (f *finding) add(m engine.FoundMoment) {
	if len(f.kept) < foundAtMost {
		f.kept = append(f.kept, m)
	} else if f.Last {
		f.kept[f.n%foundAtMost] = m
	}
	f.n++
}

// list gives what was found, in its order.
func (f *finding) list() []engine.FoundMoment {
	if f.n <= len(f.kept) {
		return f.kept
	}
	at := f.n % foundAtMost
	return append(append([]engine.FoundMoment{}, f.kept[at:]...), f.kept[:at]...)
}

// note looks, where a statement begins, whether the value has changed since the latest statement of its function.
func (a *Agent) note() {
	f := a.find
	fn, ok := a.Thread.DebugFrame(0).Callable().(*starlark.Function)
	if f.expr == nil || !ok || fn.Name() != f.Func || fn.Position().String() != f.At {
		return
	}
	before, since := f.where, f.since
	f.where, f.since = a.here[len(a.here)-1], a.now()
	op := f.op
	f.op = ""
	v, err := a.evaluate(f.expr, 0)
	if err != nil { // it has no value yet, or none in this call
		f.known = false
		return
	}
	sum := Digest(v)
	if f.known && sum == f.was {
		return
	}
	f.known, f.was = true, sum
	if before.file == nil {
		before, since = f.where, f.since
	}
	m := engine.FoundMoment{Moment: since, Value: sum, Text: op, NotFinite: !finite(v)}
	m.File, m.Line = before.file.name, before.line
	f.add(m)
}

// operation notes an operation whose result is not finite.
func (a *Agent) operation(text string) {
	f := a.find
	if f.op == "" {
		f.op = text
	}
	if f.NotFinite && f.expr == nil {
		pos := starlib.Position(a.Thread)
		f.add(engine.FoundMoment{Moment: a.now(), File: pos.Filename(), Line: pos.Line, Text: text, NotFinite: true})
	}
}

// finite reports whether a value is and holds only finite numbers.
func finite(v starlark.Value) bool {
	ok := true
	numbers(v, 0, func(x float64) { ok = ok && !math.IsNaN(x) && !math.IsInf(x, 0) })
	return ok
}

// truth is the truth value of a condition.
func truth(v starlark.Value) (bool, error) {
	if t, ok := v.(lang.Truther); ok {
		return t.TruthValue()
	}
	return bool(v.Truth()), nil
}

// hit notes that the rank would stop here, if it searches for that.
func (a *Agent) hit() {
	if a.find.Expr == "" && !a.find.NotFinite {
		pos := starlib.Position(a.Thread)
		a.find.add(engine.FoundMoment{Moment: a.now(), File: pos.Filename(), Line: pos.Line})
	}
}

// notFinite says what is wrong with an operation's result, "" if nothing is. An operation that was given the like is told of
// once an update: no operation may have been seen that made it, since those without gradients are not watched.
func (a *Agent) notFinite(op string, out *tensor.Tensor, inputs []*tensor.Tensor) string {
	nan, inf := tensor.Finite(out)
	if op == "where" || op == "masked_fill" { // these insert infinities on purpose
		inf = false
	}
	if !nan && !inf {
		return ""
	}
	what, given := "NaN", false
	if !nan {
		what = "infinite"
	}
	for _, t := range inputs {
		if t != nil {
			givenNaN, givenInf := tensor.Finite(t)
			given = given || nan && givenNaN || inf && givenInf
		}
	}
	text := fmt.Sprintf("the result of %s is %s", op, what)
	if given {
		text += ", as is what it was given"
		if a.given {
			return ""
		}
	}
	a.given = true
	return text
}
