package worker

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/starlib"
	"drun/starlib/lang"
)

func (w *worker) failure(err error) *engine.Failure {
	f := engine.NewFailure(w.job.Placement.Rank, err, board.Now())
	var located *lang.Error
	if !errors.As(err, &located) {
		located = &lang.Error{Msg: err.Error(), Cause: err}
	}
	f.Message, f.Traceback, _ = strings.Cut(strings.TrimRight(located.Render(w.bundle().Text), "\n"), "\n")
	if p := (*starlib.PanicError)(nil); errors.As(err, &p) {
		f.Traceback += "\n" + string(p.Stack)
	}
	f.Secondary = errors.As(err, new(*collective.AbortError))
	f.Suspected = !f.Secondary && collective.Suspects(err)
	f.Common = !f.Secondary && (errors.As(err, new(*collective.MismatchError)) || errors.As(err, new(*collective.TimeoutError)))
	return f
}

// giveUp reports that the rank uses too much memory, in place of its thread, which does not end, and ends the
// process.
func (w *worker) giveUp(e *lang.Error) {
	f := w.failure(e)
	w.telling.Lock() // for good: no other end is reported
	if w.told == nil {
		w.board.SetState(collective.Failed)
		w.board.Abort(w.job.Placement.Rank, &collective.FailedError{Rank: w.job.Placement.Rank, Msg: f.Message, Code: f.Code})
		w.record.close()
		_ = w.channel.Send(&engine.ToAgent{Failure: f})
	}
	os.Exit(int(exit.Recipe))
}

// overflowed makes an error of a panic by which Go refuses a size that no machine has. Its position is that of the
// latest call of a module's builtin.
func (w *worker) overflowed(panicked any) error {
	err := memory.Overflow(panicked)
	if err == nil {
		panic(panicked)
	}
	if w.position.IsValid() {
		return fmt.Errorf("%w; it was last seen at %v", err, w.position)
	}
	return err
}
