package launch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"drun/engine"
	"drun/engine/board"
	"drun/history"
	"drun/internal/exit"
)

// finish closes the run's record once all workers have ended, and tells the
// other agents.
func (a *agent) finish() (*Result, error) {
	r := &Result{Ranks: a.world, Counts: a.counts}
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
	r.ID, r.Name = a.record.ID, a.record.Name // another history may have come, with another id
	hurry, sig, stop := a.hurried()
	defer stop()
	go func() {
		select {
		case <-hurry:
			a.keeper.hasten()
		case <-a.keeper.done:
		}
	}()
	pending := bounded(a.o.Home, saveFactor*a.o.Patience, hurry, func() error { a.pending.Wait(); return nil })
	_ = a.keeper.sync() // its error is among the faults
	select {
	case err := <-a.keeper.faults:
		a.failures = append(a.failures, a.storageFailure(err))
	default:
	}
	if pending != nil {
		a.signalled = *sig
		if *sig == nil {
			a.failures = append(a.failures, a.storageFailure(pending))
		}
	}
	r.Seconds = time.Since(a.started).Seconds()
	r.Failures, r.Failure = a.failures, engine.First(a.failures)
	err := a.conclude(r)
	if closing := bounded(a.o.Home, a.o.Patience, hurry, func() error {
		if pending == nil {
			a.closeStores()
		}
		return a.db.Close()
	}); err == nil && closing != nil && *sig == nil {
		a.unrecorded(r, closing)
	}
	return err
}

func (a *agent) closeStores() {
	if a.store != nil {
		a.store.Close()
	}
}

// conclude enters the end of the run in the history and in r. The error is one
// that leaves no run behind.
func (a *agent) conclude(r *Result) error {
	text := ""
	if f := r.Failure; f != nil {
		r.Code = f.Code
		text = strings.TrimRight(Message(f, a.world), "\n")
	} else if a.signalled != nil {
		r.Code = engine.ExitInterrupted
	}
	if r.Code == engine.ExitUsage {
		_, err := a.keeper.close(nil)
		if err == nil {
			err = bounded(a.o.Home, a.o.Patience, a.keeper.hurry, a.record.Discard)
		}
		return errors.Join(usage(r.Failure), err)
	}
	spool, err := a.keeper.close(&history.End{Status: history.Status(r.Code.Status()), ExitCode: int(r.Code), Error: text, Seconds: r.Seconds})
	if spool != "" || err != nil {
		a.record.Leave()
	}
	if spool != "" {
		a.console.note(fmt.Sprintf("drun: the history is still locked: what the run recorded last is in %s, and the next drun that can write the history puts it there", spool))
	}
	if err != nil {
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
	f := engine.NewFailure(board.Observer, err, board.Now())
	f.Code = exit.Storage
	return f
}
