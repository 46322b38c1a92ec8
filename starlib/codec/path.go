package codec

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// pathError says which part of a value cannot be encoded. Its path is put
// together on the way out, innermost part first.
type pathError struct {
	path []string
	err  error
}

func (e *pathError) Error() string {
	if len(e.path) == 0 {
		return e.err.Error()
	}
	path := slices.Clone(e.path)
	slices.Reverse(path)
	return "value" + text(path) + ": " + e.err.Error()
}

func (e *pathError) Unwrap() error { return e.err }

// text is a path as a recipe would write it, its middle left out if it is long.
func text(path []string) string {
	const most = 12
	if n := len(path); n > 2*most {
		path = slices.Concat(path[:most], []string{"…"}, path[n-most:])
	}
	return strings.Join(path, "")
}

// within adds a part to an error's path. An error about depth or size has no path.
func within(part string, err error) error {
	if err == errDepth || err == errLarge {
		return err
	}
	e, ok := err.(*pathError)
	if !ok {
		e = &pathError{err: err}
	}
	e.path = append(e.path, part)
	return e
}

// index is the part of a path that a key or number makes.
func index(key starlark.Value) string {
	text := key.String()
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:36], "") + "…"
	}
	return "[" + text + "]"
}

// part is a value directly inside another.
type part struct {
	name  string
	value starlark.Value
}

// parts lists what is inside a value that may hold others.
func parts(v starlark.Value) (list []part) {
	number := func(items starlark.Iterable) {
		i := 0
		for x := range starlark.Elements(items) {
			list = append(list, part{fmt.Sprintf("[%d]", i), x})
			i++
		}
	}
	switch v := v.(type) {
	case *starlark.List:
		number(v)
	case starlark.Tuple:
		number(v)
	case *starlark.Dict:
		for _, kv := range v.Items() {
			list = append(list, part{index(kv[0]), kv[1]})
		}
	case *starlarkstruct.Struct:
		for _, name := range v.AttrNames() {
			if x, err := v.Attr(name); err == nil {
				list = append(list, part{"." + name, x})
			}
		}
	}
	return list
}

// tooDeep says why a value is, or seems, infinite: it looks for a list or dict that contains itself.
func tooDeep(v starlark.Value) error {
	above := map[starlark.Value]int{} // lists and dicts around, by their depth
	var path []string
	var look func(v starlark.Value) error
	look = func(v starlark.Value) error {
		switch v.(type) {
		case *starlark.List, *starlark.Dict:
			if depth, again := above[v]; again {
				return fmt.Errorf("the value contains itself: value%s is value%s", text(path), text(path[:depth]))
			}
			above[v] = len(path)
			defer delete(above, v)
		}
		if len(path) > maxDepth {
			return fmt.Errorf("the value is nested deeper than %d levels: value%s", maxDepth, text(path))
		}
		for _, p := range parts(v) {
			path = append(path, p.name)
			if err := look(p.value); err != nil {
				return err
			}
			path = path[:len(path)-1]
		}
		return nil
	}
	return look(v)
}
