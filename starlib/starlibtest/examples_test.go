package starlibtest_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

const examples = "../../examples"

// example runs an example on one rank.
func example(t *testing.T, name string, seed uint64, params map[string]string) *starlibtest.Recipe {
	t.Helper()
	r := starlibtest.New(t, examples, starlib.Rank{Seed: seed}, params)
	if err := execute(t, r, name); err != nil {
		t.Fatal(err)
	}
	return r
}

func execute(t *testing.T, r *starlibtest.Recipe, name string) error {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	return r.Main(name, string(source))
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

// By default one rank takes the batches that two ranks take together.
func TestDigits(t *testing.T) {
	for seed := range uint64(3) {
		if acc := last(example(t, "digits.star", seed, map[string]string{"batch": "128"}).Metrics["acc"]); acc < 0.97 {
			t.Errorf("seed %d: accuracy %.4f", seed, acc)
		}
	}
}

func TestCNN(t *testing.T) {
	r := example(t, "cnn.star", 1, map[string]string{"epochs": "6", "width": "6", "samples": "800", "batch": "16"})
	if acc := last(r.Metrics["acc"]); acc < 0.8 {
		t.Errorf("accuracy %.4f", acc)
	}
}

// The model learns to predict the text's characters, and generates only these.
func TestGPT(t *testing.T) {
	r := example(t, "gpt.star", 1, map[string]string{"epochs": "2", "width": "24", "layers": "1", "heads": "2", "context": "24", "sample": "60", "prompt": "The light"})
	loss := r.Metrics["loss"]
	if len(loss) == 0 || loss[0] < 3.5 || last(loss) > 2.5 {
		t.Errorf("losses %.2f", loss)
	}
	text, err := os.ReadFile(filepath.Join(examples, "data/lighthouse.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Printed) != 1 || len(r.Printed[0]) != 69 || !strings.HasPrefix(r.Printed[0], "The light") {
		t.Fatalf("printed %q", r.Printed)
	}
	for _, c := range r.Printed[0] {
		if !strings.ContainsRune(string(text), c) {
			t.Errorf("wrote %q, which is not in the text", c)
		}
	}
}

// The solution is that of the normal equations: the remaining loss is the noise, and the weights are accurate to the
// noise divided by the square root of the number of samples.
func TestLinearRegression(t *testing.T) {
	for seed := range uint64(3) {
		m := example(t, "linreg.star", seed, map[string]string{"noise": "0.5"}).Metrics
		if rmse, off := last(m["rmse"]), last(m["off"]); math.Abs(rmse-0.5) > 0.01 || off > 0.02 {
			t.Errorf("seed %d: rmse %.4f, weights off by %.4f", seed, rmse, off)
		}
	}
}

func TestKMeans(t *testing.T) {
	for seed := range uint64(3) {
		m := example(t, "kmeans.star", seed, nil).Metrics
		if purity := last(m["purity"]); purity < 0.65 {
			t.Errorf("seed %d: purity %.3f", seed, purity)
		}
		for i, inertia := range m["inertia"][1:] {
			if inertia > m["inertia"][i]*(1+1e-6) {
				t.Errorf("seed %d: round %d raised the inertia from %.1f to %.1f", seed, i+1, m["inertia"][i], inertia)
			}
		}
	}
}

// Reusing the memory of tensors changes no bit.
func TestExamplesWithoutPlan(t *testing.T) {
	for name, params := range map[string]map[string]string{
		"spiral.star": nil,
		"linreg.star": nil,
		"kmeans.star": nil,
		"digits.star": {"epochs": "2"},
		"cnn.star":    {"epochs": "2", "width": "4", "samples": "200", "batch": "16"},
		"gpt.star":    {"epochs": "1", "width": "16", "layers": "2", "heads": "2", "context": "16", "batch": "256", "sample": "20"},
	} {
		t.Setenv("DRUN_PLAN", "")
		with := example(t, name, 1, params)
		t.Setenv("DRUN_PLAN", "off")
		without := example(t, name, 1, params)
		if len(with.Metrics) == 0 || !reflect.DeepEqual(with.Metrics, without.Metrics) {
			t.Errorf("%s: %v, without the plan %v", name, with.Metrics, without.Metrics)
		}
	}
}

// A run that is stopped after a checkpoint and resumed logs and prints the same as an uninterrupted run, to the bit:
// weights, learning rates, dropout, order, augmentation.
func TestStoppedRunsGoOn(t *testing.T) {
	for name, params := range map[string]map[string]string{
		"digits.star": {"epochs": "4"},
		"cnn.star":    {"epochs": "3", "width": "2", "samples": "200", "batch": "32"},
		"gpt.star":    {"epochs": "3", "width": "8", "layers": "1", "heads": "2", "context": "8", "batch": "512", "sample": "20"},
	} {
		whole := example(t, name, 1, params)
		if again := example(t, name, 1, params); !reflect.DeepEqual(whole.Metrics, again.Metrics) {
			t.Errorf("%s: two runs with one seed differ", name)
		}
		first, second := starlibtest.New(t, examples, starlib.Rank{Seed: 1}, params), starlibtest.New(t, examples, starlib.Rank{Seed: 1}, params)
		first.Store.StopAfter = 2
		if err := execute(t, first, name); !errors.Is(err, starlibtest.ErrStopped) {
			t.Fatalf("%s: got error %v, want a stop", name, err)
		}
		second.Store = first.Store
		if err := execute(t, second, name); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(whole.Printed, second.Printed) {
			t.Errorf("%s: printed %q, without a stop %q", name, second.Printed, whole.Printed)
		}
		for metric, values := range whole.Metrics {
			if got := slices.Concat(first.Metrics[metric], second.Metrics[metric]); !reflect.DeepEqual(got, values) {
				t.Errorf("%s, %s: %v, then %v; without a stop %v", name, metric, first.Metrics[metric], second.Metrics[metric], values)
			}
		}
	}
}
