package nn

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
)

// size reads an argument that is a size.
func size(c *starlib.Call, name string) (int, error) {
	n, err := c.Int(name)
	if err == nil && n < 1 {
		err = fmt.Errorf("sizes must be at least 1, not %d", n)
	}
	return n, err
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
// A stride that is left out is the kernel's size.
func window(c *starlib.Call) (kernel, stride, padding [2]int, err error) {
	if kernel, err = heightWidth(c, "kernel", 1); err != nil {
		return
	}
	stride = kernel
	if !c.IsNone("stride") {
		if stride, err = heightWidth(c, "stride", 1); err != nil {
			return
		}
	}
	padding, err = heightWidth(c, "padding", 0)
	return
}

// heightWidth reads a number, or a pair for height and width, each at least least.
func heightWidth(c *starlib.Call, name string, least int) (pair [2]int, err error) {
	v := c.Arg(name)
	list, ok := v.(starlark.Iterable)
	if !ok {
		list = starlark.Tuple{v, v}
	}
	n, err := startensor.Ints(list)
	if err == nil && (len(n) != 2 || min(n[0], n[1]) < least) {
		err = fmt.Errorf("want a number, or a pair for height and width, of at least %d; got %s", least, v)
	}
	if err != nil {
		return pair, fmt.Errorf("argument %s: %w", name, err)
	}
	return [2]int{n[0], n[1]}, nil
}
