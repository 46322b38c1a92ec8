package starlib

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

// Call is one call of a builtin: its arguments by the names of the signature's
// parameters, defaults filled in, types checked. It is valid until Fn returns.
type Call struct {
	Name   string         // "dist.all_reduce"
	Recv   starlark.Value // a method's receiver
	Thread *starlark.Thread
	Rest   starlark.Tuple   // *args
	Named  []starlark.Tuple // **kwargs

	rank  *Rank // nil for methods
	sig   *signature
	args  []starlark.Value  // one per parameter of the signature
	store [8]starlark.Value // behind args for the usual short signature
}

// reset drops what the call held. It clears only what was used, since every write of a pointer goes through the garbage collector's write barrier.
func (c *Call) reset() {
	clear(c.args)
	c.Recv, c.Thread, c.args, c.rank = nil, nil, nil, nil
	if c.Rest != nil || c.Named != nil {
		c.Rest, c.Named = nil, nil
	}
}

func (c *Call) Position() syntax.Position { return Position(c.Thread) }

// Arg returns the argument for the named parameter, which must be in the signature.
func (c *Call) Arg(name string) starlark.Value {
	if i := c.sig.index(name); i >= 0 {
		return c.args[i]
	}
	panic(fmt.Sprintf("%s has no parameter %s", c.Name, name))
}

// At returns the argument for the i-th parameter; for the last one, i may be -1.
func (c *Call) At(i int) starlark.Value { return c.args[(i+len(c.args))%len(c.args)] }

// IsNone reports whether the argument is omitted or None.
func (c *Call) IsNone(name string) bool { return c.Arg(name) == starlark.None }

// String returns an argument declared string.
func (c *Call) String(name string) string { return string(c.Arg(name).(starlark.String)) }

// Bool returns an argument declared bool.
func (c *Call) Bool(name string) bool { return bool(c.Arg(name).(starlark.Bool)) }

// Callable returns an argument declared callable.
func (c *Call) Callable(name string) starlark.Callable { return c.Arg(name).(starlark.Callable) }

// Int returns an argument declared int. One that does not fit in 64 bits ends the call with an error.
func (c *Call) Int(name string) int {
	v := c.Arg(name).(starlark.Int)
	n, ok := v.Int64()
	if !ok {
		try.Fail("argument %s: %s does not fit into 64 bits", name, v)
	}
	return int(n)
}

// Float returns an argument declared float or number.
func (c *Call) Float(name string) float64 { return Number(c.Arg(name)) }

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
	// Item returns the element; an error unless there is exactly one.
	Item() (starlark.Value, error)
}

// AsPlain converts an int, a float or a one-element tensor to an Int or Float.
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

// AsNumber converts an int, a float or a one-element tensor to float64.
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
	c.sig = sig
	n := len(sig.params)
	if n <= len(c.store) {
		c.args = c.store[:n]
	} else {
		c.args = make([]starlark.Value, n)
	}
	given := min(len(args), sig.positional)
	copy(c.args, args[:given])
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
		case i < 0 && name == sig.restName && name != "" && c.Rest == nil: // dims = (0, 1) as well as 0, 1
			c.Rest = starlark.Tuple{kv[1]}
		case i < 0 && sig.kwargs:
			c.Named = append(c.Named, kv)
		case i < 0:
			return sig.unexpected(name)
		case c.args[i] != nil:
			return fmt.Errorf("argument %s is given twice", name)
		default:
			c.args[i] = kv[1]
		}
	}
	for i := range sig.params {
		p := &sig.params[i]
		switch v := c.args[i]; {
		case v == nil && p.value == nil:
			return fmt.Errorf("missing argument %s: %s", p.name, sig.text)
		case v == nil:
			c.args[i] = p.value
		case !p.accepts(v):
			return fmt.Errorf("argument %s: want %s, got %s%s", p.name, strings.Join(p.types, " or "), describe(v), instead(p.types, v))
		}
	}
	return nil
}

// describe names a value's type and, if short, its value.
func describe(v starlark.Value) string {
	switch v.(type) {
	case starlark.Int, starlark.Float, starlark.String, starlark.Bool:
		if s := v.String(); len(s) <= 40 {
			return v.Type() + " " + s
		}
	}
	return v.Type()
}
