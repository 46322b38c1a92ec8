package drun_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/dependencies.md has a row for each module that go.mod requires directly, and for no other.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`/v[0-9]+$`)
	var required, rows []string
	for _, line := range strings.Split(string(mod), "\n") {
		if name, rest, is := strings.Cut(strings.TrimPrefix(line, "\t"), " v"); is && name != "go" && !strings.HasSuffix(rest, "// indirect") {
			required = append(required, strings.TrimPrefix(version.ReplaceAllString(name, ""), "github.com/"))
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			name, _, _ = strings.Cut(name, ":")
			if strings.Contains(name, ".") || strings.Contains(name, "/") {
				if !strings.Contains(name, " ") { // not uPlot, which is no Go module
					rows = append(rows, name)
				}
			}
		}
	}
	slices.Sort(required)
	slices.Sort(rows)
	if len(required) < 10 || !slices.Equal(required, rows) {
		t.Errorf("go.mod requires\n%s\nthe page has\n%s", strings.Join(required, "\n"), strings.Join(rows, "\n"))
	}
}
