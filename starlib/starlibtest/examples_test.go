package starlibtest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

const examples = "../../examples"

// example runs an example on one rank.
func example(t *testing.T, name string, seed uint64, params map[string]string) *starlibtest.Recipe {
	t.Helper()
	r := starlibtest.New(t, examples, starlib.Rank{Seed: seed}, params)
	main(t, r, name)
	return r
}

func main(t *testing.T, r *starlibtest.Recipe, name string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Main(name, string(source)); err != nil {
		t.Fatal(err)
	}
}

func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

func TestHello(t *testing.T) {
	want := []string{"rank 0 of 1", "the ranks, counted from 1, add up to 1"}
	if got := example(t, "hello.star", 0, nil).Printed; !reflect.DeepEqual(got, want) {
		t.Errorf("printed %q", got)
	}
}

func TestSpiral(t *testing.T) {
	for seed := range uint64(3) {
		if acc := last(example(t, "spiral.star", seed, nil).Metrics["acc"]); acc < 0.97 {
			t.Errorf("seed %d: accuracy %.4f", seed, acc)
		}
	}
}

// One rank takes the batches that two ranks take together by default.
func TestDigits(t *testing.T) {
	for seed := range uint64(3) {
		if acc := last(example(t, "digits.star", seed, map[string]string{"batch": "128"}).Metrics["acc"]); acc < 0.97 {
			t.Errorf("seed %d: accuracy %.4f", seed, acc)
		}
	}
}

// A run that is stopped and restored logs the rest of what a run that was never
// stopped logs, to the bit.
func TestDigitsGoesOn(t *testing.T) {
	whole := example(t, "digits.star", 1, map[string]string{"epochs": "5"}).Metrics
	again := example(t, "digits.star", 1, map[string]string{"epochs": "5"}).Metrics
	if !reflect.DeepEqual(whole, again) {
		t.Error("two runs with one seed differ")
	}
	first := example(t, "digits.star", 1, map[string]string{"epochs": "2"})
	second := starlibtest.New(t, examples, starlib.Rank{Seed: 1}, map[string]string{"epochs": "5"})
	second.Store = first.Store
	main(t, second, "digits.star")
	for name, values := range whole {
		if n := len(first.Metrics[name]); !reflect.DeepEqual(values[:n], first.Metrics[name]) || !reflect.DeepEqual(values[n:], second.Metrics[name]) {
			t.Errorf("%s: %v, then %v; without a stop %v", name, first.Metrics[name], second.Metrics[name], values)
		}
	}
}
