// Package try lets a function that makes several steps, each of which may fail, end at the first error: To and Ok leave the
// function, and Caught, which it defers, has it return the error. It must be deferred in the same goroutine. A builtin of starlib,
// and what it calls, needs no Caught: the wrapper of all builtins has it; so have those of all commands and of all requests.
package try

import (
	"fmt"
	"strings"
)

// failed is what To and Ok panic with.
type failed struct{ err error }

// Caught makes the error of To or Ok the function's own. Other panics continue.
func Caught(err *error) { caught(recover(), err) }

// CaughtOr is Caught, and undoes what the function has done if it fails or panics.
func CaughtOr(err *error, undo func()) {
	p := recover()
	step, failing := Failure(p)
	if failing {
		*err = step
	}
	if p != nil || *err != nil {
		undo()
	}
	if p != nil && !failing {
		panic(p)
	}
}

// CaughtAs is Caught for a function whose errors have the name of the operation that was called.
func CaughtAs(op string, err *error) {
	caught(recover(), err)
	*err = As(op, *err)
}

func caught(p any, err *error) {
	if failure, is := Failure(p); is {
		*err = failure
	} else if p != nil {
		panic(p)
	}
}

// Failure is the error of To or Ok, for a caller that recovered p itself.
func Failure(p any) (err error, is bool) {
	f, is := p.(failed)
	return f.err, is
}

// To is the result of a step.
func To[T any](v T, err error) T {
	if err != nil {
		panic(failed{err})
	}
	return v
}

// To2 is To for two results.
func To2[T, U any](v T, u U, err error) (T, U) {
	Ok(err)
	return v, u
}

// To3 is To for three results.
func To3[T, U, V any](v T, u U, w V, err error) (T, U, V) {
	Ok(err)
	return v, u, w
}

// Ok ends the function if a step without a result failed.
func Ok(err error) {
	if err != nil {
		panic(failed{err})
	}
}

// Fail ends the function with an error.
func Fail(format string, args ...any) { panic(failed{fmt.Errorf(format, args...)}) }

// FailIf ends the function with an error if bad. Its arguments are always evaluated, so it is not meant for checks
// of each element.
func FailIf(bad bool, format string, args ...any) {
	if bad {
		Fail(format, args...)
	}
}

// As renames the error of a partial operation after the operation that was called.
func As(op string, err error) error {
	if err == nil {
		return nil
	}
	part, what, ok := strings.Cut(err.Error(), ": ")
	if !ok || part != op && strings.ContainsAny(part, " (") {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s: %s", op, what)
}
