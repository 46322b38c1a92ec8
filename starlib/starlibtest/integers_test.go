package starlibtest_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"drun/starlib"
	"drun/starlib/starlibtest"
	"drun/starlib/universe"
)

// integersGiven are the names that the calls of testdata/integers.txt can use.
const integersGiven = `
m, v, i, empty, wide = tensor.ones(2, 3), tensor.ones(3), tensor([1, 2, 1]), tensor.zeros(0), tensor.zeros(1 << 50, 0)
x, w = tensor.ones(1, 1, 3, 3), nn.parameter(tensor.ones(3))
w.grad = tensor.ones(3)
ds = data.dataset(tensor.ones(5, 2), tensor.zeros(5))
def assign(t, key, value):
    t[key] = value
def train(model, x):
    x = x.clone()
    x.requires_grad = True
    model(x).sum().backward()
def stepped(make, **settings):
    p = nn.parameter(tensor.ones(2))
    o = make([p], **settings)
    p.grad = tensor.ones(2)
    o.step()
def closed(make, **settings):
    p = nn.parameter(tensor.ones(2))
    o = make([p], **settings)
    def closure():
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss
    for _ in range(2): o.step(closure)
def finite(rate):
    if not (rate >= 0 and rate < float("inf")): fail("a rate of %s" % rate)
def batches(loader):
    return [b for b in loader]
def first(items):
    for x in items: return x
`

// integerValues are small, negative, and near the limits of 32, 53 and 64 bits. None asks for an amount of memory that
// some machines have and others lack.
var integerValues = []string{"0", "1", "2", "5", "70", "-1", "-2", "-100", "-(1 << 50)", "(1 << 50) + 1", "(1 << 53) + 1",
	"(1 << 60) - 1", "1 << 60", "(1 << 61) + 3", "1 << 62", "(1 << 63) - 1", "-(1 << 62)", "-(1 << 63)", "1 << 64"}

var (
	placeholder = regexp.MustCompile(`\b[IJK]\b`)
	takesNumber = regexp.MustCompile(`(\w+|\*\w+): [^,)]*\b(int|number|tuple)\b|\*(shape|sizes|dims)`)
	hasPlace    = regexp.MustCompile(`^(given)?:?\d+:\d+: `)
)

// Huge and negative integers give values or errors at the recipe's line: no panic, no endless loop, and no more memory
// than the results need.
func TestIntegers(t *testing.T) {
	const path = "testdata/integers.txt"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	everyIntegerIsThere(t, string(content))
	before := peakMemory(t)
	for n, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		r := starlibtest.New(t, "testdata", starlib.Rank{}, nil)
		if _, err := r.Exec("given", integersGiven); err != nil {
			t.Fatal(err)
		}
		calls, done := filled(line), make(chan error)
		go func() { // one for all calls of a line: its stack has grown once
			for _, call := range calls {
				_, err := r.Exec("", "_ = "+call)
				done <- err
			}
		}()
	line:
		for _, call := range calls {
			select {
			case err := <-done:
				if err == nil {
					continue
				}
				if said := err.Error(); !hasPlace.MatchString(said) || strings.Contains(said, "internal error") || strings.Contains(said, "a rate of") {
					t.Errorf("%s:%d: %s: %s", path, n+1, call, said)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("%s:%d: %s does not end", path, n+1, call)
				break line
			}
		}
		if now := peakMemory(t); now > before+1<<30 {
			t.Errorf("%s:%d: %s took %d MB", path, n+1, line, (now-before)>>20)
			before = now
		}
	}
}

// filled inserts the values into a line: all pairs for two places, with the third small, so that some are valid. Each pair gets
// one of the small values, in turn; make long tries all of them.
func filled(line string) []string {
	places := map[string]bool{}
	for _, p := range placeholder.FindAllString(line, -1) {
		places[p] = true
	}
	fill := func(values map[string]string) string {
		return placeholder.ReplaceAllStringFunc(line, func(p string) string { return "(" + values[p] + ")" })
	}
	var names []string
	for _, p := range []string{"I", "J", "K"} {
		if places[p] {
			names = append(names, p)
		}
	}
	var calls []string
	others := []string{"1", "0", "2", "-1"}
	whole := os.Getenv("DRUN_TEST_LONG") != ""
	switch len(names) {
	case 0:
		return []string{line}
	case 1:
		for _, a := range integerValues {
			calls = append(calls, fill(map[string]string{names[0]: a}))
		}
		return calls
	}
	for first := range names {
		for second := range names[:first] {
			for o, other := range others {
				for i, a := range integerValues {
					for j, b := range integerValues {
						if !whole && len(names) > 2 && (i+j)%len(others) != o {
							continue
						}
						values := map[string]string{"I": other, "J": other, "K": other}
						values[names[first]], values[names[second]] = a, b
						calls = append(calls, fill(values))
					}
				}
				if len(names) == 2 {
					break
				}
			}
		}
	}
	return calls
}

// everyIntegerIsThere checks that each builtin that takes a number or a size is called.
func everyIntegerIsThere(t *testing.T, calls string) {
	t.Helper()
	owners := []string{"tensor", "nn", "optim", "random", "data", "Tensor", "Module", "Generator", "Loader", "Optimizer", "Dataset"}
	for _, e := range universe.Reference() {
		if e.Kind == universe.KindBuiltin && slices.Contains(owners, e.Owner) && takesNumber.MatchString(e.Signature) &&
			!regexp.MustCompile(`\b`+e.Name+`\b`).MatchString(calls) {
			t.Errorf("%s.%s takes a number, and no line calls it: %s", e.Owner, e.Name, e.Signature)
		}
	}
}

// peakMemory is the most memory that the process has used, in bytes.
func peakMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
