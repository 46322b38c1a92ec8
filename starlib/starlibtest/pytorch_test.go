package starlibtest_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/starlibtest"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// array is a tensor or number in testdata/pytorch.json.
type array struct {
	DType  string
	Shape  []int
	Values []number
}

// number is a JSON number, or "NaN", "inf" or "-inf".
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	if _, err := fmt.Sscan(strings.Trim(string(text), `"`), (*float64)(n)); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// tensor converts the array to a recipe's value.
func (a *array) tensor(ctx *tensor.Context) (starlark.Value, error) {
	values := make([]float64, len(a.Values))
	for i, v := range a.Values {
		values[i] = float64(v)
	}
	dt, err := dtype.Parse(a.DType)
	if err != nil {
		return nil, err
	}
	t, err := tensor.FromFloats(ctx, values, a.Shape, dt)
	return (*startensor.Value)(t), err
}

// differs says how a recipe's value differs from the array; "" if it does not. The tolerance is relative to the values,
// or to their scale where sums cancel.
func (a *array) differs(v starlark.Value, tolerance, scale float64) string {
	var got []float64
	switch v := v.(type) {
	case *startensor.Value:
		t := v.Tensor()
		if t.DType().String() != a.DType || !slices.Equal(t.Shape(), a.Shape) {
			return fmt.Sprintf("%s of shape %v, want %s of shape %v", t.DType(), t.Shape(), a.DType, a.Shape)
		}
		scalars, err := t.Detach().Scalars()
		if err != nil {
			return err.Error()
		}
		for _, s := range scalars {
			got = append(got, s.Float())
		}
	default:
		f, ok := starlark.AsFloat(v)
		if !ok {
			return fmt.Sprintf("%s, want a number", v)
		}
		got = []float64{f}
	}
	for i, want := range a.Values {
		w := float64(want)
		same := got[i] == w || math.IsNaN(got[i]) && math.IsNaN(w)
		if !same && !(math.Abs(got[i]-w) <= tolerance*max(math.Abs(w), scale)) {
			return fmt.Sprintf("element %d is %v, want %v", i, got[i], w)
		}
	}
	return ""
}

// Recipes compute what PyTorch computes: values, types, gradients, and parameters after optimizer steps. The scripts
// testdata/pytorch*.py made the cases.
func TestValuesMatchPyTorch(t *testing.T) {
	files, err := filepath.Glob("testdata/pytorch*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) { matchPyTorch(t, name) })
	}
}

func matchPyTorch(t *testing.T, name string) {
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Torch string
		Cases []struct {
			Name      string
			Recipe    string // of the cookbook, whose functions the source calls; "" for none
			Given     map[string]array
			Source    string
			Want      map[string]array
			Tolerance float64
			Scale     *float64 // 0.1 where a file has none
		}
	}
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 40 && filepath.Base(name) != "pytorch_ports.json" {
		t.Errorf("only %d cases of torch %s", len(file.Cases), file.Torch)
	}
	for _, c := range file.Cases {
		scale := 0.1
		if c.Scale != nil {
			scale = *c.Scale
		}
		t.Run(c.Name, func(t *testing.T) {
			r := starlibtest.New(t, ".", starlib.Rank{}, nil)
			if c.Recipe != "" {
				r = cookbook(t, c.Recipe)
			}
			for name, a := range c.Given {
				v, err := a.tensor(r.Tensors)
				if err != nil {
					t.Fatal(err)
				}
				r.Set(name, v)
			}
			if _, err := r.Exec(c.Name, c.Source); err != nil {
				t.Fatalf("%v\n%s", err, c.Source)
			}
			for expr, want := range c.Want {
				globals, err := r.Exec(c.Name, "got = "+expr)
				if err != nil {
					t.Fatal(err)
				}
				if d := want.differs(globals["got"], c.Tolerance, scale); d != "" {
					t.Errorf("%s: %s\n%s", expr, d, c.Source)
				}
			}
		})
	}
}

// cookbook makes a rank that has the functions of a recipe of the cookbook.
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
	return r
}
