package lang

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// exactInt bounds the integers that float64 holds exactly.
const exactInt = 1 << 53

// compare evaluates x op y in a recipe; the most common operands come first.
func compare(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	switch x := x.(type) {
	case starlark.Int:
		switch y := y.(type) {
		case starlark.Int:
			if i, ok := x.Int64(); ok {
				if j, ok := y.Int64(); ok {
					return ordered(op, i, j), nil
				}
			}
		case starlark.Float:
			if i, ok := x.Int64(); ok && -exactInt <= i && i <= exactInt {
				return ordered(op, float64(i), float64(y)), nil
			}
			if y != y {
				return starlark.Bool(op == syntax.NEQ), nil
			}
		}
	case starlark.Float:
		switch y := y.(type) {
		case starlark.Float:
			return ordered(op, float64(x), float64(y)), nil
		case starlark.Int:
			if j, ok := y.Int64(); ok && -exactInt <= j && j <= exactInt {
				return ordered(op, float64(x), float64(j)), nil
			}
			if x != x {
				return starlark.Bool(op == syntax.NEQ), nil
			}
		}
	case starlark.String:
		if y, ok := y.(starlark.String); ok {
			return ordered(op, x, y), nil
		}
	}
	return compareOther(op, x, y)
}

func compareOther(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	if op == syntax.EQL || op == syntax.NEQ {
		xNone, yNone := x == starlark.None, y == starlark.None
		if xNone || yNone {
			return starlark.Bool((xNone && yNone) == (op == syntax.EQL)), nil
		}
	}
	if err := typeWithFunction(x, y); err != nil {
		return nil, err
	}
	if x, ok := x.(Elementwise); ok {
		return x.CompareElementwise(op, y, false)
	}
	if y, ok := y.(Elementwise); ok {
		return y.CompareElementwise(op, x, true)
	}
	ok, err := starlark.Compare(op, x, y)
	return starlark.Bool(ok), err
}

// typeWithFunction is the error of type(x) == int, which would be false whatever x is: type gives a string.
func typeWithFunction(x, y starlark.Value) error {
	for _, pair := range [2][2]starlark.Value{{x, y}, {y, x}} {
		text, isText := pair[0].(starlark.String)
		if fn, is := pair[1].(*starlark.Builtin); is && isText && typeNames[fn.Name()] != "" {
			return fmt.Errorf("%s is compared with the function %s: type gives a string, as in type(x) == %q", text, fn.Name(), typeNames[fn.Name()])
		}
	}
	return nil
}

// typeNames maps the functions that Python has for types to what type gives.
var typeNames = map[string]string{"int": "int", "float": "float", "str": "string", "list": "list", "dict": "dict", "tuple": "tuple", "bool": "bool", "set": "set", "bytes": "bytes"}

// ordered is Go's comparison, which for floats is that of IEEE 754.
func ordered[T int64 | float64 | starlark.String](op syntax.Token, x, y T) starlark.Value {
	var z bool
	switch op {
	case syntax.EQL:
		z = x == y
	case syntax.NEQ:
		z = x != y
	case syntax.LT:
		z = x < y
	case syntax.LE:
		z = x <= y
	case syntax.GT:
		z = x > y
	case syntax.GE:
		z = x >= y
	}
	return starlark.Bool(z)
}
