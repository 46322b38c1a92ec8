package lang

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/memory"
)

// The watch over the rank's memory stops recipes that allocate gradually. These limits are for single steps
// that allocate a lot at once, or take hours and cannot be interrupted.
const (
	elementBytes = 16 // of a list or tuple

	// Multiplying or printing longer integers takes seconds to hours.
	maxIntBits   = 1 << 22
	maxIntDigits = 1_200_000
)

// multiply evaluates x * y.
func multiply(x, y starlark.Value) (starlark.Value, error) {
	if count, ok := y.(starlark.Int); ok {
		if err := repeat(x, count); err != nil {
			return nil, err
		}
	} else if count, ok := x.(starlark.Int); ok {
		if err := repeat(y, count); err != nil {
			return nil, err
		}
	}
	return starlark.Binary(syntax.STAR, x, y)
}

func repeat(v starlark.Value, count starlark.Int) error {
	var n, each int
	switch v := v.(type) {
	case starlark.Int:
		a, small := v.Int64()
		b, smallToo := count.Int64()
		if small && smallToo || a == 0 && small || b == 0 && smallToo {
			return nil
		}
		if n := v.BigInt().BitLen() + count.BigInt().BitLen(); n > maxIntBits {
			return fmt.Errorf("a product of %d bits: integers have at most %d", n, maxIntBits)
		}
		return nil
	case starlark.String:
		n, each = len(v), 1
	case starlark.Bytes:
		n, each = len(v), 1
	case *starlark.List:
		n, each = v.Len(), elementBytes
	case starlark.Tuple:
		n, each = len(v), elementBytes
	default:
		return nil
	}
	if times, ok := count.Int64(); ok {
		return memory.Fits(int(times), n*each, fmt.Sprintf("a %s of %d repeated %d times", v.Type(), n, times))
	}
	return nil // Starlark's own error
}

// spread refuses a range whose numbers do not fit in memory, since a builtin expands all of it in one step.
func spread(v starlark.Value) error {
	if v == nil || reflect.TypeOf(v) != rangeType {
		return nil
	}
	n := starlark.Len(v)
	return memory.Fits(n, elementBytes, fmt.Sprintf("a list of the %d numbers of a range", n))
}

// rangeType has no name outside Starlark. Comparing type names would be too slow for calls with *args.
var rangeType = func() reflect.Type {
	empty, err := starlark.Call(new(starlark.Thread), starlark.Universe["range"], starlark.Tuple{starlark.MakeInt(0)}, nil)
	if err != nil {
		panic(err) // range(0) cannot fail
	}
	return reflect.TypeOf(empty)
}()

// spreading are the builtins that read all elements of an argument.
var spreading = []string{"list", "tuple", "sorted", "reversed", "enumerate", "set", "dict", "bytes", "max", "min", "sum", "zip"}

// checked returns a builtin of the same name that calls b unless check finds an error.
func checked(b *starlark.Builtin, check func(args starlark.Tuple, kwargs []starlark.Tuple) error) *starlark.Builtin {
	return starlark.NewBuiltin(b.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := check(args, kwargs); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name(), err)
		}
		return b.CallInternal(thread, args, kwargs)
	})
}

func spreads(b *starlark.Builtin) *starlark.Builtin {
	return checked(b, func(args starlark.Tuple, kwargs []starlark.Tuple) (err error) {
		for _, kv := range kwargs {
			if kv[0] == starlark.String("iterable") {
				args = append(slices.Clip(args), kv[1])
			}
		}
		for _, arg := range args {
			fault := spread(arg)
			if fault == nil && b.Name() == "zip" {
				return nil // it is as long as its shortest argument
			}
			err = cmp.Or(err, fault)
		}
		return err
	})
}

// number limits int(x), whose time grows with the square of the number of digits.
func number(b *starlark.Builtin) *starlark.Builtin {
	return checked(b, func(args starlark.Tuple, _ []starlark.Tuple) error {
		if len(args) == 0 {
			return nil
		}
		if s, ok := starlark.AsString(args[0]); ok && len(s) > maxIntDigits {
			return fmt.Errorf("a string of %d bytes: at most %d can be converted to an integer", len(s), maxIntDigits)
		}
		return nil
	})
}

// Shallow wraps a builtin that recurses over its arguments, or over JSON text, and refuses those that are nested too deeply.
func Shallow(b *starlark.Builtin) *starlark.Builtin {
	return checked(b, func(args starlark.Tuple, kwargs []starlark.Tuple) error {
		for _, kv := range kwargs {
			args = append(slices.Clip(args), kv[1])
		}
		for _, arg := range args {
			if err := CheckDepth(arg); err != nil {
				return err
			}
			if text, ok := starlark.AsString(arg); ok && b.Name() == "json.decode" && len(text) > 10_000 {
				// The builtin itself reports malformed JSON; encoding/json is used only for the depth.
				if err := json.Unmarshal([]byte(text), new(json.RawMessage)); err != nil && strings.Contains(err.Error(), "exceeded max depth") {
					return errors.New("JSON text that is nested more than 10000 deep")
				}
			}
		}
		return nil
	})
}
