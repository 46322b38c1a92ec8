package debug

import (
	"context"
	"fmt"
	"slices"
	"time"

	"drun/engine"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/replay"
)

// Going back repeats the run, all ranks of it, in a temporary home: from its nearest checkpoint or its beginning up to the
// earlier moment. The run itself stands still meanwhile, and goes on from where it is once the ranks of the repetition have
// come to the same moments. That the repetition has come to the same state is proven by the digest of the parameters after
// the latest update, and by the number of the interpreter's steps since.

// pausing is how long ranks may take to come to a stop before the debugger goes back.
const pausing = 10 * time.Second

// stand stops all ranks, and returns their moments; nil for one that has ended.
func (s *Session) stand(ctx context.Context) ([]*engine.Moment, error) {
	w := s.shown()
	s.Pause(nil)
	ctx, cancel := context.WithTimeout(ctx, pausing)
	defer cancel()
	err := w.await(ctx, func() bool {
		return w.over || !slices.ContainsFunc(w.ranks, func(r Rank) bool { return r.State != Held && r.State != Ended })
	})
	if err != nil {
		for rank, r := range w.all() {
			if r.State != Held && r.State != Ended {
				return nil, exit.WithHint(exit.Errorf(exit.Usage, "rank %d has not come to a stop within %v: it is in the midst of a call", rank, pausing), "pause it, and go back once it has stopped")
			}
		}
		return nil, err
	}
	if over, _ := s.Over(); over {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "the run has ended"), "drun debug RUN@STEP takes it up before its end")
	}
	var now []*engine.Moment
	for _, r := range w.all() {
		if r.State == Held {
			now = append(now, &r.Stop.Moment)
		} else {
			now = append(now, nil)
		}
	}
	return now, nil
}

// Say tells a person how long something takes before it is done.
type Say func(text string)

// StepBack takes ranks, nil for all, back to the beginning of the previous statement of the same function, or of its caller.
func (s *Session) StepBack(ctx context.Context, rank int, ranks []int, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	to := slices.Clone(now)
	moved := false
	for r, is := range s.shown().all() {
		if is.State != Held || ranks != nil && !slices.Contains(ranks, r) {
			continue
		}
		back := is.Stop.Back
		if back == nil && r == rank {
			back = try.To(s.previous(ctx, now, r, say))
		}
		if back != nil {
			to[r], moved = back, true
		}
	}
	if !moved {
		return exit.Errorf(exit.Usage, "rank %d is at the beginning", rank)
	}
	return s.goTo(ctx, now, to, rank, say)
}

// previous finds the previous statement where the rank has not seen it, since it was not followed then: it first goes back to
// where it is, followed.
func (s *Session) previous(ctx context.Context, now []*engine.Moment, rank int, say Say) (_ *engine.Moment, err error) {
	defer try.Caught(&err)
	w := try.To(s.reach(ctx, now, rank, false, say))
	defer s.leaving.Go(w.close)
	if back := w.rank(rank).Stop.Back; back != nil {
		return back, nil
	}
	if w.from.From == nil {
		return nil, nil
	}
	again := try.To(s.reach(ctx, now, rank, true, say))
	defer s.leaving.Go(again.close)
	return again.rank(rank).Stop.Back, nil
}

// ReverseContinue takes a rank back to where it last met a breakpoint, or else to the beginning of main.
func (s *Session) ReverseContinue(ctx context.Context, rank int, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	if len(s.breaks) > 0 {
		found := try.To(s.search(ctx, now, []int{rank}, engine.Find{Last: true}, say))[rank]
		for i := len(found) - 1; i >= 0; i-- {
			if m := found[i].Moment; m.Before(*now[rank]) {
				to := slices.Clone(now)
				to[rank] = &m
				return s.goTo(ctx, now, to, rank, say)
			}
		}
	}
	w := try.To(s.repeat(0, s.saying(now, rank, say)))
	for r := range w.all() {
		w.letGo(r, engine.Go{To: engine.ToMain})
	}
	if err := w.await(ctx, w.quiet); err != nil || w.over {
		w.close()
		return exit.Errorf(exit.Recipe, "the repetition did not come to main: %s", w.why)
	}
	s.show(w, now)
	return nil
}

// GoTo takes a rank, and others with it, back to moments that a search has found.
func (s *Session) GoTo(ctx context.Context, rank int, moments map[int]engine.Moment, say Say) (err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	to := slices.Clone(now)
	for r, m := range moments {
		if now[r] != nil && m.Before(*now[r]) {
			to[r] = &m
		}
	}
	if to[rank] == now[rank] {
		return exit.Errorf(exit.Usage, "that moment has not come yet")
	}
	return s.goTo(ctx, now, to, rank, say)
}

// goTo shows a repetition in which each rank is where to says or, where another keeps it from getting there, before that.
func (s *Session) goTo(ctx context.Context, now, to []*engine.Moment, rank int, say Say) (err error) {
	defer try.Caught(&err)
	s.show(try.To(s.reach(ctx, to, rank, false, say)), now)
	return nil
}

// reach makes a repetition in which a rank has come to its moment of to, and the others to theirs if they can.
func (s *Session) reach(ctx context.Context, to []*engine.Moment, rank int, beginning bool, say Say) (_ *world, err error) {
	defer try.Caught(&err)
	least := int64(0)
	if !beginning {
		least = to[rank].Updates
		for _, m := range to {
			if m != nil {
				least = min(least, m.Updates)
			}
		}
	}
	w := try.To(s.repeat(least, s.saying(to, rank, say)))
	defer try.CaughtOr(&err, w.close)
	for r, m := range to {
		w.letGo(r, engine.Go{Until: m, Straight: true})
	}
	arrived := func() bool { return w.over || w.ranks[rank].State == Held }
	try.Ok(w.await(ctx, func() bool { return arrived() || w.quiet() }))
	if !w.over && w.rank(rank).State != Held { // it waits for ranks that have gone back further
		for r := range to {
			w.letGo(r, engine.Go{Until: s.presentOf(r), Straight: true})
		}
		try.Ok(w.await(ctx, func() bool { return arrived() || w.quiet() }))
	}
	problem := ""
	switch at := w.rank(rank); {
	case w.over:
		problem = "it ended before it came there: " + w.why
	case at.State != Held:
		problem = "it waits for other ranks that do not come"
	case at.Stop.Moment != *to[rank]:
		problem = fmt.Sprintf("it came to other values (after update %d, parameters with digest %x instead of %x)", at.Stop.Moment.Updates, at.Stop.Moment.Digest, to[rank].Digest)
	default:
		return w, nil
	}
	if w.from.From != nil {
		w.close()
		return s.reach(ctx, to, rank, true, say)
	}
	return nil, exit.WithHint(exit.Errorf(exit.Recipe, "the repetition did not come to that moment of rank %d: %s", rank, problem),
		"a recipe that depends on time or on the order of arrival cannot be repeated: drun replay says where it differs")
}

// presentOf is where a rank is in the run itself; nil if it has ended, or if the run itself is shown.
func (s *Session) presentOf(rank int) *engine.Moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past == nil {
		return nil
	}
	return s.present[rank]
}

// show shows a repetition. now is where the ranks were in what was shown before.
func (s *Session) show(w *world, now []*engine.Moment) {
	s.mu.Lock()
	old := s.past
	if old == nil {
		s.present = now
	}
	s.past = w
	s.mu.Unlock()
	if old != nil {
		s.leaving.Go(old.close)
	}
	s.tellBreaks(w)
	for rank, r := range w.all() {
		if r.State == Held {
			s.events.put(Event{Rank: rank, Stopped: r.Stop})
		}
	}
}

// returned reports whether all ranks of a repetition have come to the present, and then shows the run itself again.
func (s *Session) returned(w *world) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past != w {
		return false
	}
	for rank, r := range w.all() {
		if p := s.present[rank]; p != nil && (r.State != Held || r.Stop.Moment.Before(*p)) {
			return false
		}
	}
	s.past = nil
	s.leaving.Go(w.close)
	s.events.put(Event{Present: true})
	for rank, r := range s.base.all() {
		if r.State == Held {
			s.events.put(Event{Rank: rank, Stopped: r.Stop})
		}
	}
	return true
}

// saying tells how long a repetition up to the ranks' moments will take.
func (s *Session) saying(to []*engine.Moment, rank int, say Say) func(*replay.Rerun) {
	return func(a *replay.Rerun) {
		if say == nil {
			return
		}
		where := "the beginning"
		if a.From != nil {
			where = fmt.Sprintf("the checkpoint of step %d", *a.From)
		}
		text := "repeating the run from " + where
		if took, known := s.estimate(to[rank], a); known {
			if took < 0.1 {
				text += ": less than 0.1 s of computation"
			} else {
				text += fmt.Sprintf(": about %.1f s of computation", took)
			}
		}
		say(text)
	}
}

// estimate is about how many seconds a rank computes from where a repetition begins to a moment.
func (s *Session) estimate(to *engine.Moment, a *replay.Rerun) (seconds float64, known bool) {
	for _, r := range s.base.all() {
		if r.Stop == nil || to == nil {
			continue
		}
		first := int64(0)
		if s.base.from != nil {
			first = s.base.from.Updates
		}
		if made := r.Stop.Moment.Updates - first; made > 0 {
			return r.Stop.Seconds * float64(to.Updates-a.Updates) / float64(made), true
		}
		return r.Stop.Seconds, true
	}
	return 0, false
}

// search repeats the run up to where the ranks are now, and has some of them note what f asks for. It begins at the nearest
// checkpoint if the latest moments are wanted, and then, unless there are any, at the beginning.
func (s *Session) search(ctx context.Context, now []*engine.Moment, ranks []int, f engine.Find, say Say) (_ [][]engine.FoundMoment, err error) {
	defer try.Caught(&err)
	for _, rank := range ranks {
		if now[rank] == nil {
			return nil, exit.Errorf(exit.Usage, "rank %d has ended", rank)
		}
	}
	least := int64(0)
	if f.Last {
		least = now[ranks[0]].Updates
		for _, m := range now {
			if m != nil {
				least = min(least, m.Updates)
			}
		}
	}
	for {
		w := try.To(s.repeat(least, s.saying(now, ranks[0], say)))
		found, err := s.searchIn(ctx, w, now, ranks, f)
		w.close()
		if err != nil {
			return nil, err
		}
		if w.from.From == nil {
			return found, nil
		}
		some := false
		for rank, list := range found { // before its first update, a repetition from a checkpoint counts other steps
			found[rank] = slices.DeleteFunc(list, func(m engine.FoundMoment) bool { return m.Updates <= w.from.Updates })
			some = some || len(found[rank]) > 0
		}
		if some {
			return found, nil
		}
		least = 0
	}
}

func (s *Session) searchIn(ctx context.Context, w *world, now []*engine.Moment, ranks []int, f engine.Find) (_ [][]engine.FoundMoment, err error) {
	breaks := s.breaks
	for rank, m := range now {
		if slices.Contains(ranks, rank) {
			if f.Expr == "" && !f.NotFinite {
				w.tell(rank, &engine.Debug{Breaks: &breaks})
			}
			w.tell(rank, &engine.Debug{Find: &f})
		}
		w.letGo(rank, engine.Go{Until: m})
	}
	there := func() bool {
		return w.over || !slices.ContainsFunc(ranks, func(r int) bool { return w.ranks[r].State != Held })
	}
	if err := w.await(ctx, func() bool { return there() || w.quiet() }); err != nil {
		return nil, err
	}
	found := make([][]engine.FoundMoment, len(now))
	for _, rank := range ranks {
		r := w.rank(rank)
		if r.State != Held || r.Stop.Moment != *now[rank] {
			if w.from.From != nil {
				return found, nil // the search from the beginning tells more
			}
			return nil, exit.Errorf(exit.Recipe, "the repetition did not come to where rank %d is: %s", rank, w.why)
		}
		found[rank] = r.found
	}
	return found, nil
}

// Changes lists when the value of an expression, in the function that a frame of the rank executes, has changed. last: the
// latest times, up to now, are wanted; otherwise the first ones.
func (s *Session) Changes(ctx context.Context, ranks []int, frame engine.DebugFrame, expr string, last bool, say Say) (_ [][]engine.FoundMoment, err error) {
	defer try.Caught(&err)
	try.Ok(s.checkExpression(expr, nil))
	now := try.To(s.stand(ctx))
	return s.search(ctx, now, ranks, engine.Find{Expr: expr, Func: frame.Func, At: frame.At, Last: last}, say)
}

// NotFinite lists the operations of the ranks whose results were not finite although what they were given was.
func (s *Session) NotFinite(ctx context.Context, ranks []int, say Say) (_ [][]engine.FoundMoment, err error) {
	defer try.Caught(&err)
	now := try.To(s.stand(ctx))
	return s.search(ctx, now, ranks, engine.Find{NotFinite: true}, say)
}
