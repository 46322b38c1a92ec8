package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

var ownTarget = regexp.MustCompile(`\bmake ([a-z-]+) runs it\b`)

// report prints what failed, and what no go test ran, by reason: a test that one skipped and another ran is not listed;
// if several skipped it, the first file's reason counts.
func report(out io.Writer, files []string) error {
	var results []result
	tests := map[string][]string{} // by reasons
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(content) {
			r := result{}
			if json.Unmarshal(line, &r) == nil {
				results = append(results, r)
			} else if note := string(bytes.TrimSpace(line)); note != "" {
				tests[note] = nil
			}
		}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(a.Package, b.Package) }) // packages run in parallel
	ran, cached, stale := map[name]bool{}, map[string]bool{}, false
	for _, r := range results {
		n := name{r.Package, r.Test}
		ran[n] = ran[n] || r.Outcome != "skip"
		cached[r.Package] = cached[r.Package] || r.Cached
		if r.Outcome == "fail" && !slices.ContainsFunc(results, func(inner result) bool { return inner.Outcome == "fail" && within(inner, r) }) {
			fmt.Fprintf(out, "FAILED: %s\n", strings.TrimSpace(r.Package+" "+r.Test))
		}
	}
	targets := map[string]bool{}
	for _, r := range results {
		n := name{r.Package, r.Test}
		if r.Test == "" || ran[n] {
			continue
		}
		ran[n] = true // once
		if m := ownTarget.FindStringSubmatch(r.Reason); m != nil {
			targets["make "+m[1]] = true
		} else {
			tests[r.Reason] = append(tests[r.Reason], r.Test)
			stale = stale || cached[r.Package]
		}
	}
	if len(tests) == 0 {
		fmt.Fprintln(out, "Nothing was left out.")
	} else {
		fmt.Fprintln(out, "Not tested here:")
	}
	reasons := slices.SortedFunc(maps.Keys(tests), func(a, b string) int { return cmp.Or(len(tests[b])-len(tests[a]), cmp.Compare(a, b)) })
	for _, reason := range reasons {
		fmt.Fprintf(out, "  %s%s\n", reason, some(tests[reason]))
	}
	if stale { // Go's cache does not depend on what is installed
		fmt.Fprintln(out, "Part of it is from Go's test cache. If something was installed since: go clean -testcache")
	}
	if len(targets) > 0 {
		fmt.Fprintf(out, "Has a target of its own: %s\n", strings.Join(slices.Sorted(maps.Keys(targets)), ", "))
	}
	return nil
}

// within reports whether inner is the result of a subtest of outer's test, or of a test in outer's package.
func within(inner, outer result) bool {
	return inner.Package == outer.Package && inner.Test != outer.Test && (outer.Test == "" || strings.HasPrefix(inner.Test, outer.Test+"/"))
}

// some counts tests and names the first.
func some(tests []string) string {
	const most = 4
	switch n := len(tests); {
	case n == 0:
		return ""
	case n == 1:
		return " (1 test: " + tests[0] + ")"
	case n > most:
		return fmt.Sprintf(" (%d tests: %s …)", n, strings.Join(tests[:most], ", "))
	default:
		return fmt.Sprintf(" (%d tests: %s)", n, strings.Join(tests, ", "))
	}
}
