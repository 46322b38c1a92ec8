package launch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"drun/engine"
	"drun/engine/board"
	"drun/history"
)

// finish closes the run's record once all workers have ended, and tells the
// other agents.
func (a *agent) finish() (*Result, error) {
	r := &Result{ID: a.record.ID, Name: a.record.Name, Ranks: a.world, Counts: a.counts}
	err := a.close(r)
	a.dismiss(r)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// close ends all that the run had open, and fills in how it ended.
func (a *agent) close(r *Result) error {
	close(a.over)
	for _, p := range a.procs {
		p.drain()
	}
	a.console.close()
	if a.board != nil {
		if a.world > 1 && len(a.failures) > 0 {
			if r.Snapshot = a.board.Last(); r.Snapshot != nil {
				a.keepSnapshot(r.Snapshot, engine.First(a.failures).Code.Status())
			}
		}
		a.board.Close()
	}
	if a.region != nil {
		a.region.Close()
	}
	answers := a.keeper.close()
	select {
	case err := <-a.keeper.faults:
		a.failures = append(a.failures, a.storageFailure(err))
	default:
	}
	r.Seconds = time.Since(a.started).Seconds()
	r.Failures, r.Failure = a.failures, engine.First(a.failures)
	if !answers { // then there is no asking again
		a.unrecorded(r, &hungError{a.o.Home, a.o.Patience})
		return nil
	}
	ended := *r // what is left behind may still change it
	err := bounded(a.o.Home, saveFactor*a.o.Patience, func() error { a.pending.Wait(); return nil })
	if err == nil {
		err = bounded(a.o.Home, a.o.Patience, func() error { return a.conclude(&ended) })
	}
	if errors.As(err, new(*hungError)) {
		a.unrecorded(r, err)
		return nil
	}
	*r = ended
	return err
}

// conclude enters the end of the run in the history and in r. The error is one
// that leaves no run behind.
func (a *agent) conclude(r *Result) error {
	defer a.db.Close()
	if a.store != nil {
		a.store.Close()
	}
	if a.from != nil {
		a.from.store.Close()
	}
	text := ""
	if f := r.Failure; f != nil {
		r.Code = f.Code
		text = strings.TrimRight(Message(f, a.world), "\n")
	} else if a.signalled != nil {
		r.Code = engine.ExitInterrupted
	}
	if r.Code == engine.ExitUsage {
		return errors.Join(usage(r.Failure), a.record.Discard())
	}
	if err := a.record.Finish(history.Status(r.Code.Status()), int(r.Code), text); err != nil && r.Code != engine.ExitStorage {
		a.unrecorded(r, err)
	}
	return nil
}

// unrecorded is how a run ends whose end the history does not have: with that,
// and with what it would have said.
func (a *agent) unrecorded(r *Result, err error) {
	f := a.storageFailure(err)
	if before := r.Failure; before != nil && before.Code != engine.ExitStorage {
		f.Traceback = "before that, " + Message(before, a.world)
	}
	r.Code, r.Failure = f.Code, f
}

// Message is a failure as the user reads it: who, where and what, then the
// recipe's frames.
func Message(f *engine.Failure, world int) string {
	var b strings.Builder
	if world > 1 && f.Rank >= 0 {
		fmt.Fprintf(&b, "rank %d: ", f.Rank)
	}
	b.WriteString(f.Message)
	if f.Traceback != "" {
		b.WriteString("\n" + f.Traceback)
	}
	return b.String()
}

func usage(f *engine.Failure) error {
	return &engine.Error{Code: engine.ExitUsage, Msg: f.Message, Hint: f.Hint}
}

func (a *agent) storageFailure(err error) *engine.Failure {
	f := &engine.Failure{Rank: board.Observer, Code: engine.ExitStorage, Message: err.Error(), When: board.Now()}
	var advising interface{ Advice() string }
	if errors.As(err, &advising) {
		f.Hint = advising.Advice()
	}
	return f
}

func codeOf(err error) engine.ExitCode {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return engine.ExitCode(coded.ExitCode())
	}
	return engine.ExitRecipe
}
