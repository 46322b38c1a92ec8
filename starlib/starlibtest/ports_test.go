package starlibtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/nn"
	"drun/starlib/starlibtest"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// cookbook makes a rank that has the functions of a recipe of the cookbook, and double(m), which makes a module's parameters
// float64: only then do a dozen steps differ from PyTorch's by less than a wrong formula would make them.
func cookbook(t *testing.T, recipe string) *starlibtest.Recipe {
	r := starlibtest.New(t, "../../examples", starlib.Rank{}, nil)
	source, err := os.ReadFile(filepath.Join("../../examples/cookbook", recipe))
	if err != nil {
		t.Fatal(err)
	}
	globals, err := r.Load(recipe, string(source))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range globals {
		r.Set(name, v)
	}
	r.Set("double", starlark.NewBuiltin("double", func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		m, ok := args[0].(*nn.Model)
		if !ok {
			return nil, fmt.Errorf("want a Module, got %s", args[0].Type())
		}
		_, tensors := m.Parameters()
		for _, p := range tensors {
			wide, err := tensor.Cast(p.Detach(), dtype.Float64)
			if err != nil {
				return nil, err
			}
			trained := p.RequiresGrad()
			*p = *wide // layers keep the tensor itself
			if err := p.SetRequiresGrad(trained); err != nil {
				return nil, err
			}
		}
		return m, nil
	}))
	return r
}
