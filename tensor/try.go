package tensor

// A function that makes several steps, each of which may fail, ends at the first error: try and ensure leave the
// function, and caught, which it defers, has it return the error. Backward functions defer nothing: Backward does.

// failed is what try and ensure panic with.
type failed struct{ err error }

// caught makes the error of try or ensure the function's own. Other panics go on.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case failed:
		*err = p.err
	default:
		panic(p)
	}
}

// caughtAs is caught for a function whose errors have the name of the operation that was called.
func caughtAs(op string, err *error) {
	switch p := recover().(type) {
	case nil:
		*err = As(op, *err)
	case failed:
		*err = As(op, p.err)
	default:
		panic(p)
	}
}

// try is the result of a step.
func try[T any](v T, err error) T {
	if err != nil {
		panic(failed{err})
	}
	return v
}

// try2 is try for two results, and try3 for three.
func try2[T, U any](v T, u U, err error) (T, U) {
	ensure(err)
	return v, u
}

func try3[T, U, V any](v T, u U, w V, err error) (T, U, V) {
	ensure(err)
	return v, u, w
}

// ensure ends the function if a step without a result failed.
func ensure(err error) {
	if err != nil {
		panic(failed{err})
	}
}
