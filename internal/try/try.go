// Package try lets a function that makes several steps, each of which may fail, end at the first error: To and Ok leave the
// function, and Caught, which it defers, has it return the error. Packages of
// tensors use it, and those of what is done with recorded runs.
package try

import (
	"fmt"
	"strings"
)

// failed is what To and Ok panic with.
type failed struct{ err error }

// Caught makes the error of To or Ok the function's own. Other panics go on.
func Caught(err *error) { settle(recover(), err) }

// CaughtOr is Caught, and undoes what the function has done if there is an error.
func CaughtOr(err *error, undo func()) {
	if settle(recover(), err); *err != nil {
		undo()
	}
}

// CaughtAs is Caught for a function whose errors have the name of the operation that was called.
func CaughtAs(op string, err *error) {
	settle(recover(), err)
	*err = As(op, *err)
}

func settle(recovered any, err *error) {
	switch p := recovered.(type) {
	case nil:
	case failed:
		*err = p.err
	default:
		panic(p)
	}
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
