package lang

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Printing and freezing recurse over values, printing takes time quadratic in the depth, and a Go stack overflow
// cannot be recovered from.
const (
	maxPrintDepth  = 1_000
	maxFreezeDepth = 100_000
)

// CheckDepth reports an error if a value is a nest of containers too deep to
// be printed or encoded. A builtin that recurses over its argument calls it
// first.
func CheckDepth(v starlark.Value) error { return checkDepth(v, maxPrintDepth) }

// Freeze freezes the globals of a module, unless a value is nested too deep.
func Freeze(globals starlark.StringDict) error {
	for _, name := range globals.Keys() {
		if err := checkDepth(globals[name], maxFreezeDepth); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	globals.Freeze()
	return nil
}

func checkDepth(v starlark.Value, limit int) error {
	if !nests(v) {
		return nil
	}
	w := nest{limit: limit, seen: map[any]int{}}
	if _, ok := w.visit(v, 0); !ok {
		return fmt.Errorf("a %s is nested more than %d deep", v.Type(), limit)
	}
	return nil
}

func nests(v starlark.Value) bool {
	switch v := v.(type) {
	case *starlark.List:
		return v.Len() > 0
	case starlark.Tuple:
		return len(v) > 0
	case *starlark.Dict:
		return v.Len() > 0
	case *starlark.Set, *starlark.Function, *starlarkstruct.Struct:
		return true
	}
	return false
}

// nest measures how deep a value nests. seen holds what has been visited, keyed
// by identity, so that shared values are visited once; a container on the current
// path has height 0, which ends cycles.
type nest struct {
	limit int
	seen  map[any]int
}

// visit measures v; false if it nests deeper than the limit.
func (n *nest) visit(v starlark.Value, depth int) (height int, ok bool) {
	if depth > n.limit {
		return 0, false
	}
	var id any = v
	if t, ok := v.(starlark.Tuple); ok {
		id = &t[0]
	}
	at, seen := n.seen[id]
	if seen {
		return at, depth+at <= n.limit
	}
	n.seen[id] = 0
	fits := true
	parts(v, func(part starlark.Value) bool {
		if part == nil {
			return true
		}
		inner := -1
		if nests(part) {
			inner, fits = n.visit(part, depth+1)
		}
		height = max(height, inner+1)
		return fits
	})
	n.seen[id] = height
	return height, fits
}

// parts calls yield for each value that v holds, until it returns false.
func parts(v starlark.Value, yield func(starlark.Value) bool) {
	switch v := v.(type) {
	case *starlark.List:
		v.Elements()(yield)
	case starlark.Tuple:
		v.Elements()(yield)
	case *starlark.Set:
		v.Elements()(yield)
	case *starlark.Dict:
		for key, value := range v.Entries() {
			if !yield(key) || !yield(value) {
				return
			}
		}
	case *starlarkstruct.Struct:
		for _, name := range v.AttrNames() {
			if field, err := v.Attr(name); err == nil && !yield(field) {
				return
			}
		}
	case *starlark.Function:
		for i := range v.NumFreeVars() {
			if _, value := v.FreeVar(i); !yield(value) {
				return
			}
		}
		for i := range v.NumParams() {
			if !yield(v.ParamDefault(i)) {
				return
			}
		}
	}
}
