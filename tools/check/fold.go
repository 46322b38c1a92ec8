package check

import (
	"math"
	"strconv"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// constant is the plain value that v is known to be; nil if unknown.
func constant(v value) starlark.Value {
	switch v.typ {
	case "int", "number":
		if n, err := strconv.Atoi(v.lit); err == nil {
			return starlark.MakeInt(n)
		}
	case "float":
		if f, err := strconv.ParseFloat(v.lit, 64); err == nil && !math.IsNaN(f) {
			return starlark.Float(f)
		}
	case "string":
		if text, err := strconv.Unquote(v.lit); err == nil {
			return starlark.String(text)
		}
	case "bool":
		if v.lit != "" {
			return starlark.Bool(v.lit == "True")
		}
	case "None":
		if len(v.refs) == 0 {
			return starlark.None
		}
	}
	return nil
}

// truth is the truth value of v, if known.
func truth(v value) (yes, known bool) {
	x := constant(v)
	if x == nil || v.diff != nil {
		return false, false
	}
	return bool(x.Truth()), true
}

func boolean(b bool) string { return starlark.Bool(b).String() }

// folded is out with the value of x op y if both are known, for comparisons and for 32-bit integers, since a loop could
// square a number again and again.
func folded(op syntax.Token, x, y, out value) value {
	if out.lit != "" || !plainTypes[out.typ] {
		return out
	}
	a, b := constant(x), constant(y)
	if a == nil || b == nil {
		return out
	}
	if comparisons[op] {
		if yes, err := starlark.Compare(op, a, b); err == nil {
			out.lit = boolean(yes)
		}
		return out
	}
	for _, v := range []starlark.Value{a, b} {
		if _, err := starlark.AsInt32(v); err != nil {
			return out
		}
	}
	if v, err := starlark.Binary(op, a, b); err == nil {
		if n, ok := v.(starlark.Int); ok {
			out.lit = n.String()
		}
	}
	return out
}
