package starlibtest_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

// sample is one of PyTorch's samples of an operator, as testdata/opinfo.py writes it.
type sample struct {
	Family, Variant, DType, Source, Loss string
	Given, Want, Grads, Seconds          map[string]array
	Leaves, Through                      []string
	Left                                 map[string]int // why PyTorch's samples of this type could not be written; then there is nothing else
}

// PyTorch's own samples of its operators give what PyTorch computes: none differs, and of those that PyTorch has, nineteen in
// twenty run. make test-opinfo has all of them; here are a few small ones of each.
func TestOperatorsOfPyTorch(t *testing.T) {
	path := cmp.Or(os.Getenv("DRUN_TEST_OPINFO"), "testdata/opinfo.jsonl.gz")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<28)
	ran, refused, why := map[string]int{}, map[string]int{}, map[string]string{}
	count, right, wrong, again := 0, 0, 0, 0
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.Left != nil {
			continue
		}
		count++
		r := starlibtest.New(t, ".", starlib.Rank{}, nil)
		problem, wrongly := s.run(r, &again)
		switch {
		case problem == "":
			right++
			ran[s.Family]++
		case wrongly:
			wrong++
			t.Errorf("%s %s %s: %s\n%s", s.Family, s.Variant, s.DType, problem, s.Source)
		default:
			refused[s.Family]++
			why[s.Family] = cmp.Or(why[s.Family], s.DType+": "+s.Source+": "+problem)
		}
	}
	for _, family := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("%s: %d of %d are refused: %s", family, refused[family], refused[family]+ran[family], why[family])
	}
	t.Logf("%d samples of %d families: %d right, %d wrong, %d refused; %d have second gradients", count, len(ran), right, wrong, count-right-wrong, again)
	if len(ran) < 370 || right*20 < count*19 {
		t.Errorf("%d families and %.1f %% of the samples, want 370 and 95 %%", len(ran), 100*float64(right)/float64(count))
	}
}

// run executes the sample, and says what is wrong: wrongly with the result, or else why it was refused. It counts in again
// those with gradients of gradients.
func (s *sample) run(r *starlibtest.Recipe, again *int) (problem string, wrongly bool) {
	source := ""
	for name, a := range s.Given {
		v, err := a.tensor(r.Tensors)
		if err != nil {
			return err.Error(), false
		}
		r.Set(name, v)
	}
	for _, name := range s.Leaves {
		source += name + ".requires_grad = True\n"
	}
	globals, err := r.Exec(s.Family, source+s.Source)
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", " "), false
	}
	r.Set("out", globals["out"])
	tolerance := tolerances[s.DType]
	compare := func(want map[string]array, prefix string, slack float64) string {
		for _, expr := range slices.Sorted(maps.Keys(want)) {
			globals, err := r.Exec(s.Family, "got = "+prefix+expr)
			if err != nil {
				return expr + ": " + err.Error()
			}
			a := want[expr]
			most := largest(&a)
			if most == 0 && globals["got"] == starlark.None {
				continue // no gradient is a gradient of zeros
			}
			if d := a.differs(globals["got"], max(tolerance, tolerances[a.DType])*slack, max(most, 2e-2)); d != "" {
				return prefix + expr + ": " + d
			}
		}
		return ""
	}
	if d := compare(s.Want, "", 1); d != "" {
		return d, true
	}
	if len(s.Grads) == 0 {
		return "", false
	}
	zeros := true
	for _, g := range s.Grads {
		zeros = zeros && largest(&g) == 0
	}
	if _, err := r.Exec(s.Family, "("+s.Loss+").backward()"); err != nil {
		if zeros && strings.Contains(err.Error(), "does not require a gradient") {
			return "", false
		}
		return "gradients: " + strings.ReplaceAll(err.Error(), "\n", " "), false
	}
	grads := map[string]array{}
	for name, g := range s.Grads {
		grads[name+".grad"] = g
	}
	if d := compare(grads, "", 10); d != "" {
		return d, true
	}
	return s.again(r, again, compare)
}

// again compares gradients of gradients.
func (s *sample) again(r *starlibtest.Recipe, again *int, compare func(want map[string]array, prefix string, slack float64) string) (problem string, wrongly bool) {
	if len(s.Seconds) == 0 || s.Variant == "subgradients_at_zero" { // PyTorch's second gradients are NaN there
		return "", false
	}
	*again++
	loss := s.Source + "\nfirst = tensor.grad(" + s.Loss + ", [" + strings.Join(s.Through, ", ") + "], create_graph = True, materialize_grads = True)\n"
	for i := range s.Through {
		loss += fmt.Sprintf("again%d = (first[%d] * u%d).sum()\n", i, i, i)
	}
	loss += "total = again0"
	for i := range s.Through[1:] {
		loss += fmt.Sprintf(" + again%d", i+1)
	}
	for _, name := range s.Leaves {
		loss += " + 0 * " + name + ".sum()"
	}
	if _, err := r.Exec(s.Family, loss+"\nsecond = tensor.grad(total, ["+strings.Join(s.Leaves, ", ")+"], allow_unused = True)"); err != nil {
		return "second gradients: " + strings.ReplaceAll(err.Error(), "\n", " "), false
	}
	seconds := map[string]array{}
	for i, name := range s.Leaves {
		if g, ok := s.Seconds[name]; ok {
			seconds[fmt.Sprintf("second[%d]", i)] = g
		}
	}
	if d := compare(seconds, "", 100); d != "" {
		return "second gradients: " + d, true
	}
	return "", false
}

// tolerances are relative to the largest element of a result.
var tolerances = map[string]float64{"float64": 1e-7, "float32": 2e-4, "bfloat16": 3e-2}

func largest(a *array) (most float64) {
	for _, v := range a.Values {
		if x := float64(v); x == x && x < 1e300 && x > -1e300 {
			most = max(most, x, -x)
		}
	}
	return most
}
