package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"drun/internal/freeport"
	"drun/internal/programs"
)

// Each distributed call that today's PyTorch has on CPUs gives here what it gives there over Gloo, on each backend and wherever the
// ranks are: whole numbers and what is only moved exactly, sums of floats up to rounding.
func TestCallsOfPyTorch(t *testing.T) {
	python := filepath.Join("..", "..", "bin", "peers", "bin", "python")
	if os.Getenv("DRUN_TEST_CALLS") == "" {
		t.Skip("make calls runs it: it installs today's PyTorch, 6 GB")
	}
	dir := t.TempDir()
	if err := programs.Link(dir, "drun", "drun-plugin-host", "drun-backend-gloo", "drun-backend-mpi"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DRUN_PLUGIN_PATH", dir)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	drun := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "drun"), append([]string{"run", "testdata/calls/calls.star", "--home", t.TempDir()}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return out.String(), err
	}
	for _, n := range []int{1, 2, 3, 4, 8} {
		folder := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), python, "testdata/calls/calls.py", strconv.Itoa(n), folder).CombinedOutput(); err != nil {
			t.Fatalf("PyTorch: %v\n%s", err, out)
		}
		want := make([]map[string]string, n)
		for r := range want {
			text, err := os.ReadFile(filepath.Join(folder, strconv.Itoa(r)))
			if err != nil {
				t.Fatal(err)
			}
			want[r] = map[string]string{}
			for line := range strings.Lines(string(text)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
				want[r][name] = value
			}
		}
		places := map[string][]int{"shm": {n}, "gloo": {n}, "mpi": {n}}
		if n == 4 {
			places["3 + 1"], places["1 + 1 + 1 + 1"] = []int{3, 1}, []int{1, 1, 1, 1}
		}
		for name, nodes := range places {
			t.Run(fmt.Sprintf("%d ranks, %s", n, name), func(t *testing.T) {
				var out string
				if len(nodes) == 1 {
					text, err := drun("-n", strconv.Itoa(n), "--backend", name)
					if err != nil {
						t.Fatal(err)
					}
					out = text
				} else {
					address, err := freeport.Address()
					if err != nil {
						t.Fatal(err)
					}
					outs, errs := make([]string, len(nodes)), make([]error, len(nodes))
					var all sync.WaitGroup
					for i, ranks := range nodes {
						all.Go(func() {
							outs[i], errs[i] = drun("-n", strconv.Itoa(ranks), "--nnodes", strconv.Itoa(len(nodes)), "--node-rank", strconv.Itoa(i), "--rdzv", address)
						})
					}
					all.Wait()
					for _, err := range errs {
						if err != nil {
							t.Fatal(err)
						}
					}
					out = strings.Join(outs, "")
				}
				compareCalls(t, want, out)
			})
		}
	}
}

// rounded matches the results that are sums of floats.
var rounded = regexp.MustCompile(`^(all_reduce.* (sum|product|avg|async|float\d+)|reduce|new_group|mesh dp|ddp|join|zero|fsdp|tensor parallel|pipeline)`)

func compareCalls(t *testing.T, want []map[string]string, out string) {
	seen := 0
	for _, m := range regexp.MustCompile(`(?m)^(?:\[(\d+)\] )?(.*?) = (.*)$`).FindAllStringSubmatch(out, -1) {
		r, _ := strconv.Atoi("0" + m[1])
		theirs, known := want[r][m[2]]
		if seen++; !known {
			t.Errorf("rank %d: PyTorch has no %s", r, m[2])
			continue
		}
		var a, b any
		if err := json.Unmarshal([]byte(m[3]), &a); err != nil {
			t.Fatalf("rank %d: %s: %v: %s", r, m[2], err, m[3])
		}
		if err := json.Unmarshal([]byte(theirs), &b); err != nil {
			t.Fatalf("rank %d: %s: %v: %s", r, m[2], err, theirs)
		}
		within := 0.0
		if rounded.MatchString(m[2]) && !strings.Contains(m[2], "int") {
			within = 1e-6
		}
		if !equalWithin(a, b, within) {
			t.Errorf("rank %d: %s = %s, PyTorch's is %s", r, m[2], m[3], theirs)
		}
	}
	all := 0
	for _, lines := range want {
		all += len(lines)
	}
	if seen != all {
		t.Errorf("%d results, PyTorch has %d", seen, all)
	}
}

// equalWithin compares values in lists, numbers with this much room relative to numbers above 1.
func equalWithin(a, b any, room float64) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && math.Abs(a-b) <= room*max(1, math.Abs(b))
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalWithin(a[i], b[i], room) {
				return false
			}
		}
		return true
	}
	return a == b // strings and bools
}
