// Package debug is the debugger's part in a rank's process: it stops the recipe's thread, at breakpoints and between
// statements, and shows what it has. engine/worker makes an Agent for its rank, and passes it what the debugger
// (runs/debug) sends; a rank that nobody debugs has one that does nothing.
//
// A thread is stopped by holding its goroutine, in the interpreter's callback (lang.Step) or in a call that waits for other
// ranks. Everything that reads the recipe's values happens there, on that goroutine. Nothing is put into the recipe's
// program, so a debugger can come to a run that goes on; only a run that begins under one has marks (lang.Mark).
package debug

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/engine"
	"drun/internal/queue"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/tensor"
)

// Recipe is what an Agent knows of the rank's recipe.
type Recipe struct {
	Thread  *starlark.Thread
	Rank    *starlib.Rank
	Tensors *tensor.Context
	Env     starlark.StringDict
	Lines   func(file string) *lang.Lines // by the name that positions show; nil: it is no file of the recipe
	Entry   bool                          // the rank waits for the debugger before its first step
}

// Agent is the debugger's part in a rank.
type Agent struct {
	Recipe
	ctx  context.Context // ends when the run is aborted
	send func(*engine.Debugged) error

	// Wanted is set while the debugger has asked for something that the rank has not done yet.
	Wanted atomic.Bool
	asked  *queue.Queue[[]*engine.Debug]
	ended  atomic.Bool

	// The rest belongs to the recipe's goroutine.
	breaks   []*breakpoint
	going    engine.Go
	depth    int // of the frame that the rank went on from
	met      []engine.Met
	due      *engine.Stopped // with which it stops at the next step
	still    bool            // it stands still
	waits    bool            // it stands still in a call that waits
	attended bool            // a debugger has been here
	wait     wait
	parts    []starlark.Value // that the debugger may ask for, by their numbers
	frames   []int            // the depth of each frame shown
	began    time.Time
	held     time.Duration

	files   map[string]*lang.Lines
	latest  *lang.Lines // looked up
	base    uint64
	digest  uint64
	locals  uint64
	here    []frame // outermost first
	follows bool    // here is up to date
	calls   int64   // see engine.Stopped

	given     bool           // a value that is not finite was told of since the latest update
	told      *tensor.Tensor // the latest result that was told of
	toldAt    uint64         // the step of its operation
	evaluates bool           // an expression of the debugger is evaluated
}

// wait is one in a call of other ranks.
type wait struct {
	step  uint64 // of the thread; it identifies the wait
	since time.Time
	told  bool // the debugger knows of it
	stuck bool // it is told that the ranks wait for each other
}

// place is a statement.
type place struct {
	in   *lang.Lines
	line int32
}

// frame is a call under way, as far as it has been followed.
type frame struct {
	of            starlark.Callable
	at            place         // its latest statement
	since, before engine.Moment // when that began, and the one before it
}

// New makes the agent of a rank. ctx ends when the run is aborted; send passes on what the agent tells the debugger.
func New(ctx context.Context, send func(*engine.Debugged) error) *Agent {
	return &Agent{ctx: ctx, send: send, asked: queue.New[[]*engine.Debug](queue.Limits{}), files: map[string]*lang.Lines{}}
}

// Begin is called on the recipe's goroutine before its thread executes anything.
func (a *Agent) Begin(r Recipe) {
	a.Recipe, a.began = r, time.Now()
	if r.Entry {
		a.due = &engine.Stopped{Why: engine.AtEntry}
		a.arm()
	}
}

// Returned is called when main has returned. The rank may wait for others to come to their end.
func (a *Agent) Returned() {
	a.ended.Store(true)
	if all, _, _ := a.asked.Take(); a.attended || len(all) > 0 {
		_ = a.send(&engine.Debugged{Ended: true})
	}
}

// Failed is called when the recipe has failed, or was ended since another rank has.
func (a *Agent) Failed() {
	a.ended.Store(true)
	if a.attended {
		_ = a.send(&engine.Debugged{Failed: new(a.now())})
	}
}

// Deliver takes what the debugger asks for. It may be called from any goroutine.
func (a *Agent) Deliver(m *engine.Debug) {
	switch {
	case m.Held != nil:
		collective.Stand(*m.Held)
		return
	case m.Leave:
		collective.Stand(false)
	}
	a.asked.Add(1, func(all *[]*engine.Debug) { *all = append(*all, m) })
	if a.Wanted.Store(true); a.ended.Load() {
		_ = a.send(&engine.Debugged{Ended: true})
	}
}

// serve does what the debugger has asked for, on the recipe's goroutine.
func (a *Agent) serve() {
	a.Wanted.Store(false)
	all, _, _ := a.asked.Take()
	for _, m := range all {
		a.obey(m)
	}
}

func (a *Agent) obey(m *engine.Debug) {
	a.attended = !m.Leave
	if m.Leave {
		a.replace(nil)
		a.going, a.due, a.still, a.waits = engine.Go{}, nil, false, false
	}
	if m.Breaks != nil {
		a.replace(*m.Breaks)
	}
	if m.Pause && !a.still && !a.waits {
		a.due = &engine.Stopped{Why: engine.AtPause}
	}
	if m.Go != nil {
		a.going, a.met, a.still, a.waits, a.wait = *m.Go, nil, false, false, wait{stuck: a.wait.stuck, step: a.wait.step}
		a.depth = a.Thread.CallStackDepth()
	}
	if m.Look != nil {
		seen := &engine.Seen{ID: m.Look.ID, Error: "the rank is executing: pause it first"}
		if a.still || a.waits {
			seen.Values, seen.Error = a.look(m.Look)
		}
		_ = a.send(&engine.Debugged{Seen: seen})
	}
}

// Called is called where the recipe calls a builtin, if Wanted.
func (a *Agent) Called() {
	a.serve()
	a.arm()
}

// arm has the thread call step again when that is needed.
func (a *Agent) arm() { lang.Step(a.Thread, a.next(), a.step) }

// now is the moment before the thread's next step.
func (a *Agent) now() engine.Moment {
	return engine.Moment{Updates: a.Rank.Updates, Steps: a.Thread.ExecutionSteps() - a.base, Digest: a.digest, Locals: a.locals}
}

// Updated is called after an update of the rank's parameters, which have the digest.
func (a *Agent) Updated(digest uint64) {
	if a == nil || a.Thread == nil {
		return
	}
	a.base, a.digest, a.given = a.Thread.ExecutionSteps(), digest, false
	if a.locals = 0; a.attended {
		a.locals = a.variables()
	}
	for _, b := range a.breaks {
		if b.Updates > 0 && b.Updates == a.Rank.Updates {
			if text := fmt.Sprintf("update %d has been made", b.Updates); !a.passes(b, text) {
				a.due = &engine.Stopped{Why: engine.AtBreakpoint, Break: b.ID, Text: text}
			}
		}
	}
	if a.going.Until != nil || a.due != nil {
		a.arm()
	}
}

// leadIn is how many steps before the moment for which it is bound a rank is followed statement by statement, so that the
// statements before that moment are known.
const leadIn = 100_000

// traces reports whether the rank is followed statement by statement.
func (a *Agent) traces() bool {
	if a.going.To != engine.ToBreak || a.going.Followed || slices.ContainsFunc(a.breaks, func(b *breakpoint) bool { return b.Line > 0 || b.Changes != "" }) {
		return true
	}
	u := a.going.Until
	return u != nil && a.Rank.Updates >= u.Updates-1 && (a.Rank.Updates < u.Updates || a.now().Steps+leadIn >= u.Steps)
}

// next is the step at which the thread has to call step.
func (a *Agent) next() uint64 {
	steps := a.Thread.ExecutionSteps()
	if a.due != nil || a.waits || a.wait.told || a.Wanted.Load() || a.traces() {
		return steps + 1
	}
	a.follows = false
	switch u := a.going.Until; {
	case u == nil || a.Rank.Updates < u.Updates:
		return lang.Never
	case u.Steps > leadIn:
		return max(steps+1, a.base+u.Steps-leadIn)
	}
	return steps + 1
}

// step is called by the interpreter, before a step.
func (a *Agent) step(*starlark.Thread) uint64 {
	if a.Wanted.Load() {
		a.serve()
	}
	if a.wait.told {
		a.wait.told = false
		if !a.waits {
			_ = a.send(&engine.Debugged{Goes: true})
		}
	}
	switch u := a.going.Until; {
	case a.due != nil:
		a.stop(*a.due)
	case a.waits: // the wait is over
		a.stop(engine.Stopped{Why: engine.AtPause})
	case u != nil && !a.now().Before(*u):
		if at, begins := a.statement(); begins {
			a.compareAll(at) // what the latest statement has changed
		}
		a.stop(engine.Stopped{Why: engine.AtGoal})
	case a.traces():
		a.follow()
	}
	return a.next()
}

// follow sees whether a statement begins, and whether the rank stops there.
func (a *Agent) follow() {
	at, begins := a.statement()
	if !begins {
		return
	}
	depth := len(a.here)
	a.compareAll(at)
	for _, b := range a.breaks {
		if b.Changes == "" && b.Line == at.line && b.File == at.in.File {
			if text, holds := a.holds(b); holds && a.meet(b, text) {
				return
			}
		}
	}
	switch to := a.going.To; {
	case to == engine.ToBreak, to == engine.Over && depth > a.depth, to == engine.Out && depth >= a.depth, to == engine.ToMain && a.Rank.Stage != starlib.Running:
	default:
		a.stop(engine.Stopped{Why: engine.AtStep})
	}
}

// statement gives the statement at which the thread is, and whether it begins here. A statement is seen once its first
// position has been, which is that of a name that it reads or of its mark.
func (a *Agent) statement() (at place, begins bool) {
	depth := a.Thread.CallStackDepth()
	if !a.follows {
		a.resume()
		return at, false
	}
	if len(a.here) > depth {
		a.here = a.here[:depth]
	}
	for len(a.here) < depth {
		a.here = append(a.here, frame{})
	}
	at = a.placeAt(0)
	f := &a.here[depth-1]
	if of := a.Thread.DebugFrame(0).Callable(); f.of != of { // such as main, after the file's top level
		f.of, f.at = of, place{}
	}
	if at.line == 0 || at == f.at || !placed(a.Thread.DebugFrame(0)) {
		return at, false
	}
	f.at, f.since, f.before = at, a.now(), f.since
	return at, true
}

// back is when the previous statement of the present function, or of its callers, began; nil: it was not seen.
func (a *Agent) back(now engine.Moment) (latest *engine.Moment) {
	for i := range a.here[:min(len(a.here), a.Thread.CallStackDepth())] {
		for _, m := range []*engine.Moment{&a.here[i].before, &a.here[i].since} {
			if *m != (engine.Moment{}) && m.Before(now) && (latest == nil || latest.Before(*m)) {
				latest = new(*m)
			}
		}
	}
	return latest
}

// resume begins to follow the thread: it is in the midst of the statements of all its frames.
func (a *Agent) resume() {
	a.here = a.here[:0]
	for depth := a.Thread.CallStackDepth() - 1; depth >= 0; depth-- {
		a.here = append(a.here, frame{of: a.Thread.DebugFrame(depth).Callable(), at: a.placeAt(depth)})
	}
	a.follows = true
}

func (a *Agent) placeAt(depth int) place {
	pos := a.Thread.DebugFrame(depth).Position()
	if name := pos.Filename(); a.latest == nil || a.latest.File != name {
		lines, known := a.files[name]
		if !known {
			lines = a.Lines(name)
			a.files[name] = lines
		}
		if lines == nil {
			return place{}
		}
		a.latest = lines
	}
	return place{a.latest, a.latest.Statement(pos.Line)}
}

// stop holds the thread until the debugger lets it go on, or the run ends.
func (a *Agent) stop(s engine.Stopped) {
	since := time.Now()
	a.tell(s)
	a.going, a.due, a.waits, a.still = engine.Go{}, nil, false, true
	for a.serve(); a.still && a.ctx.Err() == nil; a.serve() {
		select {
		case <-a.asked.Ready():
		case <-a.ctx.Done():
		}
	}
	a.still = false
	a.held += time.Since(since)
	a.statement() // it has begun, and does not stop the rank again
	a.arm()
}

// tell says that the thread stands still.
func (a *Agent) tell(s engine.Stopped) {
	a.parts = nil
	s.Moment, s.Calls, s.Met, a.met = a.now(), a.calls, a.met, nil
	if a.digest == 0 && !s.Waits { // nothing else tells whether a repetition comes to the same values
		s.Moment.Locals = a.variables()
		if depth := a.Thread.CallStackDepth(); a.follows && depth <= len(a.here) && a.here[depth-1].since.Same(s.Moment) {
			a.here[depth-1].since = s.Moment
		}
	}
	s.Seconds = (time.Since(a.began) - a.held).Seconds()
	s.Frames = a.stack()
	if a.follows {
		s.Back = a.back(s.Moment)
	}
	_ = a.send(&engine.Debugged{Stopped: &s})
}

// Starts is called before each of the rank's calls of other ranks.
func (a *Agent) Starts(c *collective.Call) {
	if c.Kind != collective.Send && c.Kind != collective.Recv {
		a.calls++
	}
	for _, b := range a.breaks {
		builtin, _, _ := strings.Cut(c.Builtin, " ") // without "in backward"
		if b.Collective == "*" || b.Collective != "" && (b.Collective == c.Kind.String() || "dist."+b.Collective == builtin) {
			a.meet(b, "before "+describe(c))
			return
		}
	}
}

// Saves is called in each call of checkpoint.save.
func (a *Agent) Saves(step int64) {
	if t := a.going.Save; t != nil && *t.Save == step && t.Updates == a.Rank.Updates {
		a.stop(engine.Stopped{Why: engine.AtGoal, Text: fmt.Sprintf("before step %d is saved", step)})
	}
}

// describe names a call of other ranks, and the builtin that makes it if that has another name.
func describe(c *collective.Call) string {
	text := fmt.Sprint(c.Kind)
	if c.Builtin != "" && c.Builtin != "dist."+text {
		text += " of " + c.Builtin
	}
	if len(c.Shape) > 0 {
		text += fmt.Sprintf(" of shape %v", c.Shape)
	}
	return text
}

// longWait is how long a rank waits for others before the debugger is told.
const longWait = 100 * time.Millisecond

// Waiting is called now and then while the rank waits for others.
func (a *Agent) Waiting() {
	if a.Thread == nil {
		return
	}
	if w := a.waiting(); a.attended && !a.waits && !w.told && time.Since(w.since) > longWait {
		w.told = true
		_ = a.send(&engine.Debugged{Waits: true})
		a.arm()
	}
	if a.Wanted.Load() {
		a.Called()
	}
	if a.due != nil && a.due.Why == engine.AtPause && !a.waits {
		a.due, a.waits = nil, true
		a.tell(engine.Stopped{Why: engine.AtPause, Waits: true})
	}
}

// waiting is the wait in which the rank is.
func (a *Agent) waiting() *wait {
	if steps := a.Thread.ExecutionSteps(); a.wait.step != steps || a.wait.since.IsZero() {
		a.wait = wait{step: steps, since: time.Now(), stuck: a.wait.stuck && a.wait.step == steps}
	}
	return &a.wait
}

// Stuck is called while the rank waits for ranks that wait for it, and reports whether the debugger holds it there: a run that
// is debugged does not fail before somebody has looked.
func (a *Agent) Stuck(why string) (held bool) {
	if a.Thread == nil || !a.attended {
		return false
	}
	if w := a.waiting(); !w.stuck {
		w.stuck, a.waits, a.due = true, true, nil
		a.tell(engine.Stopped{Why: engine.AtDeadlock, Waits: true, Text: why})
	}
	return a.waits
}

// operation stops where an operation's result is not finite, at one that was given the like only once an update. What an
// operation is made of has told of it before, at the same step, as has the function whose result it passes on.
func (a *Agent) operation(op string, out *tensor.Tensor, inputs []*tensor.Tensor) {
	i := slices.IndexFunc(a.breaks, func(b *breakpoint) bool { return b.NotFinite })
	if i < 0 || a.evaluates || a.told == out || a.toldAt == a.Thread.ExecutionSteps() {
		return
	}
	what, given := tensor.NotFinite(op, out, inputs)
	if what == "" || given && a.given {
		return
	}
	text := fmt.Sprintf("the result of %s is %s", op, what)
	if given {
		text += ", as is what it was given"
	}
	a.given, a.told, a.toldAt = true, out, a.Thread.ExecutionSteps()
	a.meet(a.breaks[i], text)
}
