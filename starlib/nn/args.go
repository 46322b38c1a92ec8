package nn

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
)

// positive reads two sizes.
func positive(c *starlib.Call, i, j int) (a, b int, err error) {
	if a, err = c.Int(i); err != nil {
		return 0, 0, err
	}
	if b, err = c.Int(j); err != nil {
		return 0, 0, err
	}
	if a < 1 || b < 1 {
		return 0, 0, fmt.Errorf("sizes must be at least 1, not %d", min(a, b))
	}
	return a, b, nil
}

// sizes reads a size or several.
func sizes(v starlark.Value) ([]int, error) {
	list, ok := v.(starlark.Iterable)
	if !ok {
		list = starlark.Tuple{v}
	}
	shape, err := startensor.Ints(list)
	if err != nil {
		return nil, err
	}
	for _, n := range shape {
		if n < 1 {
			return nil, fmt.Errorf("sizes must be at least 1, not %d", n)
		}
	}
	if len(shape) == 0 {
		return nil, fmt.Errorf("want at least one size")
	}
	return shape, nil
}

// window reads kernel, stride and padding, each a number or a pair (height, width).
func window(c *starlib.Call, kernel, stride, padding int) (k, s, p [2]int, err error) {
	for _, arg := range []struct {
		name  string
		i     int
		least int
		into  *[2]int
	}{{"kernel", kernel, 1, &k}, {"stride", stride, 1, &s}, {"padding", padding, 0, &p}} {
		v := c.Args[arg.i]
		list, ok := v.(starlark.Iterable)
		if !ok {
			list = starlark.Tuple{v, v}
		}
		n, err := startensor.Ints(list)
		if err == nil && (len(n) != 2 || min(n[0], n[1]) < arg.least) {
			err = fmt.Errorf("want a number, or a pair for height and width, of at least %d; got %s", arg.least, v)
		}
		if err != nil {
			return k, s, p, fmt.Errorf("argument %s: %w", arg.name, err)
		}
		*arg.into = [2]int{n[0], n[1]}
	}
	return k, s, p, nil
}
