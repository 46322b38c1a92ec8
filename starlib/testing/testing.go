// Package testing is the module testing, for the functions test_* of a recipe. They run under `drun test`, and in
// the engine's own tests; elsewhere a recipe with such functions has the module, too, but calls of it fail.
package testing

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/codec"

	"go.starlark.net/starlark"
)

const Prefix = "test_"

// Module makes the module. dir is the recipe's folder, "" outside tests.
func Module(dir string) *starlib.Module {
	m := &starlib.Module{
		Name: "testing",
		Doc:  "What a recipe's test_* functions need; they run under `drun test`.",
		Defs: []*starlib.Def{
			{Sig: `eq(got, want)`,
				Doc: "An error unless both are equal, in type and bit for bit: tensors in shape, dtype and elements, where NaN equals\n" +
					"NaN; lists and dicts in everything they hold.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					got, want := c.Arg("got"), c.Arg("want")
					if !equal(c.Thread, got, want) {
						return nil, fmt.Errorf("got %s, want %s", shown(got), shown(want))
					}
					return nil, nil
				}},
			{Sig: `close(got, want, rtol: number = 1e-5, atol: number = 1e-8)`,
				Doc: "An error unless |got - want| <= atol + rtol * |want|, for two numbers, or each pair of elements of tensors or\n" +
					"lists of the same shape. NaN is close to NaN, and an infinity to itself.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					rtol, atol := c.Float("rtol"), c.Float("atol")
					try.FailIf(!(rtol >= 0) || !(atol >= 0), "rtol and atol cannot be negative")
					got, want := c.Arg("got"), c.Arg("want")
					for _, v := range []starlark.Value{got, want} {
						if _, err := codec.Encode(v); err != nil { // it may be a cycle
							return nil, fmt.Errorf("close compares only numbers, and tensors and lists of them: %w", err)
						}
					}
					return nil, near(c.Thread, got, want, rtol, atol, "")
				}},
			{Sig: `check(ok: bool, message: string = "")`,
				Doc: "An error with the message unless ok.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					switch message := c.String("message"); {
					case c.Bool("ok"):
						return nil, nil
					case message == "":
						return nil, errors.New("the check failed")
					default:
						return nil, errors.New(message)
					}
				}},
			{Sig: `fails(fn: callable, message: string = "") -> string`,
				Doc: "Calls fn, which must fail with an error that has the message in it, and returns the error's text. A rank that\n" +
					"fails in a collective leaves the others waiting, so fn must not call any.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					_, err := starlark.Call(c.Thread, c.Callable("fn"), nil, nil)
					switch message := c.String("message"); {
					case err == nil:
						return nil, errors.New("the function did not fail")
					case !strings.Contains(err.Error(), message):
						return nil, fmt.Errorf("the function failed with %q, which does not contain %q", err.Error(), message)
					}
					return starlark.String(err.Error()), nil
				}},
			{Sig: `sleep(s: number)`,
				Doc: "Waits for s seconds.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					time.Sleep(time.Duration(c.Float("s") * float64(time.Second)))
					return nil, nil
				}},
			{Sig: `kill_self()`,
				Doc: "Ends this rank's process with SIGKILL.",
				Fn: func(*starlib.Call) (starlark.Value, error) {
					try.Ok(syscall.Kill(os.Getpid(), syscall.SIGKILL))
					select {} // the signal takes a moment to arrive
				}},
			{Sig: `exit(code: int)`,
				Doc: "Ends this rank's process with an exit status, without telling the agent.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					code := c.Int("code")
					os.Exit(code)
					return nil, nil
				}},
			{Sig: `hide_file(path: string)`,
				Doc: "Removes a file in the recipe's folder.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					root := try.To(os.OpenRoot(dir))
					defer root.Close()
					return nil, root.Remove(filepath.FromSlash(c.String("path")))
				}},
		},
	}
	if dir == "" {
		for _, d := range m.Defs {
			d.Fn = func(*starlib.Call) (starlark.Value, error) {
				return nil, errors.New("the module is only for a recipe's test_* functions, under drun test")
			}
		}
	}
	return m
}

// equal compares exactly, except for the bits of a NaN. Values that are not plain, or nested too deeply, are equal if they print the same.
func equal(thread *starlark.Thread, a, b starlark.Value) bool {
	x, errX := codec.Encode(a)
	y, errY := codec.Encode(b)
	if errX != nil || errY != nil {
		return a.Type() == b.Type() && a.String() == b.String()
	}
	return bytes.Equal(x, y) || same(thread, a, b)
}

// same compares plain values, which have no cycles.
func same(thread *starlark.Thread, a, b starlark.Value) bool {
	if a.Type() != b.Type() {
		return false
	}
	switch x := a.(type) {
	case starlark.Float:
		f, g := float64(x), float64(b.(starlark.Float))
		return math.Float64bits(f) == math.Float64bits(g) || f != f && g != g
	case *starlark.List, starlark.Tuple:
		return alike(thread, x.(starlark.Indexable), b.(starlark.Indexable))
	case *starlark.Dict:
		return slices.EqualFunc(x.Items(), b.(*starlark.Dict).Items(), func(p, q starlark.Tuple) bool { return alike(thread, p, q) })
	}
	if a.Type() == "Tensor" && described(a) == described(b) {
		listA, errA := listed(thread, a)
		listB, errB := listed(thread, b)
		return errA == nil && errB == nil && same(thread, listA, listB)
	}
	return a.Type() != "Tensor" && a.String() == b.String()
}

func alike(thread *starlark.Thread, a, b starlark.Indexable) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !same(thread, a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

// described returns a tensor's type and shape.
func described(v starlark.Value) string {
	var parts []string
	for _, name := range []string{"dtype", "shape"} {
		if part, err := v.(starlark.HasAttrs).Attr(name); err == nil && part != nil {
			parts = append(parts, part.String())
		}
	}
	return strings.Join(parts, " ")
}

func shown(v starlark.Value) string {
	if s := []rune(v.String()); len(s) > 500 {
		return string(s[:500]) + "…"
	}
	return v.String()
}

// near compares numbers, and tensors and lists of them; at is the position within them.
func near(thread *starlark.Thread, got, want starlark.Value, rtol, atol float64, at string) (err error) {
	defer try.Caught(&err)
	place := ""
	if at != "" {
		place = " at " + at
	}
	got = try.To(listed(thread, got))
	want = try.To(listed(thread, want))
	x, listX := got.(starlark.Indexable)
	y, listY := want.(starlark.Indexable)
	if listX && listY {
		try.FailIf(x.Len() != y.Len(), "got %d elements%s, want %d", x.Len(), place, y.Len())
		for i := range x.Len() {
			try.Ok(near(thread, x.Index(i), y.Index(i), rtol, atol, fmt.Sprintf("%s[%d]", at, i)))
		}
		return nil
	}
	f, okX := starlark.AsFloat(got)
	g, okY := starlark.AsFloat(want)
	switch {
	case !okX || !okY:
		return fmt.Errorf("got %s%s, want %s: close compares only numbers", shown(got), place, shown(want))
	case f == g, math.IsNaN(f) && math.IsNaN(g), !math.IsInf(g, 0) && math.Abs(f-g) <= atol+rtol*math.Abs(g):
		return nil
	}
	return fmt.Errorf("got %s%s, want %s: they differ by %.3g", got, place, want, math.Abs(f-g))
}

// listed returns a tensor as a number or nested lists of numbers.
func listed(thread *starlark.Thread, v starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	tensor, ok := v.(starlark.HasAttrs)
	if !ok || v.Type() != "Tensor" {
		return v, nil
	}
	tolist := try.To(tensor.Attr("tolist"))
	return starlark.Call(thread, tolist, nil, nil)
}
