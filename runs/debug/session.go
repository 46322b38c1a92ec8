package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.starlark.net/starlark"

	"drun/engine"
	agent "drun/engine/debug"
	"drun/engine/recipe"
	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/runs/replay"
	"drun/starlib/lang"
	"drun/starlib/universe"
)

// Event is what has happened in the run.
type Event struct {
	Rank    int
	Begun   bool            // the ranks have started
	Stopped *engine.Stopped // the rank stands still
	Waits   bool            // the rank has waited for others for a while
	Ended   bool            // the rank has
	Over    bool            // the run has ended
	Why     string          // it, or the rank, has failed
	Present bool            // the debugger is back from the past
}

// A Session is one debugger, on one run. Its methods are called by one goroutine at a time, except Pause.
type Session struct {
	Events <-chan Event

	options run.Options
	given   []engine.Param // nil: the history has them
	secrets []engine.Param
	bundle  *recipe.Bundle
	env     starlark.StringDict
	lines   map[string]*lang.Lines
	marks   bool
	leaves  bool // the run goes on without the debugger
	breaks  []engine.Breakpoint
	lastID  int

	events  *mailbox
	mu      sync.Mutex       // guards which world is shown
	base    *world           // the run itself, or the repetition that the session began with
	past    *world           // nil: the base is shown
	present []*engine.Moment // of each rank, in the base, while past is shown; nil: it has ended
	source  *world           // the recorded run that TakeUp repeats; nil: base is the run itself
	closed  bool
	leaving sync.WaitGroup // repetitions that are no longer shown, and end
}

func newSession(o run.Options) *Session {
	s := &Session{options: o, breaks: []engine.Breakpoint{}, lines: map[string]*lang.Lines{}, events: newMailbox()}
	s.Events = s.events.out
	s.env = universe.Names()
	return s
}

// Launch starts a run under the debugger. Its ranks wait before their first step, until Start.
func Launch(o run.Options) (_ *Session, err error) {
	defer try.Caught(&err)
	try.Ok(o.Read())
	s := newSession(o)
	s.bundle, s.marks = o.Bundle(), true
	s.given = try.To(o.Given())
	s.begin(try.To(s.launch(o, func() {})))
	return s, nil
}

// begin makes a world the one that the session is about.
func (s *Session) begin(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = w
}

// launch runs a recipe in a home under the debugger, until its ranks wait at their beginning. after is called once it has ended.
func (s *Session) launch(o run.Options, after func()) (*world, error) {
	w := newWorld(nil)
	w.emit = func(e Event) { s.happened(w, e) }
	signals := make(chan os.Signal, 2)
	outer := o.Signals
	o.Debug, o.Marks, o.Signals = w, s.marks, signals
	o.OnEntered = func(id int64) { w.change(func() { w.home, w.id = o.Home, id }) }
	w.end = sync.OnceFunc(func() {
		for range 2 {
			signals <- syscall.SIGTERM
		}
	})
	go func() {
		for {
			select {
			case sig := <-outer:
				signals <- sig
			case <-w.ran:
				return
			}
		}
	}()
	go func() {
		r, err := run.Run(o)
		w.result, w.refused = r, err
		why := ""
		switch {
		case err != nil:
			why = err.Error()
		case r.Failure != nil:
			why = r.Failure.Text(r.Ranks)
		}
		w.Over(why)
		after()
		close(w.ran)
	}()
	_ = w.await(context.Background(), func() bool { return w.over || len(w.ranks) > 0 && w.quiet() })
	if w.over {
		<-w.ran
		if w.refused == nil {
			w.refused = exit.WithCode(errors.New(w.why), w.result.Code)
		}
		return nil, w.refused
	}
	return w, nil
}

// Attach comes to a run that goes on.
func Attach(o run.Options, db *history.DB, home string, id int64, secrets []engine.Param) (_ *Session, err error) {
	defer try.Caught(&err)
	s := newSession(o)
	s.secrets, s.leaves = secrets, true
	s.bundle = try.To(replay.Captured(db, home, id))
	conn := try.To(db.Debug(context.Background(), id))
	w := newWorld(nil)
	w.emit = func(e Event) { s.happened(w, e) }
	w.home, w.id = home, id
	s.begin(w)
	w.end = func() {
		w.change(func() { w.over = true })
		conn.Close()
	}
	go w.visit(conn)
	_ = w.await(context.Background(), func() bool { return w.over || len(w.ranks) > 0 })
	if w.over {
		return nil, exit.Errorf(exit.Usage, "run %d cannot be debugged: %s", id, w.why)
	}
	return s, nil
}

// visit takes part in a run of another process.
func (w *world) visit(conn net.Conn) {
	defer close(w.ran)
	channel := engine.ChannelOver(conn)
	send := func(rank int, m *engine.Debug) {
		_ = channel.Send(engine.Debugging{Rank: rank, Debug: m}) // the reader notices that the other end is gone
	}
	for {
		var m engine.Debugging
		if err := channel.Receive(&m); err != nil {
			w.Over("the process that leads the run is gone") // unless the session has ended
			return
		}
		switch {
		case m.World > 0:
			w.Begun(m.World, send)
		case m.Debugged != nil:
			w.Said(m.Rank, m.Debugged)
		case m.Ended != nil:
			w.Ended(m.Rank, *m.Ended)
		case m.Over != nil:
			w.Over(*m.Over)
			return
		}
	}
}

// TakeUp repeats a recorded run up to a step, as `drun at` finds it.
func TakeUp(o run.Options, db *history.DB, home string, id, step int64, secrets []engine.Param) (_ *Session, err error) {
	defer try.Caught(&err)
	s := newSession(o)
	s.secrets, s.marks = secrets, true
	s.bundle = try.To(replay.Captured(db, home, id))
	updates := try.To(replay.UpdatesAt(db, home, id, step))
	s.source = &world{home: home, id: id}
	w := try.To(s.repeat(updates, nil))
	s.begin(w)
	goal := engine.Moment{Updates: updates}
	for rank := range w.all() {
		w.letGo(rank, engine.Go{Until: &goal})
	}
	_ = w.await(context.Background(), w.quiet)
	if w.over {
		return nil, exit.Errorf(exit.Recipe, "the run could not be taken up at step %d: %s", step, w.why)
	}
	return s, nil
}

// Start lets the ranks of a run that was launched begin; entry stops them at the first statement of main.
func (s *Session) Start(entry bool) {
	if s.source != nil || s.leaves {
		return
	}
	how := engine.Go{}
	if entry {
		how.To = engine.ToMain
	}
	for rank := range s.base.all() {
		s.base.letGo(rank, how)
	}
}

// shown is the world that is shown.
func (s *Session) shown() *world {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past != nil {
		return s.past
	}
	return s.base
}

// InPast reports whether the debugger has gone back.
func (s *Session) InPast() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past != nil
}

// Ranks is what is known of all ranks.
func (s *Session) Ranks() []Rank { return s.shown().all() }

// happened passes on an event of the world that is shown.
func (s *Session) happened(w *world, e Event) {
	if e == (Event{}) {
		return
	}
	s.mu.Lock()
	past, base := s.past, s.base == w
	shown := past == w || past == nil && base
	s.mu.Unlock()
	switch {
	case e.Begun:
		if base { // the ranks have started again
			s.tellBreaks(w)
		}
		return
	case past != nil && past == w && (e.Ended || e.Over):
		return // a repetition that ends is as good as one that waits
	case !shown && !(base && e.Over):
		return
	case past != nil && past == w && e.Stopped != nil && s.returned(w):
		return
	}
	s.events.put(e)
}

// Bundle is the recipe.
func (s *Session) Bundle() *recipe.Bundle { return s.bundle }

// Statements lists the lines of a file's statements; nil: the recipe has no such file.
func (s *Session) Statements(file string) *lang.Lines {
	if l := s.lines[file]; l != nil {
		return l
	}
	src := s.bundle.Shown(file)
	if src == nil {
		return nil
	}
	parsed, err := lang.Parse(file, src.Content)
	if err != nil {
		return nil
	}
	s.lines[file] = parsed.Lines(s.marks)
	return s.lines[file]
}

// Breakpoints lists the breakpoints.
func (s *Session) Breakpoints() []engine.Breakpoint { return slices.Clone(s.breaks) }

// Place checks a breakpoint, gives it a number, and moves one at a line to a line with a statement, which moved says. It takes
// effect with SetBreakpoints.
func (s *Session) Place(b engine.Breakpoint) (_ engine.Breakpoint, moved string, err error) {
	defer try.Caught(&err)
	s.lastID++
	b.ID = s.lastID
	if b.Line == 0 {
		if b.Condition != "" {
			return b, "", exit.Errorf(exit.Usage, "only a breakpoint at a line can have a condition")
		}
		return b, "", nil
	}
	lines := s.Statements(b.File)
	if lines == nil {
		return b, "", exit.WithHint(exit.Errorf(exit.Usage, "the run has no file %s", b.File), "its files: "+strings.Join(s.Files(), ", "))
	}
	line := lines.Near(b.Line)
	if line == 0 {
		return b, "", exit.Errorf(exit.Usage, "%s has no statement at line %d or after it", b.File, b.Line)
	}
	if line != b.Line {
		moved = fmt.Sprintf("line %d has no statement of its own: moved to line %d", b.Line, line)
		b.Line = line
	}
	if b.Condition != "" {
		try.Ok(s.checkExpression(b.Condition, lines))
	}
	return b, moved, nil
}

// checkExpression refuses an expression that has an error or may change something.
func (s *Session) checkExpression(src string, lines *lang.Lines) error {
	e, err := agent.Parse(src, s.env)
	if err != nil {
		return exit.Errorf(exit.Usage, "%s", err.Error())
	}
	for _, name := range e.Names {
		if lines != nil && !slices.Contains(lines.Names, name) && s.env[name] == nil && starlark.Universe[name] == nil {
			return exit.Errorf(exit.Usage, "%s: nothing in the file has the name %s", src, name)
		}
	}
	return nil
}

// Files lists the recipe's files, as positions show them.
func (s *Session) Files() (names []string) {
	for _, src := range s.bundle.Sources {
		names = append(names, recipe.Display(s.bundle.Name, src.Path))
	}
	return names
}

// SetBreakpoints replaces all breakpoints by ones that Place has returned.
func (s *Session) SetBreakpoints(list []engine.Breakpoint) {
	s.mu.Lock()
	s.breaks = append([]engine.Breakpoint{}, list...) // not nil, which would be left out
	s.mu.Unlock()
	s.tellBreaks(s.base)
	if w := s.shown(); w != s.base {
		s.tellBreaks(w)
	}
}

// tellBreaks tells the ranks of a world the breakpoints.
func (s *Session) tellBreaks(w *world) {
	s.mu.Lock()
	list := s.breaks // which is replaced, and not changed, while it is sent
	s.mu.Unlock()
	for rank := range w.all() {
		w.tell(rank, &engine.Debug{Breaks: &list})
	}
}

// Go lets ranks that are held go on, nil for all, as far as to says (engine.ToBreak, …). In the past they go no further than
// the present.
func (s *Session) Go(ranks []int, to string) {
	w := s.shown()
	for rank, r := range w.all() {
		if r.State != Held || ranks != nil && !slices.Contains(ranks, rank) {
			continue
		}
		how := engine.Go{To: to}
		if w != s.base {
			if how.Until = s.present[rank]; how.Until != nil && !r.Stop.Moment.Before(*how.Until) {
				continue // it is there
			}
		}
		w.letGo(rank, how)
	}
}

// Pause stops ranks at their next step, nil for all.
func (s *Session) Pause(ranks []int) {
	w := s.shown()
	for rank, r := range w.all() {
		if r.State != Held && (ranks == nil || slices.Contains(ranks, rank)) {
			w.tell(rank, &engine.Debug{Pause: true})
		}
	}
}

// Settle waits until each of the ranks, nil for all, stands still, waits for others or has ended, or the run is over.
func (s *Session) Settle(ctx context.Context, ranks []int) error {
	w := s.shown()
	return w.await(ctx, func() bool {
		if w.failing() {
			return w.over
		}
		held := false
		for rank, r := range w.ranks {
			if r.State == Executes && (ranks == nil || slices.Contains(ranks, rank)) {
				return w.over
			}
			held = held || r.State == Held || r.State == Ended
		}
		return held || w.over // ranks that all wait are in a deadlock, which they tell, or soon go on
	})
}

// Stopped waits until some rank stands still and the others have had a moment to come to a stop too, or the run is over.
func (s *Session) Stopped(ctx context.Context) error {
	w := s.shown()
	err := w.await(ctx, func() bool {
		return w.over || !w.failing() && slices.ContainsFunc(w.ranks, func(r Rank) bool { return r.State == Held })
	})
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	_ = w.await(soon, w.quiet)
	if w.deadlocked() { // each rank of the circle finds that out by itself
		all, cancel := context.WithTimeout(ctx, circling)
		defer cancel()
		_ = w.await(all, func() bool {
			return w.over || !slices.ContainsFunc(w.ranks, func(r Rank) bool { return r.State == Waits })
		})
	}
	return ctx.Err()
}

// together is how long ranks that run alike may be apart in reaching the same breakpoint.
const together = 300 * time.Millisecond

// circling is how long ranks may be apart in finding that they wait for each other.
const circling = 2 * time.Second

// Look asks a rank for values.
func (s *Session) Look(ctx context.Context, rank int, l engine.Look) (*engine.Debugged, error) {
	return s.shown().ask(ctx, rank, &engine.Debug{Look: &l})
}

// Over reports whether the run has ended, and why, if it has failed.
func (s *Session) Over() (over bool, why string) {
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	return s.base.over, s.base.why
}

// Ended waits until the run has ended and is recorded, and returns how it ended; nil for a run of another process.
func (s *Session) Ended() (*run.Result, error) {
	<-s.base.ran
	return s.base.result, s.base.refused
}

// Close ends the session: a run that was attached to goes on, another ends.
func (s *Session) Close() {
	s.mu.Lock()
	past, closed := s.past, s.closed
	s.past, s.closed = nil, true
	s.mu.Unlock()
	if closed {
		return
	}
	if past != nil {
		past.close()
	}
	s.leaving.Wait()
	s.base.close()
	s.events.close()
}

// Leaves reports whether the run goes on when the session is closed.
func (s *Session) Leaves() bool { return s.leaves }

// repeat begins a repetition of the run from the nearest checkpoint with fewer updates, up to where its ranks wait at their
// beginning.
func (s *Session) repeat(updates int64, say func(*replay.Rerun)) (_ *world, err error) {
	defer try.Caught(&err)
	from := s.source
	if from == nil {
		from = s.base
	}
	db := try.To(history.OpenReadOnly(from.home))
	defer db.Close()
	dir := try.To(scratch.Make("debug-"))
	o := s.options
	o.Stdout, o.Stderr, o.Terminal, o.LogFiles, o.Signals, o.Join = io.Discard, io.Discard, false, nil, nil, nil
	a := try.To(replay.Prepare(o, db, from.home, from.id, s.secrets, s.given, updates, dir.Path))
	if say != nil {
		say(a)
	}
	w, err := s.launch(a.Options, dir.Remove)
	if err != nil {
		return nil, fmt.Errorf("the run cannot be repeated: %w", err)
	}
	w.from = a
	return w, nil
}

// mailbox passes events on in order, and never waits for their reader.
type mailbox struct {
	out  chan Event
	mu   sync.Mutex
	list []Event
	wake chan struct{}
	done chan struct{}
}

func newMailbox() *mailbox {
	m := &mailbox{out: make(chan Event), wake: make(chan struct{}, 1), done: make(chan struct{})}
	go m.pass()
	return m
}

func (m *mailbox) put(e Event) {
	m.mu.Lock()
	m.list = append(m.list, e)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) pass() {
	defer close(m.out)
	for {
		m.mu.Lock()
		list := m.list
		m.list = nil
		m.mu.Unlock()
		for _, e := range list {
			select {
			case m.out <- e:
			case <-m.done:
				return
			}
		}
		select {
		case <-m.wake:
		case <-m.done:
			return
		}
	}
}

func (m *mailbox) close() { close(m.done) }
