package starlib

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Call is one call of a builtin: its arguments in the order of the signature's
// parameters, defaults filled in, types checked. It is valid until Fn returns.
type Call struct {
	Name   string         // "dist.all_reduce"
	Recv   starlark.Value // a method's receiver
	Thread *starlark.Thread
	Args   []starlark.Value // one a parameter
	Rest   starlark.Tuple   // *args
	Named  []starlark.Tuple // **kwargs

	store [8]starlark.Value // behind Args for the usual short signature
}

// reset forgets what the call held. It clears what was used rather than all: a
// write to memory that Go's collector watches costs.
func (c *Call) reset() {
	clear(c.Args)
	c.Recv, c.Thread, c.Args = nil, nil, nil
	if c.Rest != nil || c.Named != nil {
		c.Rest, c.Named = nil, nil
	}
}

// Position of the call in the recipe.
func (c *Call) Position() syntax.Position { return Position(c.Thread) }

// IsNone tells that argument i was left out or is None.
func (c *Call) IsNone(i int) bool { return c.Args[i] == starlark.None }

// String is argument i, declared string.
func (c *Call) String(i int) string { return string(c.Args[i].(starlark.String)) }

// Bool is argument i, declared bool.
func (c *Call) Bool(i int) bool { return bool(c.Args[i].(starlark.Bool)) }

// Callable is argument i, declared callable.
func (c *Call) Callable(i int) starlark.Callable { return c.Args[i].(starlark.Callable) }

// Int is argument i, declared int; an error when it does not fit 64 bits.
func (c *Call) Int(i int) (int, error) {
	n, ok := c.Args[i].(starlark.Int).Int64()
	if !ok {
		return 0, fmt.Errorf("argument %d: %s does not fit into 64 bits", i+1, c.Args[i])
	}
	return int(n), nil
}

// Float is argument i, declared float or number.
func (c *Call) Float(i int) float64 { return Number(c.Args[i]) }

// Number converts an int or float.
func Number(v starlark.Value) float64 {
	f, ok := starlark.AsFloat(v)
	if !ok {
		return math.NaN()
	}
	return f
}

// Scalar is a value that may hold one number: a tensor of one element.
type Scalar interface {
	// Item gives the element; an error when there is not exactly one.
	Item() (starlark.Value, error)
}

// AsPlain gives an int, a float or a one-element tensor as an Int or Float.
func AsPlain(v starlark.Value) (starlark.Value, error) {
	if s, ok := v.(Scalar); ok {
		item, err := s.Item()
		if err != nil {
			return nil, err
		}
		v = item
	}
	switch v.(type) {
	case starlark.Int, starlark.Float:
		return v, nil
	}
	return nil, fmt.Errorf("want a number, got %s", describe(v))
}

// AsNumber gives an int, a float or a one-element tensor as float64.
func AsNumber(v starlark.Value) (float64, error) {
	v, err := AsPlain(v)
	if err != nil {
		return 0, err
	}
	x := Number(v)
	if _, is := v.(starlark.Int); is && math.IsInf(x, 0) {
		return 0, errors.New("the integer is too large for a float")
	}
	return x, nil
}

// bind matches arguments with parameters, as a Starlark function would.
func (c *Call) bind(sig *signature, args starlark.Tuple, kwargs []starlark.Tuple) error {
	n := len(sig.params)
	if n <= len(c.store) {
		c.Args = c.store[:n]
	} else {
		c.Args = make([]starlark.Value, n)
	}
	given := min(len(args), sig.positional)
	copy(c.Args, args[:given])
	if len(args) > given {
		if !sig.rest {
			return fmt.Errorf("got %d arguments, want at most %d: %s", len(args), sig.positional, sig.text)
		}
		c.Rest = args[given:]
	}
	for _, kv := range kwargs {
		name := string(kv[0].(starlark.String))
		i := sig.index(name)
		switch {
		case i < 0 && sig.kwargs:
			c.Named = append(c.Named, kv)
		case i < 0:
			return fmt.Errorf("unexpected argument %s: %s", name, sig.text)
		case c.Args[i] != nil:
			return fmt.Errorf("argument %s is given twice", name)
		default:
			c.Args[i] = kv[1]
		}
	}
	for i := range sig.params {
		p := &sig.params[i]
		switch v := c.Args[i]; {
		case v == nil && p.value == nil:
			return fmt.Errorf("missing argument %s: %s", p.name, sig.text)
		case v == nil:
			c.Args[i] = p.value
		case !p.accepts(v):
			return fmt.Errorf("argument %s: want %s, got %s", p.name, strings.Join(p.types, " or "), describe(v))
		}
	}
	return nil
}

// describe names a value's type and, where short, its value.
func describe(v starlark.Value) string {
	switch v.(type) {
	case starlark.Int, starlark.Float, starlark.String, starlark.Bool:
		if s := v.String(); len(s) <= 40 {
			return v.Type() + " " + s
		}
	}
	return v.Type()
}
