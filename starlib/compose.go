package starlib

import (
	"errors"
	"strings"

	"go.starlark.net/starlark"

	"drun/starlib/lang"
)

// A Library has a rank's builtins that are written in Starlark (package std).
type Library interface {
	Function(folder, name string) (starlark.Callable, error)
}

// Library returns the library of the call's rank.
func (c *Call) Library() Library {
	if r, ok := c.Recv.(interface{ Library() Library }); ok {
		return r.Library()
	}
	return c.rank.Library
}

// Default reports whether an argument is its parameter's default.
func (c *Call) Default(name string) bool {
	for i, p := range c.sig.params {
		if p.name == name && p.value != nil {
			same, err := starlark.Equal(c.args[i], p.value)
			return same && err == nil
		}
	}
	return false
}

// Given formats the arguments that are not defaults, as they would be written.
func (c *Call) Given() string {
	var list []string
	for i, p := range c.sig.params {
		if v := c.args[i]; p.value == nil {
			list = append(list, v.String())
		} else if same, err := starlark.Equal(v, p.value); err != nil || !same {
			list = append(list, p.name+" = "+v.String())
		}
	}
	return strings.Join(list, ", ")
}

// Compose calls fn, which is written in Starlark, with the call's arguments: a method's receiver, then one for each parameter.
// An error that arises within names what is wrong, not where in fn.
func (c *Call) Compose(fn starlark.Callable) (starlark.Value, error) {
	args := make(starlark.Tuple, 0, 1+len(c.args)+len(c.Rest))
	if _, method := c.Recv.(Scalar); method {
		args = append(args, c.Recv)
	}
	args = append(append(args, c.args[:c.sig.positional]...), c.Rest...)
	kwargs := c.Named
	for i := c.sig.positional; i < len(c.args); i++ {
		kwargs = append(kwargs, starlark.Tuple{starlark.String(c.sig.params[i].name), c.args[i]})
	}
	return Composed(c.Thread, fn, args, kwargs...)
}

// Composed calls fn, which is written in Starlark, as Call.Compose does.
func Composed(thread *starlark.Thread, fn starlark.Callable, args starlark.Tuple, kwargs ...starlark.Tuple) (starlark.Value, error) {
	v, err := starlark.Call(thread, fn, args, kwargs)
	if err != nil {
		return nil, within(err)
	}
	return v, nil
}

// within returns what an error inside a function of the library says, or err if a function of the recipe raised it that
// the library's called.
func within(err error) error {
	eval, ok := err.(*starlark.EvalError)
	if !ok {
		return err
	}
	for _, frame := range eval.CallStack[max(len(eval.CallStack)-2, 0):] { // a builtin's frame may follow the function's
		if lang.IsRecipe(frame.Pos) {
			return err
		}
	}
	switch cause := eval.Unwrap().(type) {
	case nil:
		return errors.New(strings.TrimPrefix(eval.Msg, "fail: "))
	case *callError:
		return within(cause.err)
	default:
		if text, failed := strings.CutPrefix(cause.Error(), "fail: "); failed {
			return errors.New(text)
		}
		return within(cause)
	}
}
