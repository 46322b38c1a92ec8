package worker

import (
	"errors"
	"strings"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/run"
)

// failure describes why the rank ends, for its agent.
func (w *worker) failure(err error) *engine.Failure {
	f := &engine.Failure{Rank: w.job.Place.Rank, Code: codeOf(err), When: board.Now()}
	var located *lang.Error
	if !errors.As(err, &located) {
		located = &lang.Error{Msg: err.Error(), Cause: err}
	}
	f.Message, f.Traceback, _ = strings.Cut(strings.TrimRight(located.Render(w.source), "\n"), "\n")
	var advising interface{ Advice() string }
	if errors.As(err, &advising) {
		f.Hint = advising.Advice()
	}
	if p := (*starlib.PanicError)(nil); errors.As(err, &p) {
		f.Traceback += "\n" + string(p.Stack)
	}
	f.Secondary = errors.As(err, new(*collective.AbortError))
	return f
}

// codeOf finds the exit code that an error stands for.
func codeOf(err error) engine.ExitCode {
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, new(*run.UsageError)):
		return engine.ExitUsage
	case errors.As(err, new(*collective.MismatchError)):
		return engine.ExitMismatch
	case errors.As(err, new(*collective.TimeoutError)):
		return engine.ExitTimeout
	case errors.As(err, new(*collective.StoppedError)):
		return engine.ExitInterrupted
	case errors.As(err, new(*collective.BackendError)):
		return engine.ExitBackend
	case errors.As(err, new(*collective.PeerLostError)):
		return engine.ExitRankLost
	case errors.As(err, &coded):
		return engine.ExitCode(coded.ExitCode())
	}
	return engine.ExitRecipe
}
