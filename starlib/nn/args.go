package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
)

// size reads an argument that is a size.
func size(c *starlib.Call, name string) int { return sizes(starlark.MakeInt(c.Int(name)))[0] }

// sizes reads an argument that is one size or several.
func sizes(v starlark.Value) []int {
	list, ok := v.(starlark.Iterable)
	if !ok {
		list = starlark.Tuple{v}
	}
	shape, err := startensor.Ints(list)
	switch {
	case err != nil:
	case len(shape) == 0:
		err = fmt.Errorf("want at least one size")
	case slices.Min(shape) < 1:
		err = fmt.Errorf("sizes must be at least 1, not %d", slices.Min(shape))
	}
	return starlib.Must(shape, err)
}

// window reads the arguments kernel, stride and padding, each a number or a pair (height, width). stride defaults to
// the kernel's size.
func window(c *starlib.Call) (kernel, stride, padding [2]int) {
	kernel, padding = heightWidth(c, "kernel", 1), heightWidth(c, "padding", 0)
	if c.IsNone("stride") {
		return kernel, kernel, padding
	}
	return kernel, heightWidth(c, "stride", 1), padding
}

// heightWidth reads an argument that is a number, or a pair for height and width, each at least least.
func heightWidth(c *starlib.Call, name string, least int) [2]int {
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
		err = fmt.Errorf("argument %s: %w", name, err)
	}
	return [2]int(starlib.Must(n, err))
}
