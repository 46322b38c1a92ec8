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
	"sync"
	"sync/atomic"
	"time"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/engine"
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
	Source  func(file string) []byte // by the name that positions show
	Marks   bool                     // files are compiled with lang.Mark
	Entry   bool                     // the rank waits for the debugger before its first step
}

// Agent is the debugger's part in a rank.
type Agent struct {
	Recipe
	ctx  context.Context // ends when the run is aborted
	send func(*engine.Debugged) error

	// Wanted is set while the debugger has asked for something that the rank has not done yet.
	Wanted atomic.Bool
	mu     sync.Mutex
	asked  []*engine.Debug
	wake   chan struct{}
	ended  bool

	// The rest belongs to the recipe's goroutine.
	breaks    []*breakpoint
	files     map[string]*file
	latest    *file // looked up
	base      uint64
	digest    uint64
	here      []place // of each frame, outermost first, as far as they have been followed
	follows   bool    // here is up to date
	log       log
	to        string // see engine.Go
	depth     int    // of the frame that the rank went on from
	until     *engine.Moment
	straight  bool // see engine.Go
	find      *finding
	pause     bool
	due       *engine.Stopped // with which it stops at the next step
	still     bool            // it stands still
	waits     bool            // it stands still in a call that waits
	attended  bool            // a debugger has been here
	slept     uint64          // the step of the latest wait
	asleep    time.Time       // when it was first seen
	stuck     uint64          // the step of the wait in a circle that the debugger was told of
	told      uint64          // the step of the wait that the debugger was told of
	parts     []starlark.Value
	frames    []int // the depth of each frame shown
	began     time.Time
	given     bool // a value that is not finite was told of since the latest update
	watched   bool // the tensors tell of their operations
	evaluates bool // an expression of the debugger is evaluated
	held      time.Duration
}

type breakpoint struct {
	engine.Breakpoint
	when *lang.Expression // nil: always
}

// place is a statement.
type place struct {
	file *file
	line int32
}

// file is a file of the recipe.
type file struct {
	name   string
	lines  *lang.Lines
	breaks map[int32][]*breakpoint
}

// New makes the agent of a rank. ctx ends when the run is aborted; send passes on what the agent tells the debugger.
func New(ctx context.Context, send func(*engine.Debugged) error) *Agent {
	return &Agent{ctx: ctx, send: send, wake: make(chan struct{}, 1)}
}

// Begin is called on the recipe's goroutine before its thread executes anything.
func (a *Agent) Begin(r Recipe) {
	a.Recipe, a.began = r, time.Now()
	if r.Entry {
		a.due = &engine.Stopped{Why: engine.AtEntry}
		a.arm()
	}
}

// End is called when the recipe's thread has ended.
func (a *Agent) End() {
	a.mu.Lock()
	a.ended = true
	asked := a.asked
	a.asked = nil
	a.mu.Unlock()
	for _, m := range asked {
		a.over(m)
	}
}

func (a *Agent) over(m *engine.Debug) {
	_ = a.send(&engine.Debugged{ID: m.ID, Error: "the rank has come to the end of the recipe"})
}

// Deliver takes what the debugger asks for. It may be called from any goroutine.
func (a *Agent) Deliver(m *engine.Debug) {
	if m.Held != nil {
		collective.Stand(*m.Held)
		return
	}
	a.mu.Lock()
	ended := a.ended
	if !ended {
		a.asked = append(a.asked, m)
	}
	a.mu.Unlock()
	if ended {
		a.over(m)
		return
	}
	a.Wanted.Store(true)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take returns the next thing asked for, nil without one.
func (a *Agent) take() *engine.Debug {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) == 0 {
		a.Wanted.Store(false)
		return nil
	}
	m := a.asked[0]
	a.asked = a.asked[1:]
	return m
}

// serve does what was asked for.
func (a *Agent) serve() {
	for m := a.take(); m != nil; m = a.take() {
		answer := a.obey(m)
		answer.ID = m.ID
		_ = a.send(answer)
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
	return engine.Moment{Updates: a.Rank.Updates, Steps: a.Thread.ExecutionSteps() - a.base, Digest: a.digest}
}

// Updated is called after an update of the rank's parameters, which have the digest.
func (a *Agent) Updated(digest uint64) {
	if a == nil || a.Thread == nil {
		return
	}
	a.base, a.digest, a.given = a.Thread.ExecutionSteps(), digest, false
	for _, b := range a.breaks {
		if b.Updates == a.Rank.Updates && !a.straight {
			a.due = &engine.Stopped{Why: engine.AtBreakpoint, Break: b.ID, Text: fmt.Sprintf("update %d has been made", b.Updates)}
		}
	}
	if a.until != nil || a.due != nil {
		a.arm()
	}
}

// leadIn is how many steps before the moment for which it is bound a rank is followed statement by statement, so that the
// statements before that moment are known.
const leadIn = 100_000

// traces reports whether the rank is followed statement by statement.
func (a *Agent) traces() bool {
	if a.to != engine.ToBreak || a.find != nil {
		return true
	}
	if slices.ContainsFunc(a.breaks, func(b *breakpoint) bool { return b.Line > 0 }) {
		return true
	}
	return a.until != nil && a.Rank.Updates >= a.until.Updates-1 && (a.Rank.Updates < a.until.Updates || a.now().Steps+leadIn >= a.until.Steps)
}

// next is the step at which the thread has to call step.
func (a *Agent) next() uint64 {
	steps := a.Thread.ExecutionSteps()
	if a.due != nil || a.pause || a.waits || a.told > 0 || a.Wanted.Load() || a.traces() {
		return steps + 1
	}
	a.follows = false
	switch u := a.until; {
	case u == nil || a.Rank.Updates < u.Updates:
		return lang.Never
	case u.Steps > leadIn:
		return max(steps+1, a.base+u.Steps-leadIn)
	}
	return steps + 1
}

// step is called by the interpreter, before a step.
func (a *Agent) step(*starlark.Thread) uint64 {
	a.serve()
	if a.told > 0 {
		a.told = 0
		if !a.waits {
			_ = a.send(&engine.Debugged{Goes: true})
		}
	}
	switch {
	case a.due != nil:
		s := a.due
		a.due = nil
		a.stop(*s)
	case a.waits: // the wait is over
		a.waits = false
		a.stop(engine.Stopped{Why: engine.AtPause})
	case a.arrived():
		a.until = nil
		a.stop(engine.Stopped{Why: engine.AtGoal})
	case a.pause:
		a.stop(engine.Stopped{Why: engine.AtPause})
	case a.traces():
		a.follow()
	}
	return a.next()
}

func (a *Agent) arrived() bool {
	u := a.until
	return u != nil && (a.Rank.Updates > u.Updates || a.Rank.Updates == u.Updates && a.now().Steps >= u.Steps)
}

// follow sees whether a statement begins, and whether the rank stops there.
func (a *Agent) follow() {
	at, begins := a.statement()
	if !begins {
		return
	}
	depth := len(a.here)
	a.log.add(entry{a.now(), depth, at})
	if a.find != nil {
		a.note()
	}
	for _, b := range at.file.breaks[at.line] {
		if a.straight {
			break
		}
		if s := a.meets(b); s != nil {
			a.stop(*s)
			return
		}
	}
	switch a.to {
	case engine.ToBreak:
		return
	case engine.Over:
		if depth > a.depth {
			return
		}
	case engine.Out:
		if depth >= a.depth {
			return
		}
	case engine.ToMain:
		if a.Rank.Stage != starlib.Running {
			return
		}
	}
	a.stop(engine.Stopped{Why: engine.AtStep})
}

// meets stops at a breakpoint whose condition holds. A search only notes it.
func (a *Agent) meets(b *breakpoint) *engine.Stopped {
	s := &engine.Stopped{Why: engine.AtBreakpoint, Break: b.ID}
	if b.when != nil {
		v, err := a.evaluate(b.when, 0)
		if err == nil {
			var holds bool
			holds, err = truth(v)
			if err == nil && !holds {
				return nil
			}
		}
		if err != nil {
			s.Text = fmt.Sprintf("the condition %s could not be evaluated: %v", b.Condition, err)
		}
	}
	if a.find != nil {
		a.hit()
		return nil
	}
	return s
}

// statement gives the statement at which the thread is, and whether it begins here. A statement is seen once its first
// position has been, which is that of a name that it reads.
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
		a.here = append(a.here, place{})
	}
	at = a.placeAt(0)
	if at.line == 0 || at == a.here[depth-1] {
		return at, false
	}
	a.here[depth-1] = at
	return at, true
}

// resume begins to follow the thread: it is in the midst of the statements of all its frames.
func (a *Agent) resume() {
	a.here = a.here[:0]
	for depth := a.Thread.CallStackDepth() - 1; depth >= 0; depth-- {
		a.here = append(a.here, a.placeAt(depth))
	}
	a.follows = true
}

func (a *Agent) placeAt(depth int) place {
	pos := a.Thread.DebugFrame(depth).Position()
	f := a.fileOf(pos.Filename())
	if f == nil {
		return place{}
	}
	return place{f, f.lines.Statement(pos.Line)}
}

// fileOf finds a file of the recipe by the name that positions show; nil for another.
func (a *Agent) fileOf(name string) *file {
	if a.latest != nil && a.latest.name == name {
		return a.latest
	}
	f, known := a.files[name]
	if !known {
		if src := a.Source(name); src != nil {
			if parsed, err := lang.Parse(name, src); err == nil {
				f = &file{name: name, lines: parsed.Lines(a.Marks)}
			}
		}
		if a.files == nil {
			a.files = map[string]*file{}
		}
		a.files[name] = f
		a.place(f)
	}
	if f != nil {
		a.latest = f
	}
	return f
}

// place notes which breakpoints are in a file.
func (a *Agent) place(f *file) {
	if f == nil {
		return
	}
	f.breaks = map[int32][]*breakpoint{}
	for _, b := range a.breaks {
		if b.Line > 0 && b.File == f.name {
			f.breaks[b.Line] = append(f.breaks[b.Line], b)
		}
	}
}

// stop holds the thread until the debugger lets it go on, or the run ends.
func (a *Agent) stop(s engine.Stopped) {
	a.to, a.pause, a.still, a.straight = engine.ToBreak, false, true, false
	since := time.Now()
	a.tell(s)
	for a.still && a.ctx.Err() == nil {
		a.serve()
		if !a.still {
			break
		}
		select {
		case <-a.wake:
		case <-a.ctx.Done():
		}
	}
	a.still = false
	a.held += time.Since(since)
	a.resume()
}

// tell says that the thread stands still.
func (a *Agent) tell(s engine.Stopped) {
	a.parts = nil
	s.Moment = a.now()
	s.Seconds = (time.Since(a.began) - a.held).Seconds()
	s.Frames = a.stack()
	s.Back = a.log.before(s.Moment, a.Thread.CallStackDepth())
	found := []engine.FoundMoment(nil)
	if a.find != nil && s.Why == engine.AtGoal {
		found = a.find.list()
		a.find = nil
	}
	_ = a.send(&engine.Debugged{Stopped: &s, Found: found})
}

// Starts is called before each of the rank's calls of other ranks.
func (a *Agent) Starts(c *collective.Call) {
	if len(a.breaks) == 0 {
		return
	}
	for _, b := range a.breaks {
		if a.straight {
			break
		}
		if b.Collective == "*" || b.Collective != "" && (b.Collective == c.Kind.String() || "dist."+b.Collective == c.Builtin || b.Collective == c.Builtin) {
			if a.find != nil {
				a.hit()
				return
			}
			a.stop(engine.Stopped{Why: engine.AtBreakpoint, Break: b.ID, Text: "before " + describe(c)})
			a.arm()
			return
		}
	}
}

// longWait is how long a rank waits for others before the debugger is told.
const longWait = 100 * time.Millisecond

// Waiting is called now and then while the rank waits for others.
func (a *Agent) Waiting() {
	if a.Thread == nil {
		return
	}
	if a.attended && !a.waits {
		switch steps := a.Thread.ExecutionSteps(); {
		case a.slept != steps:
			a.slept, a.asleep = steps, time.Now()
		case a.told != steps && time.Since(a.asleep) > longWait:
			a.told = steps
			_ = a.send(&engine.Debugged{Waits: true})
			a.arm()
		}
	}
	if a.Wanted.Load() {
		a.serve()
		a.arm()
	}
	if a.pause && !a.waits {
		a.pause, a.waits = false, true
		a.tell(engine.Stopped{Why: engine.AtPause, Waits: true})
	}
}

// obey does what the debugger asks for, on the recipe's goroutine.
func (a *Agent) obey(m *engine.Debug) *engine.Debugged {
	answer := &engine.Debugged{}
	a.attended = !m.Leave
	if m.Leave {
		a.breaks, a.until, a.find, a.due, a.pause, a.to = nil, nil, nil, nil, false, engine.ToBreak
		a.still, a.waits = false, false
		a.replace(nil)
		collective.Stand(false)
	}
	if m.Breaks != nil {
		if err := a.replace(*m.Breaks); err != nil {
			answer.Error = err.Error()
		}
	}
	if m.Find != nil {
		find, err := a.newFinding(m.Find)
		if err != nil {
			answer.Error = err.Error()
			return answer
		}
		a.find = find
		a.watch()
	}
	if m.Pause && !a.still && !a.waits {
		a.pause = true
	}
	if m.Go != nil {
		a.to, a.until, a.straight, a.still, a.waits, a.told, a.slept = m.Go.To, m.Go.Until, m.Go.Straight, false, false, 0, 0
		a.depth = a.Thread.CallStackDepth()
	}
	if m.Look != nil {
		if !a.still && !a.waits {
			answer.Error = "the rank is executing: pause it first"
			return answer
		}
		if err := a.look(m.Look, answer); err != nil {
			answer.Error = err.Error()
		}
	}
	return answer
}

// replace sets the breakpoints.
func (a *Agent) replace(list []engine.Breakpoint) (err error) {
	a.breaks = nil
	for _, b := range list {
		if b.Ranks != nil && !slices.Contains(b.Ranks, a.Rank.Rank) {
			continue
		}
		own := &breakpoint{Breakpoint: b}
		if b.Condition != "" {
			if own.when, err = a.parse(b.Condition); err != nil {
				return err
			}
		}
		a.breaks = append(a.breaks, own)
	}
	for _, f := range a.files {
		a.place(f)
	}
	a.watch()
	return nil
}

// watch has the tensors' operations tell the agent of values that are not finite, once that is wanted.
func (a *Agent) watch() {
	wanted := func() *breakpoint {
		if i := slices.IndexFunc(a.breaks, func(b *breakpoint) bool { return b.NotFinite }); i >= 0 {
			return a.breaks[i]
		}
		return nil
	}
	if a.watched || wanted() == nil && a.find == nil {
		return
	}
	a.watched = true
	recipes := a.Tensors.Watch
	a.Tensors.Watch = func(op string, out *tensor.Tensor, inputs []*tensor.Tensor) {
		if recipes != nil {
			recipes(op, out, inputs)
		}
		b := wanted()
		if a.evaluates || a.straight || b == nil && a.find == nil {
			return
		}
		switch text := a.notFinite(op, out, inputs); {
		case text == "":
		case a.find != nil:
			a.operation(text)
			if b != nil {
				a.hit()
			}
		default:
			a.stop(engine.Stopped{Why: engine.AtBreakpoint, Break: b.ID, Text: text})
			a.arm()
		}
	}
}

// Stuck is called while the rank waits for ranks that wait for it, and reports whether the debugger holds it there: a run that
// is debugged does not fail before somebody has looked.
func (a *Agent) Stuck(why string) (held bool) {
	if a.Thread == nil || !a.attended {
		return false
	}
	steps := a.Thread.ExecutionSteps()
	if a.stuck != steps {
		a.stuck, a.waits, a.pause = steps, true, false
		a.tell(engine.Stopped{Why: engine.AtDeadlock, Waits: true, Text: why})
	}
	return a.waits
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
