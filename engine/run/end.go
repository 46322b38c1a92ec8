package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/recipe"
	"drun/engine/record"
	"drun/internal/exit"
)

// finish closes the run's record once all workers have ended, and tells the nodes.
func (c *coordinator) finish() (*Result, error) {
	r := &Result{Ranks: c.world(), Counts: c.counts, Restarts: c.begun}
	err := c.close(r)
	why := ""
	if r.Failure != nil {
		why = r.Failure.Text(r.Ranks)
	}
	if c.debugger != nil {
		c.debugger.Send(&engine.Debugging{Over: &why})
		c.debugger.Close()
	}
	c.dismiss(r)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// close ends everything that the run had open, and fills in how it ended.
func (c *coordinator) close(r *Result) error {
	close(c.over)
	c.console.Close()
	r.Snapshot = c.attempt.close(c.record)
	r.ID, r.Name = c.record.ID(), c.record.Name()
	hurry, came, done := c.listen(Ends)
	defer done()
	defer context.AfterFunc(hurry, c.record.Hasten)()
	c.record.Abandon()
	fault, hung := c.record.Drain()
	if err := c.record.SaveError(); err != nil && len(c.failures) == 0 {
		c.failures = append(c.failures, storageFailure(err))
	}
	if fault != nil {
		c.failures = append(c.failures, storageFailure(fault))
	}
	if hung != nil {
		c.stop.signal = came.end
		if came.end == nil {
			c.failures = append(c.failures, storageFailure(hung))
		}
	}
	if hung == nil && fault == nil && (len(c.failures) > 0 || c.stop.signal != nil) && !slices.ContainsFunc(c.failures, func(f *engine.Failure) bool { return f.Code == exit.Storage }) {
		if err := c.record.Preserve(); err != nil {
			c.record.Say("drun: " + err.Error())
			if record.IsHung(err) {
				hung = err
			}
		}
	}
	r.Seconds, r.Saved = time.Since(c.started).Seconds(), c.record.Saved()
	r.Failures, r.Failure = c.failures, engine.First(c.failures)
	err := c.conclude(r)
	if closing := c.record.Close(hung != nil); err == nil && closing != nil && came.end == nil {
		r.unrecorded(closing)
	}
	return err
}

// close closes what the ranks shared, and returns what they were doing when they failed.
func (a *attempt) close(to *record.Record) (last *board.Snapshot) {
	if a.board != nil {
		if a.world() > 1 && len(a.failures) > 0 {
			if last = a.board.Last(); last != nil {
				to.Snapshot(last, engine.First(a.failures).Code.Status())
			}
		}
		a.board.Close()
		a.board = nil
	}
	for _, f := range a.shared {
		f.Close()
	}
	return last
}

// conclude enters the end of the run in the history and in r. After an error, no run is left behind.
func (c *coordinator) conclude(r *Result) error {
	text := ""
	if f := r.Failure; f != nil {
		r.Code = f.Code
		text = strings.TrimRight(f.Text(c.world()), "\n")
	} else if c.stop.signal != nil {
		r.Code = exit.Interrupted
	}
	if r.Code == exit.Usage && c.record.Attempt() == 0 {
		return errors.Join(r.Failure.Err(), c.record.Discard())
	}
	spool, err := c.record.Finish(r.Code, text, r.Seconds)
	if spool != "" {
		c.console.Note(fmt.Sprintf("drun: the history is still locked: what the run recorded last is in %s, and the next drun that can write the history puts it there", spool))
	}
	if err != nil {
		r.unrecorded(err)
	}
	return nil
}

// unrecorded makes err the failure of a run whose end the history lacks, followed by what its end would have been.
func (r *Result) unrecorded(err error) {
	f := storageFailure(err)
	if before := r.Failure; before != nil && before.Code != exit.Storage {
		f.Traceback = "before that, " + before.Text(r.Ranks)
	}
	r.Code, r.Failure = f.Code, f
}

// leaving has, for each rank that has left a group or main, what it has exchanged with the others.
type leaving map[int][]board.Messages

// party identifies ranks that leave together: several groups, of different ranks, may have the same number.
type party struct {
	group uint32
	first int
}

// leave notes that a rank has returned from main, or left a group. Once all have, they may go on, if each message
// was received.
func (c *coordinator) leave(rank int, m *engine.Leave) {
	ranks := m.Ranks
	if ranks == nil {
		ranks = collective.AllRanks(len(c.ranks))
	}
	if len(ranks) == 0 || !c.ended.IsZero() {
		return // they have been told to end
	}
	which := party{m.Group, slices.Min(ranks)}
	if c.leavers == nil {
		c.leavers = map[party]leaving{}
	}
	if c.leavers[which] == nil {
		c.leavers[which] = leaving{}
	}
	c.leavers[which][rank] = m.Messages
	if len(c.leavers[which]) < len(ranks) {
		return
	}
	if m.Ranks == nil {
		if c.told(c.replicas.rest()); !c.ended.IsZero() {
			return
		}
	}
	lost := board.Unreceived(c.leavers[which])
	delete(c.leavers, which)
	if len(lost) > 0 && !c.stop.asked && c.Replay == nil {
		c.fail(unreceived(c.bundle, lost))
		return
	}
	for _, rank := range ranks {
		c.send(rank, &engine.ToWorker{Parted: true})
	}
}

// unreceived is the failure of the first rank whose messages nobody received.
func unreceived(bundle *recipe.Bundle, lost []board.Lost) *engine.Failure {
	first, what := lost[0], ""
	if n := len(lost) - 1; n > 0 {
		what = fmt.Sprintf("; the same happened with %d other senders, receivers or tags", n)
	}
	f := &engine.Failure{Rank: first.From, Code: exit.Mismatch, When: board.Now(), Permanent: true,
		Hint: "each dist.send and isend needs a recv, irecv or recv_any on the other rank, with the same tag and group"}
	f.Message, f.Traceback = bundle.Fault(first.At.File, first.At.Line, first.At.Col, first.String()+what)
	return f
}

// Signals are those that Options.Signals may deliver.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1}

// Ends reports whether a signal asks for the end of a run.
func Ends(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// signal handles a signal. SIGQUIT shows what every rank does; SIGUSR1 asks the recipe to end, which it sees in
// run.should_stop(). SIGINT, SIGTERM and SIGHUP give a recipe that calls it the grace period to end by itself; any
// other recipe is ended at once, as is any on a second signal. A recipe counts as calling it if its sources name
// should_stop, even if it has not reached the call yet. A terminal sends one signal to the processes of all nodes
// (from; nil: this one), which counts as one.
func (c *coordinator) signal(sig os.Signal, from *peer) {
	switch sig {
	case syscall.SIGQUIT:
		if c.board != nil {
			c.fresh(func() { c.show("SIGQUIT") })
		}
		return
	case syscall.SIGUSR1:
		c.stop.asked = true
		if c.board != nil {
			c.board.RequestStop()
		}
		c.record.Unkey()
		return
	}
	if c.stop.from[from] || c.board == nil || !(c.board.StopObserved() || c.bundle.Names("should_stop")) {
		c.interrupt(sig)
		return
	}
	if c.stop.from == nil {
		c.stop.from = map[*peer]bool{}
	}
	c.stop.from[from] = true
	if c.stop.signal != nil {
		return
	}
	c.stop.signal = sig
	c.board.RequestStop()
	c.stop.grace = time.After(c.Grace)
}

func (c *coordinator) interrupt(sig os.Signal) {
	c.stop.signal, c.stop.grace = sig, nil
	c.fail(&engine.Failure{Rank: board.Observer, Code: exit.Interrupted, Message: "interrupted by " + engine.SignalName(sig), When: board.Now()})
}

// stop is the state of a user's request to end the run.
type stop struct {
	signal os.Signal        // the latest that asks for the end
	from   map[*peer]bool   // the nodes that have passed it on
	grace  <-chan time.Time // ends the grace period of a recipe that asks run.should_stop
	asked  bool             // run.should_stop was set by SIGUSR1
}

// heard is what signals asked for while the run could not handle them; see listen.
type heard struct {
	end  os.Signal // asks for the end
	stop bool      // SIGUSR1 came
}

// listen receives signals while the run cannot handle them. It notes SIGUSR1, and the first signal for which ends is
// true, in came; the latter also ends the context. done stops listening.
func (p *plan) listen(ends func(os.Signal) bool) (ctx context.Context, came *heard, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	came, listening := new(heard), make(chan struct{})
	go func() {
		defer close(listening)
		for {
			select {
			case s, ok := <-p.Signals:
				if !ok {
					return
				}
				came.stop = came.stop || s == syscall.SIGUSR1
				if ends(s) {
					came.end = s
					cancel(interruptedBy(s))
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, came, func() {
		cancel(nil)
		<-listening
	}
}

// interruptible calls a function that waits for other processes, with a context that the first signal ends.
func interruptible[T any](p *plan, wait func(context.Context) (T, error)) (T, error) {
	ctx, came, done := p.listen(func(os.Signal) bool { return true })
	result, err := wait(ctx)
	if done(); err == nil && came.end != nil {
		err = interruptedBy(came.end) // at the last moment: the context may have ended before
	}
	return result, err
}

func interruptedBy(sig os.Signal) error {
	return exit.Errorf(exit.Interrupted, "interrupted by %s while waiting for the other processes of the run", engine.SignalName(sig))
}
