// Package engine holds the words that a run's processes share: how a run can end
// (Failure, ExitCode) and what the agent and its workers say to each other over
// their control channel. The agent is engine/launch, a worker engine/worker.
package engine

import "fmt"

// ExitCode is the status that `drun run` ends with.
type ExitCode int

// The exit codes, as `drun help exit-codes` lists them.
const (
	ExitDone        ExitCode = 0
	ExitRecipe      ExitCode = 1
	ExitUsage       ExitCode = 2
	ExitRankLost    ExitCode = 3
	ExitTimeout     ExitCode = 4
	ExitMismatch    ExitCode = 5
	ExitBackend     ExitCode = 6
	ExitStorage     ExitCode = 7
	ExitRequirement ExitCode = 8
	ExitInterrupted ExitCode = 130
)

// Status is the word under which history keeps a run that ended so.
func (c ExitCode) Status() string {
	switch c {
	case ExitDone:
		return "done"
	case ExitRankLost:
		return "killed"
	case ExitInterrupted:
		return "interrupted"
	}
	return "failed"
}

// Error is an error that knows its exit code and what the user can do about it.
type Error struct {
	Code ExitCode
	Msg  string
	Hint string
	Err  error // the cause, if there is one
}

// Errorf makes an Error without a hint.
func Errorf(code ExitCode, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Err: err}
}

func (e *Error) Error() string { return e.Msg }

// ExitCode is the status that the command line ends with.
func (e *Error) ExitCode() int { return int(e.Code) }

// Advice is the hint.
func (e *Error) Advice() string { return e.Hint }

func (e *Error) Unwrap() error { return e.Err }

// Failure is why a rank ended, as it reports it to its agent.
type Failure struct {
	Rank      int
	Code      ExitCode
	Message   string // one line: position in the recipe, then what happened
	Traceback string // the recipe's frames, or a table by rank
	Hint      string
	When      int64 // CLOCK_MONOTONIC, nanoseconds: comparable between processes of a machine
	// Secondary is set when the rank ended because another one did: it is never
	// the cause that the run names.
	Secondary bool
}

// First picks the cause of a run's end: the earliest failure that no other
// failure brought about. It returns nil for none.
func First(failures []*Failure) *Failure {
	var first *Failure
	for _, f := range failures {
		if first == nil || before(f, first) {
			first = f
		}
	}
	return first
}

func before(a, b *Failure) bool {
	if a.Secondary != b.Secondary {
		return b.Secondary
	}
	if a.When != b.When {
		return a.When < b.When
	}
	return a.Rank < b.Rank
}
