package engine

import "drun/internal/exit"

type ExitCode = exit.Code

const (
	ExitDone        = exit.Done
	ExitRecipe      = exit.Recipe
	ExitUsage       = exit.Usage
	ExitRankLost    = exit.RankLost
	ExitTimeout     = exit.Timeout
	ExitMismatch    = exit.Mismatch
	ExitBackend     = exit.Backend
	ExitStorage     = exit.Storage
	ExitRequirement = exit.Requirement
	ExitInterrupted = exit.Interrupted
)

var Errorf = exit.Errorf

type Error struct {
	Code ExitCode
	Msg  string
	Hint string
	Err  error
}

func (e *Error) Error() string       { return e.Msg }
func (e *Error) ExitCode() exit.Code { return e.Code }
func (e *Error) Unwrap() error       { return exit.WithHint(exit.Errorf(e.Code, "%s", e.Msg), e.Hint) }
