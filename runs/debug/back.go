package debug

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
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
	own     bool // states that earlier repetitions have saved count, too
}

// starts lists where a repetition may begin, the latest first.
func (s *Session) starts(updates int64) []start {
	list := []start{{updates, true}, {updates, false}}
	if a := s.base.from; a != nil && a.From != nil && a.Updates < updates { // the variables were those of a run that is resumed there
		list = append(list, start{a.Updates + 1, false})
	}
	return append(list, start{})
}

// pausing is how long ranks may take to come to a stop before the debugger goes back.
const pausing = 10 * time.Second

// stand stops all ranks, and returns where they are.
func (s *Session) stand(ctx context.Context) (now moments, err error) {
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

// StepBack takes ranks, nil for all, back to the beginning of the previous statement of the same function, or of its caller.
func (s *Session) StepBack(ctx context.Context, rank int, ranks []int, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	to := slices.Clone(now)
	for r, is := range s.Now().Ranks {
		if is.State != Held || ranks != nil && !slices.Contains(ranks, r) {
			continue
		}
		back := is.Stop.Back
		if back == nil && r == rank { // it was not followed then: it comes to where it is once more, followed
			w := try.To(s.reach(ctx, now, r, say, func(at *engine.Stopped) bool { return at.Back != nil }))
			back = w.at(r).Stop.Back
			s.leaving.Go(w.close)
		}
		if back != nil {
			to[r] = back
		}
	}
	if slices.Equal(to, now) {
		return exit.Errorf(exit.Usage, "rank %d is at the beginning", rank)
	}
	return s.goTo(ctx, now, to, rank, say)
}

// ReverseContinue takes a rank back to where it last met a breakpoint, or else to the beginning of main.
func (s *Session) ReverseContinue(ctx context.Context, rank int, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	if breaks := s.Breakpoints(); len(breaks) > 0 {
		met := try.To(s.search(ctx, now, []int{rank}, breaks, true, say))[rank]
		for _, m := range slices.Backward(met) {
			if m.Moment.Before(*now[rank]) {
				to := slices.Clone(now)
				to[rank] = &m.Moment
				return s.goTo(ctx, now, to, rank, say)
			}
		}
	}
	w := try.To(s.repeat(start{}, nil, nil, say))
	s.change(func() {
		for r := range w.ranks {
			w.letGo(r, engine.Go{To: engine.ToMain})
		}
	})
	err = s.await(ctx, w.quiet)
	s.show(w, now)
	return err
}

// GoTo takes a rank, and others with it, back to moments that a search has found.
func (s *Session) GoTo(ctx context.Context, rank int, to map[int]engine.Moment, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	all := slices.Clone(now)
	for r, m := range to {
		if now[r] != nil && m.Before(*now[r]) {
			all[r] = &m
		}
	}
	if all[rank] == now[rank] {
		return exit.Errorf(exit.Usage, "that moment has not come yet")
	}
	return s.goTo(ctx, now, all, rank, say)
}

// goTo shows a repetition in which each rank is where to says or, where another keeps it from getting there, before that.
func (s *Session) goTo(ctx context.Context, now, to moments, rank int, say Say) error {
	w, err := s.reach(ctx, to, rank, say, func(*engine.Stopped) bool { return true })
	if err == nil {
		s.show(w, now)
	}
	return err
}

// reach makes a repetition in which a rank has come to its moment of to, as is wanted, and the others to theirs if they can.
func (s *Session) reach(ctx context.Context, to moments, rank int, say Say, wanted func(*engine.Stopped) bool) (w *world, err error) {
	problem := ""
	err = s.attempts(to.updates(), to[rank], say, func(again *world, last bool) (done bool, err error) {
		defer try.Caught(&err)
		arrived := func() bool { return again.quiet() || again.ranks[rank].State == Held }
		again.send(to, nil, engine.Go{Meets: engine.Pass})
		try.Ok(s.await(ctx, arrived))
		if again.at(rank).State != Held { // it waits for ranks that have gone back further
			again.send(s.limits(len(to)), nil, engine.Go{Meets: engine.Pass})
			try.Ok(s.await(ctx, arrived))
		}
		at := again.at(rank)
		if at.State != Held {
			problem = cmp.Or(again.why, "it waits for other ranks that do not come")
			return false, nil
		}
		same, locals := at.Stop.Moment.Same(*to[rank])
		if !same {
			problem = fmt.Sprintf("it came to other values (after update %d, parameters with digest %x instead of %x)", at.Stop.Moment.Updates, at.Stop.Moment.Digest, to[rank].Digest)
			return false, nil
		}
		s.accept(locals, last, say)
		if done = (locals || s.loose) && (last || wanted(at.Stop)); done {
			w = again
		}
		return done, nil
	})
	if err == nil && w == nil {
		return nil, exit.WithHint(exit.Errorf(exit.Recipe, "the repetition did not come to that moment of rank %d: %s", rank, problem),
			"a recipe that depends on time or on the order of arrival cannot be repeated: drun replay says where it differs")
	}
	return w, err
}

// accept puts up with other values of variables if even a repetition from the beginning has them.
func (s *Session) accept(locals, last bool, say Say) {
	if !locals && last && !s.loose {
		s.loose = true
		say.tell("some variables have other values in each repetition, such as a time: they may not be what they were")
	}
}

// limits are how far the ranks of a repetition may go: to the present, if the past is shown.
func (s *Session) limits(ranks int) moments {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past == nil {
		return make(moments, ranks)
	}
	return s.present
}

// attempts calls do with repetitions that begin ever earlier, with fewer updates, until one has done what it should. It ends the
// others. last: it begins at the beginning.
func (s *Session) attempts(updates int64, to *engine.Moment, say Say, do func(w *world, last bool) (done bool, err error)) error {
	var before *replay.Rerun
	for _, from := range s.starts(updates) {
		w, err := s.repeat(from, before, to, say)
		if err != nil {
			return err
		}
		if w == nil {
			continue
		}
		before = w.from
		done, err := do(w, w.from.From == nil)
		if !done {
			s.leaving.Go(w.close)
		}
		if done || err != nil {
			return err
		}
	}
	return nil
}

// repeat begins a repetition of the run, up to where its ranks wait at their beginning; nil: it would begin where before began.
func (s *Session) repeat(from start, before *replay.Rerun, to *engine.Moment, say Say) (_ *world, err error) {
	defer try.Caught(&err)
	of := cmp.Or(s.source, s.base)
	db := try.To(history.OpenReadOnly(of.home))
	defer db.Close()
	dir := try.To(scratch.Make("debug-"))
	defer try.CaughtOr(&err, dir.Remove)
	var more []string
	if from.own {
		for _, dir := range s.homes {
			more = append(more, dir.Path)
		}
	}
	o := s.options
	o.Stdout, o.Stderr, o.Terminal, o.LogFiles, o.Signals, o.Join = io.Discard, io.Discard, false, nil, nil, nil
	a := try.To(replay.Prepare(o, db, of.home, of.id, s.secrets, s.given, from.updates, dir.Path, more...))
	if before != nil && before.Options.Replay.Home == a.Options.Replay.Home && before.Options.Replay.From == a.Options.Replay.From {
		dir.Remove()
		return nil, nil
	}
	text := "repeating the run from the beginning"
	switch {
	case a.From != nil && a.Options.Replay.Home != of.home:
		text = fmt.Sprintf("repeating the run from update %d, whose state was kept", a.Updates)
	case a.From != nil:
		text = fmt.Sprintf("repeating the run from the checkpoint of step %d", *a.From)
	}
	if each := s.perUpdate(); each > 0 && to != nil {
		took := each * float64(to.Updates-a.Updates)
		a.Options.KeepEach = int64(math.Ceil(max(1/each, float64(to.Updates-a.Updates)/statesAtMost)))
		if text += ": less than 0.1 s of computation"; took >= 0.1 {
			text = strings.Replace(text, "less than 0.1", fmt.Sprintf("about %.1f", took), 1)
		}
	}
	say.tell(text)
	w, err := s.launch(a.Options)
	if err != nil {
		return nil, fmt.Errorf("the run cannot be repeated: %w", err)
	}
	w.from = a
	s.homes = append(s.homes, dir)
	return w, nil
}

// statesAtMost limits how many states a repetition saves: one for each second of work, or fewer.
const statesAtMost = 64

// perUpdate is about how many seconds of computation an update of the parameters takes; 0: unknown.
func (s *Session) perUpdate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		return 0
	}
	for _, r := range s.base.ranks {
		if r.Stop != nil {
			made := r.Stop.Moment.Updates
			if s.base.from != nil {
				made -= s.base.from.Updates
			}
			return r.Stop.Seconds / float64(max(1, made))
		}
	}
	return 0
}

// show shows a repetition. now is where the ranks were in what was shown before.
func (s *Session) show(w *world, now moments) {
	s.change(func() {
		if s.past == nil {
			s.present = now
		} else {
			s.leaving.Go(s.past.close)
		}
		s.past = w
		w.tellBreaks()
	})
}

// Search is search from where the ranks are.
func (s *Session) Search(ctx context.Context, ranks []int, breaks []engine.Breakpoint, last bool, say Say) (_ [][]engine.Met, err error) {
	defer try.Caught(&err)
	for _, b := range breaks {
		if b.Changes != "" {
			try.Ok(s.checkExpression(b.Changes, nil))
		}
	}
	return s.search(ctx, try.To(s.stand(ctx)), ranks, breaks, last, say)
}

// search repeats the run up to where the ranks are now, and returns the breakpoints that some of them meet, by rank. It begins at
// the nearest checkpoint if the latest ones are wanted, and then, unless there are any, earlier.
func (s *Session) search(ctx context.Context, now moments, ranks []int, breaks []engine.Breakpoint, last bool, say Say) (met [][]engine.Met, err error) {
	updates, came := int64(0), false
	if last {
		updates = now.updates()
	}
	for _, rank := range ranks {
		if now[rank] == nil {
			return nil, exit.Errorf(exit.Usage, "rank %d has ended", rank)
		}
	}
	err = s.attempts(updates, now[ranks[0]], say, func(w *world, first bool) (done bool, err error) {
		w.send(now, breaks, engine.Go{Meets: engine.Note, Last: last})
		var at []Rank
		if err := s.await(ctx, func() bool {
			at = slices.Clone(w.ranks)
			return w.quiet() || !slices.ContainsFunc(ranks, func(rank int) bool { return at[rank].State != Held })
		}); err != nil {
			return false, err
		}
		met = make([][]engine.Met, len(now))
		for _, rank := range ranks {
			if at[rank].State != Held {
				return false, nil
			}
			same, locals := at[rank].Stop.Moment.Same(*now[rank])
			if s.accept(locals, first, say); !same || !locals && !s.loose {
				return false, nil
			}
			met[rank] = at[rank].Stop.Met
			if w.from.From != nil { // before its first update, a repetition from a checkpoint counts other steps
				met[rank] = slices.DeleteFunc(met[rank], func(m engine.Met) bool { return m.Updates <= w.from.Updates })
			}
			done = done || first || len(met[rank]) > 0
		}
		if came = true; done {
			s.leaving.Go(w.close)
		}
		return done, nil
	})
	if err == nil && !came {
		err = exit.Errorf(exit.Recipe, "the repetition did not come to where the ranks are")
	}
	return met, err
}
