package starlibtest_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

var update = flag.Bool("update", false, "write testdata/errors.txt anew: read what changed")

// given are the names that the lines of testdata/errors.txt can use.
const given = `a, b = tensor.zeros(2, 3), tensor.zeros(4, 5)
v, i = tensor.zeros(3), tensor([1, 2])
w = nn.parameter(tensor.ones(3))
`

// Errors name the operation, both shapes, the valid range and the position. testdata/errors.txt has one recipe per line
// (";;" stands for a line break), and below it the error, whose line is counted from the recipe's first.
func TestErrors(t *testing.T) {
	const path = "testdata/errors.txt"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	var written strings.Builder
	for n, line := range lines {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		fmt.Fprintln(&written, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r := starlibtest.New(t, ".", starlib.Rank{}, nil)
		if _, err := r.Exec("given", given); err != nil {
			t.Fatal(err)
		}
		_, err := r.Exec("", strings.ReplaceAll(line, " ;; ", "\n"))
		got := strings.TrimPrefix(fmt.Sprint(err), ":")
		fmt.Fprintf(&written, "    %s\n", got)
		want := ""
		if n+1 < len(lines) {
			want = strings.TrimPrefix(lines[n+1], "    ")
		}
		if !*update && (err == nil || got != want) {
			t.Errorf("%s:%d: %s\n got %s\nwant %s", path, n+1, line, got, want)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
