// Package exit defines how drun ends: the exit codes, and errors that carry a code and a hint on what to do about them.
// Every package whose errors reach the command line uses it.
package exit

import (
	"errors"
	"fmt"
)

// Code is the status that drun ends with.
type Code int

// The exit codes, as `drun help exit-codes` lists them.
const (
	Done        Code = 0
	Recipe      Code = 1
	Usage       Code = 2
	RankLost    Code = 3
	Timeout     Code = 4
	Mismatch    Code = 5
	Backend     Code = 6
	Storage     Code = 7
	Requirement Code = 8
	Interrupted Code = 130
)

// Status returns the word that the history uses for a run that ended with this code.
func (c Code) Status() string {
	switch c {
	case Done:
		return "done"
	case Interrupted:
		return "interrupted"
	}
	return "failed"
}

// Coded is an error that knows its exit code. Error types that always end drun in the same way have this method;
// [Errorf] and [WithCode] are for others.
type Coded interface {
	error
	ExitCode() Code
}

// Hinted is an error that says what the user can do about it; "" is no hint.
type Hinted interface {
	error
	Hint() string
}

// PermanentError is an error that can say whether it would recur if the same thing were tried again. Error types that always
// recur have this method; [Permanent] is for others.
type PermanentError interface {
	error
	Permanent() bool
}

// Permanent marks err as one that would recur. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// IsPermanent reports whether an error in err's chain says that it would recur.
func IsPermanent(err error) bool {
	var p PermanentError
	return errors.As(err, &p) && p.Permanent()
}

// CodeOf returns the exit code of the outermost error in err's chain that has
// one: [Recipe] if none has, and [Done] for nil.
func CodeOf(err error) Code {
	var coded Coded
	switch {
	case err == nil:
		return Done
	case errors.As(err, &coded):
		return coded.ExitCode()
	}
	return Recipe
}

// HintOf returns the outermost hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		var hinted Hinted
		if !errors.As(err, &hinted) {
			return ""
		}
		if hint := hinted.Hint(); hint != "" {
			return hint
		}
		err = errors.Unwrap(hinted)
	}
	return ""
}

// Errorf is fmt.Errorf for an error with an exit code, which hides those of the errors that it wraps.
func Errorf(code Code, format string, args ...any) error {
	return &withCode{fmt.Errorf(format, args...), code}
}

// WithCode gives err an exit code, unless it has one or is nil.
func WithCode(err error, code Code) error {
	if err == nil || errors.As(err, new(Coded)) {
		return err
	}
	return &withCode{err, code}
}

// WithHint gives err a hint, which hides those of the errors that it wraps. nil stays nil, and "" adds nothing.
func WithHint(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &withHint{err, hint}
}

type withCode struct {
	error
	code Code
}

func (e *withCode) Unwrap() error  { return e.error }
func (e *withCode) ExitCode() Code { return e.code }

type permanent struct{ error }

func (e *permanent) Unwrap() error   { return e.error }
func (e *permanent) Permanent() bool { return true }

type withHint struct {
	error
	hint string
}

func (e *withHint) Unwrap() error { return e.error }
func (e *withHint) Hint() string  { return e.hint }
