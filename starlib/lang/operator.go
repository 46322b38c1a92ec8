package lang

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Elementwise is a value, such as a tensor, that compares element by element.
type Elementwise interface {
	starlark.Value
	// CompareElementwise returns the value of x op y, or of y op x if reversed, where x is the receiver. op is one of
	// EQL NEQ LT LE GT GE. It is not called for == and != with None, which give a plain bool.
	CompareElementwise(op syntax.Token, y starlark.Value, reversed bool) (starlark.Value, error)
}

// Truther is a value that may have no truth value, such as a tensor of several elements.
// If TruthValue returns no error, the value's Truth must agree with it.
type Truther interface {
	starlark.Value
	TruthValue() (bool, error)
}

// operators returns the values that rewritten expressions refer to.
func operators() starlark.StringDict {
	dict := starlark.StringDict{
		predeclared + "if":   truth{},
		predeclared + "%":    &operator{apply: format},
		predeclared + "*":    &operator{apply: multiply},
		predeclared + "f(*)": unpacked{},
		predeclared + "f()":  transient{},
	}
	for _, op := range []syntax.Token{syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE} {
		dict[predeclared+op.String()] = &operator{apply: func(x, y starlark.Value) (starlark.Value, error) {
			return compare(op, x, y)
		}}
		dict[predeclared+"if "+op.String()] = &operator{apply: func(x, y starlark.Value) (starlark.Value, error) {
			z, err := compare(op, x, y)
			if err != nil {
				return nil, err
			}
			return z, checkTruth(z)
		}}
	}
	return dict
}

// internal implements starlark.Value for values that recipes never see.
type internal struct{}

func (internal) String() string        { return "operator" }
func (internal) Type() string          { return "operator" }
func (internal) Freeze()               {}
func (internal) Truth() starlark.Bool  { return true }
func (internal) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: operator") }

// operator is a binary operator: operator[x][y] applies it.
type operator struct {
	internal
	apply func(x, y starlark.Value) (starlark.Value, error)
}

func (op *operator) Get(x starlark.Value) (starlark.Value, bool, error) {
	return &applied{op: op, x: x}, true, nil
}

// applied is an operator with its left operand.
type applied struct {
	internal
	op *operator
	x  starlark.Value
}

func (a *applied) Get(y starlark.Value) (starlark.Value, bool, error) {
	z, err := a.op.apply(a.x, y)
	return z, true, err
}

// truth[x] is x, or an error if x has no truth value.
type truth struct{ internal }

func (truth) Get(x starlark.Value) (starlark.Value, bool, error) { return x, true, checkTruth(x) }

// unpacked[x] is x, or an error if it has more elements than a call can be given.
type unpacked struct{ internal }

func (unpacked) Get(x starlark.Value) (starlark.Value, bool, error) { return x, true, spread(x) }

// Transient is a callable that takes advantage of f(x).backward(y): the result of f(x) has no name, so nothing can refer
// to it afterwards.
type Transient interface {
	starlark.Callable
	// ForBackward returns what is called there instead of f, which is the callable itself or one that embeds it.
	ForBackward(f starlark.Callable) starlark.Callable
}

// transient[f] is f as it is called in f(x).backward(y).
type transient struct{ internal }

func (transient) Get(f starlark.Value) (starlark.Value, bool, error) {
	if t, ok := f.(Transient); ok {
		f = t.ForBackward(t)
	}
	return f, true, nil
}

func checkTruth(x starlark.Value) error {
	if _, plain := x.(starlark.Bool); plain {
		return nil
	}
	if t, ok := x.(Truther); ok {
		_, err := t.TruthValue()
		return err
	}
	return nil
}
