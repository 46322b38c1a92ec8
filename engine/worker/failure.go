package worker

import (
	"errors"
	"strings"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/starlib"
	"drun/starlib/lang"
)

// failure describes why the rank ends, for its agent.
func (w *worker) failure(err error) *engine.Failure {
	f := engine.NewFailure(w.job.Place.Rank, err, board.Now())
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
