package lang

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// maxDepth limits nesting, since printing recurses and takes time quadratic in the depth, and a Go stack overflow cannot be recovered from.
const maxDepth = 1_000

// CheckDepth returns an error if a value's containers are nested too deeply to be printed or encoded. A builtin that
// recurses over its argument calls it first.
func CheckDepth(v starlark.Value) error {
	if !nests(v) {
		return nil
	}
	if _, ok := (nest{}).visit(v, 0); !ok {
		return fmt.Errorf("a %s is nested more than %d deep", v.Type(), maxDepth)
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
	case *starlark.Set, *starlarkstruct.Struct:
		return true
	}
	return false
}

// A nest measures how deeply a value is nested. It holds the heights of visited containers, keyed by identity, so
// that shared values are visited once; a container on the current path has height 0, which ends cycles.
type nest map[any]int

// visit returns the height of v; false if it is nested deeper than the limit.
func (n nest) visit(v starlark.Value, depth int) (height int, ok bool) {
	if depth > maxDepth {
		return 0, false
	}
	var id any = v
	if t, ok := v.(starlark.Tuple); ok {
		id = &t[0]
	}
	if at, seen := n[id]; seen {
		return at, depth+at <= maxDepth
	}
	n[id] = 0
	fits := true
	Parts(v, func(part starlark.Value) bool {
		inner := -1
		if nests(part) {
			inner, fits = n.visit(part, depth+1)
		}
		height = max(height, inner+1)
		return fits
	})
	n[id] = height
	return height, fits
}

// Parts calls yield for each value that v holds, also keys of a dict, until it returns false.
func Parts(v starlark.Value, yield func(starlark.Value) bool) {
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
	}
}
