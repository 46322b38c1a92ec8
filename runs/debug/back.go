package debug

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/engine"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/runs/replay"
)

// Going back repeats the run, all ranks of it, in a temporary home: from its nearest checkpoint or its beginning up to the
// earlier moment. The run itself stands still meanwhile, and goes on from where it is once the ranks of the repetition have
// come to the same moments. A repetition saves states of its own on its way, from which later ones begin. That it has come to the
// same state is proven by the digests of the parameters and of the recipe's variables after the latest update, and by the number
// of the interpreter's steps since; if it has not, another begins earlier.

// Say tells a person how long something takes before it is done.
type Say func(text string)

func (say Say) tell(text string) {
	if say != nil {
		say(text)
	}
}

// moments are where the ranks of a world are, or are to be; nil for one that has ended.
type moments []*engine.Moment

// updates is how many all of them have made.
func (all moments) updates() int64 {
	least := int64(math.MaxInt64)
	for _, m := range all {
		if m != nil {
			least = min(least, m.Updates)
		}
	}
	return least
}

// start is where a repetition begins: at a state with fewer updates, or with 0 at the beginning.
type start struct {
	updates int64
	own     bool // states that earlier repetitions have saved count, too, and this one saves some
}

// starts lists where a repetition may begin, the latest first.
func (s *Session) starts(updates int64) []start {
	list := []start{{updates, true}}
	if a := s.base.from; a != nil && a.From != (replay.State{}) && a.From.Updates < updates { // the variables were those of a run that is resumed there
		list = append(list, start{a.From.Updates + 1, false})
	}
	return append(list, start{})
}

// pausing is how long ranks may take to come to a stop before the debugger goes back.
const pausing = 10 * time.Second

// stand stops all ranks, and returns where they are.
func (s *Session) stand(ctx context.Context) (now moments, err error) {
	if _, is := s.Failed(); is {
		for _, r := range s.Now().Ranks {
			now = append(now, r.Failed)
		}
		return now, nil
	}
	s.Pause(nil)
	ctx, cancel := context.WithTimeout(ctx, pausing)
	defer cancel()
	err = s.await(ctx, func() bool {
		w := s.shown()
		return w.over || !w.any(Executes) && !w.any(Waits)
	})
	v := s.Now()
	if v.Over {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "the run has ended"), "drun debug RUN@STEP takes it up before its end")
	}
	for rank, r := range v.Ranks {
		switch {
		case r.State == Held:
			now = append(now, &r.Stop.Moment)
		case r.State == Ended:
			now = append(now, nil)
		default:
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "rank %d has not come to a stop within %v: it is in the midst of a call", rank, pausing), "pause it, and go back once it has stopped")
		}
	}
	return now, err
}

// StepBack takes ranks, nil for all, back to the beginning of the previous statement of the same function, or of its caller; in a
// run that has failed, to the step that did.
func (s *Session) StepBack(ctx context.Context, rank int, ranks []int, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	if s.Now().Over {
		return s.goTo(ctx, now, now, rank, say)
	}
	to := slices.Clone(now)
	var unknown []int
	for r, is := range s.Now().Ranks {
		switch {
		case is.State != Held || ranks != nil && !slices.Contains(ranks, r):
		case is.Stop.Back != nil:
			to[r] = is.Stop.Back
		default:
			unknown = append(unknown, r)
		}
	}
	if unknown != nil { // they were not followed then: they come to where they are once more, followed
		w := try.To(s.again(ctx, now.updates(), now, unknown, nil, engine.Go{Meets: engine.Pass, Followed: true}, say, func(_ *world, at []Rank) bool {
			return !slices.ContainsFunc(unknown, func(r int) bool { return at[r].Stop.Back == nil })
		}))
		for _, r := range unknown {
			to[r] = cmp.Or(w.at(r).Stop.Back, to[r])
		}
		s.leaving.Go(w.close)
	}
	if slices.Equal(to, now) {
		return exit.Errorf(exit.Usage, "rank %d is at the beginning", rank)
	}
	return s.goTo(ctx, now, to, rank, say)
}

// ReverseContinue takes a rank back to where it last met a breakpoint, or else all ranks to the beginning of main.
func (s *Session) ReverseContinue(ctx context.Context, rank int, say Say) (all bool, err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	if breaks := s.Breakpoints(); len(breaks) > 0 {
		met := try.To(s.search(ctx, now, []int{rank}, breaks, Last, say))[rank].Met
		for _, m := range slices.Backward(met) {
			if m.Moment.Before(*now[rank]) {
				to := slices.Clone(now)
				to[rank] = &m.Moment
				return false, s.goTo(ctx, now, to, rank, say)
			}
		}
	}
	say.tell("no breakpoint was met before: back to the beginning")
	w := try.To(s.repeat(ctx, start{}, nil, nil, say))
	s.change(func() {
		for r := range w.ranks {
			w.letGo(r, engine.Go{To: engine.ToMain})
		}
	})
	err = s.await(ctx, w.quiet)
	s.show(w, now)
	return true, err
}

// GoTo takes a rank, and others with it, back to moments that a search has found.
func (s *Session) GoTo(ctx context.Context, rank int, to map[int]engine.Moment, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	all, limits := slices.Clone(now), s.limits(now)
	for r, m := range to {
		if limits[r] != nil && m.Before(*limits[r]) {
			all[r] = &m
		}
	}
	if m, is := to[rank]; !is || all[rank] == nil || !all[rank].Same(m) {
		return exit.Errorf(exit.Usage, "that moment has not come yet")
	}
	return s.goTo(ctx, now, all, rank, say)
}

// goTo shows a repetition in which each rank is where to says or, where another keeps it from getting there, before that.
func (s *Session) goTo(ctx context.Context, now, to moments, rank int, say Say) error {
	w, err := s.again(ctx, to.updates(), to, []int{rank}, nil, engine.Go{Meets: engine.Pass}, say, func(*world, []Rank) bool { return true })
	if err == nil {
		s.show(w, now)
		s.prepare(to)
	}
	return err
}

// prepare begins the repetition for the next step back, while a person looks at the present one: from the nearest state to the end
// of the update before that in which the ranks are.
func (s *Session) prepare(to moments) {
	end := max(0, to.updates()-1)
	spare := sync.OnceValue(func() *world {
		goal, said := &engine.Moment{Updates: end}, ""
		for _, from := range s.starts(end) {
			w, err := s.repeat(context.Background(), from, nil, goal, func(text string) { said = text })
			if err != nil {
				break // the step back finds out why
			}
			if w == nil {
				continue
			}
			if w.said, w.upTo = said, end; end > 0 {
				w.send(slices.Repeat(moments{goal}, len(w.ranks)), nil, engine.Go{Meets: engine.Pass})
			}
			return w
		}
		return nil
	})
	s.change(func() { s.spare = spare })
	s.leaving.Go(func() { spare() })
}

// ready takes the repetition that was prepared, once it stands; nil: there is none, or it does not lead to the moments.
func (s *Session) ready(ctx context.Context, to moments, say Say) *world {
	w := s.unprepare()
	if w == nil {
		return nil
	}
	leads := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for rank, m := range to {
			r := w.ranks[rank]
			if m != nil && (r.State != Held || !r.Stop.Moment.Before(*m) || r.Stop.Moment.Updates < m.Updates-1) {
				return false
			}
		}
		return !w.over
	}
	if n := to.updates(); w.upTo == n || w.upTo == n-1 {
		s.mu.Lock()
		stands := w.quiet()
		s.mu.Unlock()
		if stands {
			w.said = "a repetition was begun ahead: less than 0.1 s of computation"
		}
		say.tell(w.said)
		if s.await(ctx, w.quiet) == nil && leads() {
			return w
		}
	}
	s.leaving.Go(w.close)
	return nil
}

// unprepare takes the repetition that was prepared; nil: there is none.
func (s *Session) unprepare() (w *world) {
	var spare func() *world
	s.change(func() { spare, s.spare = s.spare, nil })
	if spare != nil {
		w = spare()
	}
	return w
}

// dismiss ends the repetition that was prepared, if there is one.
func (s *Session) dismiss() {
	if w := s.unprepare(); w != nil {
		w.close()
	}
}

// again makes repetitions that begin ever earlier, with fewer updates, until some ranks have come to their moments of to and what
// they have found is wanted; one from the beginning is in any case. The others come to theirs if they can.
func (s *Session) again(ctx context.Context, updates int64, to moments, ranks []int, breaks []engine.Breakpoint, how engine.Go, say Say, wanted func(w *world, at []Rank) bool) (_ *world, err error) {
	var w *world
	if how.Meets == engine.Pass && !how.Followed {
		w = s.ready(ctx, to, say)
	}
	var before *replay.Rerun
	problem := ""
	for starts := s.starts(updates); w != nil || len(starts) > 0; w = nil {
		if w == nil {
			if w, err = s.repeat(ctx, starts[0], before, to[ranks[0]], say); err != nil {
				return nil, err
			}
			if starts = starts[1:]; w == nil {
				continue
			}
		}
		before = w.from
		var at []Rank
		problem, at, err = s.arrive(ctx, w, to, ranks, breaks, how)
		if problem != "" && before.Options.KeepEach > 0 { // a recipe may notice what is saved and removed
			before = nil
		}
		if err == nil && problem == "" {
			same := !slices.ContainsFunc(ranks, func(r int) bool { return !at[r].Stop.Moment.SameLocals(*to[r]) })
			last := w.from.From == (replay.State{})
			switch {
			case same || s.loose:
			case !last:
				s.change(func() { s.lacking[w.from.From.Updates] = to[ranks[0]].Updates })
			default:
				s.change(func() { s.loose, s.lacking = true, map[int64]int64{} })
				say.tell(areLoose)
			}
			unknown := slices.ContainsFunc(ranks, func(r int) bool { return to[r].Digest == 0 && to[r].Locals == 0 })
			if found := wanted(w, at); (same || s.loose) && (last || found) {
				if unknown && !s.loose && !s.unproven {
					s.unproven = true
					say.tell("no update had been made by then, and these variables were not seen before: nothing proves that they have the same values")
				}
				return w, nil
			}
		}
		s.leaving.Go(w.close)
		if err != nil {
			return nil, err
		}
	}
	return nil, exit.WithHint(exit.Errorf(exit.Recipe, "the repetition did not come to the same moment: %s", problem),
		"a recipe that depends on time or on the order of arrival cannot be repeated: drun replay says where it differs")
}

const areLoose = "some variables have other values in each repetition, such as a time: they may not be what they were"

// arrive lets the ranks of a repetition go to their moments, and returns where they are then, or what keeps some from theirs.
func (s *Session) arrive(ctx context.Context, w *world, to moments, ranks []int, breaks []engine.Breakpoint, how engine.Go) (problem string, at []Rank, err error) {
	for _, goals := range []moments{to, s.limits(make(moments, len(to)))} { // the second time for ranks that wait for others, which are to come less far
		there := false
		w.send(goals, breaks, how)
		breaks = nil // they are set
		err = s.await(ctx, func() bool {
			at = slices.Clone(w.ranks)
			there = !slices.ContainsFunc(ranks, func(r int) bool { return at[r].State != Held })
			return there || w.quiet()
		})
		if err != nil || there {
			break
		}
	}
	for _, r := range ranks {
		switch {
		case err != nil || problem != "":
		case at[r].State != Held:
			problem = cmp.Or(w.why, fmt.Sprintf("rank %d waits for other ranks that do not come", r))
		case !at[r].Stop.Moment.Same(*to[r]):
			problem = fmt.Sprintf("rank %d came to other values (after update %d, parameters with digest %x instead of %x)", r, at[r].Stop.Moment.Updates, at[r].Stop.Moment.Digest, to[r].Digest)
		}
	}
	return problem, at, err
}

// limits are how far the ranks may go: to the present, if the past is shown.
func (s *Session) limits(otherwise moments) moments {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past == nil {
		return otherwise
	}
	return s.present
}

// repeat begins a repetition of the run, up to where its ranks wait at their beginning; nil: it would begin where before began.
func (s *Session) repeat(ctx context.Context, from start, before *replay.Rerun, to *engine.Moment, say Say) (_ *world, err error) {
	defer try.Caught(&err)
	s.repeating.Lock()
	defer s.repeating.Unlock()
	of := cmp.Or(s.source, s.base)
	at := try.To(s.nearest(of, from))
	s.mu.Lock()
	lacks := to != nil && to.Updates <= s.lacking[at.Updates]
	s.mu.Unlock()
	if before != nil && before.From == at || lacks && at != (replay.State{}) {
		return nil, nil
	}
	db := try.To(history.OpenReadOnly(of.home))
	defer db.Close()
	dir := try.To(scratch.Make("debug-"))
	defer try.CaughtOr(&err, dir.Remove)
	o := s.options
	o.Stdout, o.Stderr, o.Terminal, o.LogFiles, o.Signals, o.Join = io.Discard, io.Discard, false, nil, nil, nil
	a := try.To(replay.Prepare(o, db, of.home, of.id, s.secrets, s.given, at, dir.Path))
	text := "repeating the run from the beginning"
	switch at.Home {
	case "":
	case of.home:
		text = fmt.Sprintf("repeating the run from the checkpoint of step %d, after update %d", at.Step, at.Updates)
	default:
		text = fmt.Sprintf("repeating the run from after update %d, whose state was kept", at.Updates)
	}
	if each, step := s.pace(); each > 0 && to != nil {
		took := each*float64(to.Updates-at.Updates) + step*float64(to.Steps)
		if from.own {
			a.Options.KeepEach, a.Options.Keep = max(1, int64(math.Ceil(stateEach/each))), statesAtMost
		}
		if text += ": less than 0.1 s of computation"; took >= 0.1 {
			text = strings.Replace(text, "less than 0.1", fmt.Sprintf("about %.1f", took), 1)
		}
	}
	say.tell(text)
	w, err := s.launch(ctx, a.Options)
	if err != nil {
		return nil, fmt.Errorf("the run cannot be repeated: %w", err)
	}
	w.from, w.dir = a, dir
	s.made = append(s.made, w)
	return w, nil
}

// nearest is the latest state from which a repetition may begin; the zero value: the run's beginning.
func (s *Session) nearest(of *world, from start) (at replay.State, err error) {
	defer try.Caught(&err)
	var list []replay.State
	if from.own {
		list = try.To(s.kept())
	}
	if from.updates == 0 || !s.Bundle.Names("restore") {
		return at, nil
	}
	list = append(try.To(replay.States(of.home, of.id)), list...)
	for _, a := range list {
		if a.Updates < from.updates && a.Updates >= at.Updates {
			at = a
		}
	}
	return at, nil
}

// kept lists the states that repetitions have saved, and removes the homes of those that have ended without any.
func (s *Session) kept() (list []replay.State, err error) {
	defer try.Caught(&err)
	var empty []*world
	for _, w := range s.made {
		states, ended := w.states, false
		select {
		case <-w.ran:
			ended = true
		default:
		}
		if states == nil {
			states = try.To(replay.States(w.dir.Path, 1))
		}
		switch list = append(list, states...); {
		case ended && states == nil:
			empty = append(empty, w)
		case ended:
			w.states = states
		}
	}
	for _, w := range empty {
		w.dir.Remove()
	}
	s.made = slices.DeleteFunc(s.made, func(w *world) bool { return slices.Contains(empty, w) })
	return list, nil
}

// statesAtMost limits how many states of a repetition are kept: the latest ones.
const statesAtMost = 8

// stateEach is after how many seconds of work a repetition saves a state. Tests have less patience.
var stateEach = 1.0

// pace is about how many seconds of computation an update of the parameters takes, 0: unknown, and a step of the interpreter before
// the first update.
func (s *Session) pace() (update, step float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		return 0, 0
	}
	for _, r := range s.base.ranks {
		if r.Stop != nil {
			at := r.Stop.Moment
			if s.base.from != nil {
				at.Updates -= s.base.from.From.Updates
			}
			if at.Updates == 0 {
				step = r.Stop.Seconds / float64(max(1, at.Steps))
			}
			return r.Stop.Seconds / float64(max(1, at.Updates)), step
		}
	}
	return 0, 0
}

// show shows a repetition. now is where the ranks were in what was shown before.
func (s *Session) show(w *world, now moments) {
	s.change(func() {
		if s.past == nil {
			s.present, s.mortem = now, s.base.over
		} else {
			s.leaving.Go(s.past.close)
		}
		s.past = w
		w.tellBreaks()
	})
}

// Which of the breakpoints that ranks meet a search is for.
type Which int

const (
	First Which = iota // from the beginning of the run to where the ranks are
	Last
	Next // from where the ranks are, in the past, to the present
)

// Search is search from where the ranks are.
func (s *Session) Search(ctx context.Context, ranks []int, breaks []engine.Breakpoint, which Which, say Say) (_ []*engine.Stopped, err error) {
	defer try.Caught(&err)
	return s.search(ctx, try.To(s.stand(ctx)), ranks, breaks, which, say)
}

// search repeats the run, and returns where ranks have come to then, with the breakpoints that they have met. It begins at the nearest checkpoint if the
// latest ones are wanted, and then, unless there are any, earlier.
func (s *Session) search(ctx context.Context, now moments, ranks []int, breaks []engine.Breakpoint, which Which, say Say) (ends []*engine.Stopped, err error) {
	updates, to, how := now.updates(), now, engine.Go{Meets: engine.Note, Last: which == Last}
	switch which {
	case First:
		updates = 0
	case Next:
		to, how.After = s.limits(now), now[ranks[0]]
	}
	for _, rank := range ranks {
		switch {
		case now[rank] == nil || to[rank] == nil:
			return nil, exit.Errorf(exit.Usage, "rank %d has ended", rank)
		case which == Next && !now[rank].Before(*to[rank]):
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "rank %d is in the present: nothing has come after this moment yet", rank), "go back first")
		}
	}
	w, err := s.again(ctx, updates, to, ranks, breaks, how, say, func(w *world, at []Rank) (some bool) {
		ends = make([]*engine.Stopped, len(now))
		for _, rank := range ranks {
			ends[rank] = at[rank].Stop
			met := &ends[rank].Met
			if w.from.From != (replay.State{}) { // before its first update, a repetition from a checkpoint counts other steps, and what it sees first may be older
				*met = slices.DeleteFunc(*met, func(m engine.Met) bool { return m.Updates <= w.from.From.Updates || which == Last && m.First })
			}
			some = some || len(*met) > 0
		}
		return some || which == Next
	})
	if err == nil {
		s.leaving.Go(w.close)
	}
	return ends, err
}
