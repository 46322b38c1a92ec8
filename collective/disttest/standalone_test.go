package disttest

import (
	"regexp"
	"strings"
	"testing"
)

// What runs outside of go test ends, fails and reports as it does there.
func TestStandalone(t *testing.T) {
	var report strings.Builder
	var order []string
	passed := RunStandalone(&report, "suite", func(s *Standalone) {
		nested := nested[*Standalone]{s, s}
		if !nested.Run("good", func(t test) {
			t.Cleanup(func() { order = append(order, "first") })
			t.Cleanup(func() { order = append(order, "second"); t.Skipf("a cleanup may end, and others follow") })
		}) {
			t.Error("a subtest that did not fail has not passed")
		}
		for name, fail := range map[string]func(t test){
			"error": func(t test) { t.Error("no", 1) }, "fatal": func(t test) { t.Fatalf("no %d", 1); order = append(order, "after Fatalf") },
		} {
			if nested.Run(name, fail) {
				t.Errorf("a subtest that failed with %s has passed", name)
			}
		}
		nested.Run("left out", func(t test) { t.Skipf("not here") })
	})
	if passed || strings.Join(order, " ") != "second first" {
		t.Errorf("passed: %v; it went %v", passed, order)
	}
	for _, line := range []string{"=== RUN   suite/good", `        suite/error: no 1`, `    --- FAIL: suite/error \(0.\d\ds\)`, `        suite/fatal: no 1`,
		`    --- FAIL: suite/fatal \(0.\d\ds\)`, `    --- SKIP: suite/left_out \(0.\d\ds\)`, `--- FAIL: suite \(0.\d\ds\)`, "FAIL"} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(report.String()) {
			t.Errorf("%q is not in the report:\n%s", line, report.String())
		}
	}
	report.Reset()
	if !RunStandalone(&report, "suite", func(*Standalone) {}) || !strings.HasSuffix(report.String(), "\nPASS\n") {
		t.Errorf("a suite that fails nowhere: %s", report.String())
	}
}
