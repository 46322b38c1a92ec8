package nn

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
)

func size(c *starlib.Call, name string) int { return sizes(starlark.MakeInt(c.Int(name)))[0] }

// sizes reads one size or several; each must be at least 1.
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
	return try.To(shape, err)
}

// spread reads an argument that is one number for all n dimensions, or one for each.
func spread(c *starlib.Call, name string, n, least int) []int {
	list, err := spreadOf(c.Arg(name), n, least)
	if err != nil {
		err = fmt.Errorf("argument %s: %w", name, err)
	}
	return try.To(list, err)
}

func spreadOf(v starlark.Value, n, least int) ([]int, error) {
	list, ok := v.(starlark.Iterable)
	if !ok {
		list = slices.Repeat(starlark.Tuple{v}, n)
	}
	sizes, err := startensor.Ints(list)
	if err == nil && (len(sizes) != n || slices.Min(sizes) < least) {
		many := "a pair for height and width"
		if n != 2 {
			many = fmt.Sprintf("%d for as many dimensions", n)
		}
		err = fmt.Errorf("want a number, or %s, of at least %d; got %s", many, least, v)
	}
	return sizes, err
}

// numbers formats the sizes of a layer's kernel: (3, 3) or (3,).
func numbers(list []int) string {
	return startensor.IntTuple(list).String()
}

func probability(c *starlib.Call, name string) float64 {
	p := c.Float(name)
	try.FailIf(!(p >= 0 && p <= 1), "%s = %v is not a probability from 0 to 1", name, p)
	return p
}

// positive reads an argument that is a finite number above 0.
func positive(c *starlib.Call, name string) float64 {
	v := c.Float(name)
	try.FailIf(!(v > 0) || math.IsInf(v, 0), "%s = %v: want a finite number above 0", name, v)
	return v
}
