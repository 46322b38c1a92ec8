package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/engine"
	agent "drun/engine/debug"
	"drun/engine/recipe"
	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/spelling"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/replay"
	"drun/starlib/lang"
	"drun/starlib/universe"
)

// A Session is one debugger, on one run. Its methods are called by one goroutine at a time, except Pause, Now and Follow.
type Session struct {
	Bundle *recipe.Bundle
	Leaves bool // the run goes on without the debugger

	options run.Options
	given   []engine.Param // nil: the history has them
	secrets []engine.Param
	env     starlark.StringDict
	marks   bool
	lastID  int

	mu       sync.Mutex                     // guards the rest, and the worlds
	changed  chan struct{}                  // closed at each change
	breaks   map[string][]engine.Breakpoint // by who has set them
	base     *world                         // the run itself, or the repetition that the session began with
	past     *world                         // nil: the base is shown
	mortem   bool                           // past is that of a run that has failed: it does not come back to the base
	present  []*engine.Moment               // of each rank, in the base, while past is shown; nil: it has ended
	source   *world                         // the recorded run that TakeUp repeats; nil: base is the run itself
	left     bool                           // the run goes on without the debugger, which has been there
	closed   bool
	leaving  sync.WaitGroup  // repetitions that are no longer shown, and end
	spare    func() *world   // waits for the repetition that was begun for the next step back, see prepare; nil: there is none
	lacking  map[int64]int64 // states, by their updates, that lack variables, and up to which update that was seen
	loose    bool            // the variables have other values in each repetition
	untold   bool            // and nobody has been told so
	unproven bool            // it was told that nothing proves that a repetition has come to the same values

	repeating sync.Mutex // held while a repetition begins; guards made
	made      []*world   // the repetitions that go on, or that have kept states
	closing   sync.Once
}

// change makes a change that others may wait for.
func (s *Session) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until something is so, or ctx ends.
func (s *Session) await(ctx context.Context, is func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := is(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newSession(o run.Options) *Session {
	return &Session{options: o, env: universe.Names(), changed: make(chan struct{}), breaks: map[string][]engine.Breakpoint{}, lacking: map[int64]int64{}}
}

// Launch starts a run under the debugger. Its ranks wait before their first step, until Start. If ctx ends before they do, the
// run ends.
func Launch(ctx context.Context, o run.Options) (_ *Session, err error) {
	defer try.Caught(&err)
	try.Ok(o.Read())
	s := newSession(o)
	s.Bundle, s.marks = o.Bundle(), true
	s.given = try.To(o.Given())
	s.base = try.To(s.launch(ctx, o))
	return s, nil
}

// launch runs a recipe in a home under the debugger, until its ranks wait at their beginning.
func (s *Session) launch(ctx context.Context, o run.Options) (*world, error) {
	own, theirs := net.Pipe()
	w := s.newWorld(own)
	signals := make(chan os.Signal, 2)
	o.Debug, o.Marks, o.Signals = theirs, s.marks, signals
	o.OnEntered = func(id int64) { s.change(func() { w.home, w.id = o.Home, id }) }
	w.end = sync.OnceFunc(func() {
		for range 2 {
			signals <- syscall.SIGTERM
		}
	})
	go func() {
		var heard sync.WaitGroup
		heard.Go(w.listen)
		w.result, w.refused = run.Run(o)
		theirs.Close()
		heard.Wait()
		why := ""
		if w.refused != nil {
			why = w.refused.Error()
		} else if w.result.Failure != nil {
			why = w.result.Failure.Text(w.result.Ranks)
		}
		s.change(func() { w.finish(why) })
		close(w.ran)
	}()
	if s.await(ctx, w.quiet) != nil {
		w.close()
		return nil, errInterrupted
	}
	if w.over {
		<-w.ran
		if w.refused == nil {
			w.refused = exit.WithCode(errors.New(w.why), w.result.Code)
		}
		return nil, w.refused
	}
	return w, nil
}

var errInterrupted = exit.Errorf(exit.Interrupted, "interrupted before the ranks stood still")

// Attach comes to a run that goes on.
func Attach(ctx context.Context, o run.Options, db *history.DB, home string, id int64, secrets []engine.Param) (_ *Session, err error) {
	defer try.Caught(&err)
	s := newSession(o)
	s.secrets, s.Leaves = secrets, true
	s.Bundle = try.To(replay.Captured(db, home, id))
	conn := try.To(db.Debug(ctx, id))
	w := s.newWorld(conn)
	w.home, w.id, s.base = home, id, w
	w.end = func() {
		s.change(func() { s.left = true })
		w.link.Close()
	}
	go func() {
		w.listen()
		s.change(func() { w.finish("the process that leads the run is gone") }) // unless it has said why it ends
		close(w.ran)
	}()
	if s.await(ctx, func() bool { return w.over || len(w.ranks) > 0 }) != nil {
		w.close()
		return nil, errInterrupted
	}
	if w.over {
		return nil, exit.Errorf(exit.Usage, "run %d cannot be debugged: %s", id, w.why)
	}
	return s, nil
}

// TakeUp repeats a recorded run up to a step, as `drun at` finds it.
func TakeUp(ctx context.Context, o run.Options, db *history.DB, home string, id, step int64, secrets []engine.Param) (_ *Session, err error) {
	defer try.Caught(&err)
	s := newSession(o)
	s.secrets, s.marks = secrets, true
	s.Bundle = try.To(replay.Captured(db, home, id))
	target := try.To(replay.TargetAt(db, home, id, step))
	s.source = &world{home: home, id: id}
	s.base = try.To(s.repeat(ctx, start{target.Updates, false}, nil, nil, nil))
	if target.Save != nil {
		s.Go(nil, engine.Go{Save: target})
	} else {
		s.Go(nil, engine.Go{Until: &engine.Moment{Updates: target.Updates}})
	}
	if s.await(ctx, s.base.quiet) != nil {
		s.Close()
		return nil, errInterrupted
	}
	if over, why := s.Over(); over {
		return nil, exit.Errorf(exit.Recipe, "the run could not be taken up at step %d: %s", step, why)
	}
	return s, nil
}

// Start lets the ranks of a run that was launched begin; entry stops them at the first statement of main.
func (s *Session) Start(entry bool) {
	switch {
	case s.source != nil || s.Leaves:
	case entry:
		s.Go(nil, engine.Go{To: engine.ToMain})
	default:
		s.Go(nil, engine.Go{})
	}
}

// View is what is known of a run at a moment.
type View struct {
	Ranks []Rank
	Past  bool // the debugger has gone back
	Over  bool // the run has ended,
	Why   string
}

// Now is what is known now.
func (s *Session) Now() (v View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{slices.Clone(s.shown().ranks), s.past != nil, s.base.over && !s.left && !s.mortem, s.base.why}
}

// Over reports whether the run has ended, and why, if it has failed.
func (s *Session) Over() (over bool, why string) {
	v := s.Now()
	return v.Over, v.Why
}

// Failed is the rank whose error has ended the run that this session has begun, if it is known where that was: StepBack goes there.
// Once it has, there is none.
func (s *Session) Failed() (rank int, is bool) {
	s.mu.Lock()
	over := s.base.over && !s.mortem
	s.mu.Unlock()
	if !over {
		return 0, false
	}
	<-s.base.ran
	if r := s.base.result; r != nil && r.Failure != nil {
		rank, is = r.Failure.Rank, true
	}
	return rank, is && rank >= 0 && rank < len(s.base.ranks) && s.base.ranks[rank].Failed != nil
}

// Follow calls see whenever something has changed, until the session is closed.
func (s *Session) Follow(see func(View)) {
	for closed := false; !closed; {
		s.mu.Lock()
		changed := s.changed
		closed = s.closed
		s.mu.Unlock()
		see(s.Now())
		if !closed {
			<-changed
		}
	}
}

// shown is the world that is shown. The caller has the lock, or is the only one who goes back and forth.
func (s *Session) shown() *world { return cmp.Or(s.past, s.base) }

// Files lists the recipe's files, as positions show them.
func (s *Session) Files() (names []string) {
	for _, src := range s.Bundle.Sources {
		names = append(names, recipe.Display(s.Bundle.Name, src.Path))
	}
	return names
}

// Placed is a breakpoint as it was set.
type Placed struct {
	engine.Breakpoint
	Moved string // why it is at another line
	Err   error  // it was refused
}

// SetBreakpoints replaces the breakpoints that somebody has set before, such as an editor for a file. Those that are new get a
// number, and one at a line without a statement is moved to the next one.
func (s *Session) SetBreakpoints(by string, list []engine.Breakpoint) (placed []Placed) {
	good := []engine.Breakpoint{}
	for _, b := range list {
		p := Placed{Breakpoint: b}
		if b.ID == 0 {
			p.Err = s.place(&p)
		}
		if placed = append(placed, p); p.Err == nil {
			good = append(good, p.Breakpoint)
		}
	}
	s.change(func() {
		s.breaks[by] = good
		s.base.tellBreaks()
		if s.past != nil {
			s.past.tellBreaks()
		}
	})
	return placed
}

func (s *Session) place(b *Placed) (err error) {
	defer func() {
		if err == nil {
			s.lastID++
			b.ID = s.lastID
		}
	}()
	if b.Line == 0 {
		if b.Condition != "" {
			return exit.Errorf(exit.Usage, "only a breakpoint at a line can have a condition")
		}
		return checkCollective(b)
	}
	lines := s.Bundle.Lines(b.File, s.marks)
	if lines == nil {
		return exit.WithHint(exit.Errorf(exit.Usage, "the run has no file %s", b.File), "its files: "+strings.Join(s.Files(), ", "))
	}
	line := lines.Near(b.Line)
	if line == 0 {
		return exit.Errorf(exit.Usage, "%s has no statement at line %d or after it", b.File, b.Line)
	}
	if line != b.Line {
		b.Moved = fmt.Sprintf("line %d has no statement of its own: moved to line %d", b.Line, line)
		b.Line = line
	}
	if b.Condition != "" {
		return s.checkExpression(b.Condition, lines)
	}
	return nil
}

// collectives are the names of calls of other ranks: the kinds, and the functions that make some.
var collectives = sync.OnceValue(func() (names []string) {
	for kind := collective.AllReduce; kind <= collective.NewGroup; kind++ {
		names = append(names, kind.String())
	}
	for _, m := range universe.Modules() {
		for _, d := range m.Defs {
			if makes := strings.Contains(d.Sig, "timeout:") || d.Name() == "batch_isend_irecv"; m.Name == "dist" && makes && !slices.Contains(names, d.Name()) {
				names = append(names, d.Name())
			}
		}
	}
	return names
})

// checkCollective refuses a name of which no call of other ranks is made.
func checkCollective(b *Placed) error {
	name := strings.TrimPrefix(b.Collective, "dist.")
	if b.Collective = name; name == "" || name == "*" || slices.Contains(collectives(), name) {
		return nil
	}
	hint := "the names are all_reduce, dist.sync_grad and others like them"
	if near := spelling.Nearest(strings.ReplaceAll(name, "-", "_"), collectives()); near != "" {
		hint = "did you mean " + near + "?"
	}
	return exit.Errorf(exit.Usage, "there is no collective %s: %s", name, hint) // an editor shows no hints
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

// Breakpoints lists all breakpoints, by their numbers.
func (s *Session) Breakpoints() []engine.Breakpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakpoints()
}

func (s *Session) breakpoints() []engine.Breakpoint {
	list := []engine.Breakpoint{} // not nil, which would be left out of a message
	for _, some := range s.breaks {
		list = append(list, some...)
	}
	slices.SortFunc(list, func(a, b engine.Breakpoint) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Delete removes breakpoints, whoever has set them: one, or all with 0. It returns how many that were.
func (s *Session) Delete(id int) (n int) {
	for by, list := range s.breaks {
		left := slices.DeleteFunc(slices.Clone(list), func(b engine.Breakpoint) bool { return id == 0 || b.ID == id })
		if n += len(list) - len(left); len(left) < len(list) {
			s.SetBreakpoints(by, left)
		}
	}
	return n
}

// Go lets ranks that are held go on, nil for all. In the past they go no further than the present.
func (s *Session) Go(ranks []int, how engine.Go) {
	s.change(func() {
		w := s.shown()
		for rank, r := range w.ranks {
			if r.State != Held || ranks != nil && !slices.Contains(ranks, rank) {
				continue
			}
			if w == s.past {
				if how.Until = s.present[rank]; how.Until != nil && !r.Stop.Moment.Before(*how.Until) {
					continue // it is there
				}
			}
			w.letGo(rank, how)
		}
	})
}

// Pause stops ranks at their next step, nil for all.
func (s *Session) Pause(ranks []int) {
	s.change(func() {
		w := s.shown()
		for rank, r := range w.ranks {
			if r.State != Held && (ranks == nil || slices.Contains(ranks, rank)) {
				w.tell(rank, &engine.Debug{Pause: true})
			}
		}
	})
}

// Settle waits until each of the ranks, nil for all, stands still, waits for others or has ended, or the run is over.
func (s *Session) Settle(ctx context.Context, ranks []int) error {
	return s.await(ctx, func() bool {
		w := s.shown()
		if w.over || w.failing() {
			return w.over
		}
		for rank, r := range w.ranks {
			if r.State == Executes && (ranks == nil || slices.Contains(ranks, rank)) {
				return false
			}
		}
		return w.any(Held) || w.any(Ended) // ranks that all wait are in a deadlock, which they tell, or soon go on
	})
}

// Stopped waits until some rank stands still and the others have had a moment to come to a stop too, or the run is over.
func (s *Session) Stopped(ctx context.Context) error {
	err := s.await(ctx, func() bool {
		w := s.shown()
		return w.over || !w.failing() && w.any(Held)
	})
	if err != nil {
		return err
	}
	within := func(d time.Duration, is func(w *world) bool) bool {
		soon, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return s.await(soon, func() bool { return is(s.shown()) }) == nil
	}
	within(together, (*world).quiet)
	deadlocked := func(r Rank) bool { return r.State == Held && r.Stop.Why == engine.AtDeadlock }
	if slices.ContainsFunc(s.Now().Ranks, deadlocked) { // each rank of the circle finds that out by itself
		within(circling, func(w *world) bool { return w.over || !w.any(Waits) })
	}
	return ctx.Err()
}

// together is how long ranks that run alike may be apart in reaching the same breakpoint.
const together = 300 * time.Millisecond

// circling is how long ranks may be apart in finding that they wait for each other.
const circling = 2 * time.Second

// Stands is where a rank stands still.
func (s *Session) Stands(rank int) (*engine.Stopped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown().stands(rank)
}

// Look asks a rank for values. Their texts can be shown as they are.
func (s *Session) Look(ctx context.Context, rank int, l engine.Look) (_ []engine.DebugValue, err error) {
	var w *world
	var stop *engine.Stopped
	s.change(func() {
		w = s.shown()
		if stop, err = w.stands(rank); err == nil {
			w.asked, w.answer = w.asked+1, nil
			l.ID = w.asked
			w.tell(rank, &engine.Debug{Look: &l})
		}
	})
	if err != nil {
		return nil, err
	}
	var answer *engine.Seen
	err = s.await(ctx, func() bool {
		answer = w.answer
		is, _ := w.stands(rank)
		return answer != nil || is != stop
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("rank %d did not answer: %w", rank, err)
	case answer == nil:
		return nil, exit.Errorf(exit.Usage, "rank %d has ended", rank)
	case answer.Error != "":
		return nil, exit.Errorf(exit.Usage, "%s", answer.Error)
	}
	for i := range answer.Values {
		answer.Values[i].Text = terminal.Escape(answer.Values[i].Text)
	}
	return answer.Values, nil
}

// Ended waits until the run has ended and is recorded, and returns how it ended; nil for a run of another process. The
// repetition of a recorded run has no number.
func (s *Session) Ended() (*run.Result, error) {
	<-s.base.ran
	r := s.base.result
	if r != nil && s.source != nil {
		repetition := *r
		repetition.ID, r = 0, &repetition
	}
	return r, s.base.refused
}

// Close ends the session: a run that was attached to goes on, another ends.
func (s *Session) Close() {
	s.closing.Do(func() {
		var past *world
		s.change(func() { past, s.past = s.past, nil })
		if past != nil {
			past.close()
		}
		s.dismiss()
		s.leaving.Wait()
		s.base.close()
		for _, w := range s.made {
			w.dir.Remove()
		}
		s.change(func() { s.closed = true })
	})
}
