package check

import (
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// constant returns the plain value that v is known to be; nil if unknown.
func constant(v value) starlark.Value {
	if len(v.refs) > 0 {
		return nil
	}
	return v.lit
}

// alike reports whether two plain values, nil if unknown, are the same.
func alike(a, b starlark.Value) bool {
	return a == b || a != nil && b != nil && a.Type() == b.Type() && a.String() == b.String()
}

func truth(v value) (yes, known bool) {
	x := constant(v)
	if x == nil || v.diff != nil {
		return false, false
	}
	return bool(x.Truth()), true
}

// folded returns out with the value of x op y if both are known. It does so only for comparisons and 32-bit integers, since a loop
// could square a number again and again.
func folded(op syntax.Token, x, y, out value) value {
	if out.lit != nil || !plainTypes[out.typ] {
		return out
	}
	a, b := constant(x), constant(y)
	if a == nil || b == nil {
		return out
	}
	if comparisons[op] {
		if yes, err := starlark.Compare(op, a, b); err == nil {
			out.lit = starlark.Bool(yes)
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
			out.lit = n
		}
	}
	return out
}
