package disttest

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
)

// TB is what this package needs from a test: a *testing.T or *testing.B has it, and so does a [Standalone], in a
// program without package testing.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Output() io.Writer
}

// subtests is a TB whose subtests are of its own type T.
type subtests[T any] interface {
	TB
	Run(name string, body func(T)) bool
}

// test is a test with subtests, whatever its type; nested makes one.
type test interface {
	TB
	Run(name string, body func(test)) bool
}

type nested[T subtests[T]] struct {
	TB
	of T
}

func (t nested[T]) Run(name string, body func(test)) bool {
	return t.of.Run(name, func(sub T) { body(nested[T]{sub, sub}) })
}

// Standalone is a test outside `go test`, in a released program.
type Standalone struct {
	name   string
	indent string
	report io.Writer

	mu       sync.Mutex
	outcome  string // "PASS", "SKIP" or "FAIL"
	cleanups []func()
}

// RunStandalone runs body as a test, writes the outcome of it and of its subtests to report, in the format of `go
// test -v`, and returns whether all passed.
func RunStandalone(report io.Writer, name string, body func(t *Standalone)) bool {
	t := &Standalone{name: name, report: report, outcome: "PASS"}
	t.do(body)
	fmt.Fprintln(report, t.outcome)
	return t.outcome != "FAIL"
}

// Run runs a subtest, and reports whether it passed.
func (t *Standalone) Run(name string, body func(*Standalone)) bool {
	sub := &Standalone{name: t.name + "/" + strings.ReplaceAll(name, " ", "_"), indent: t.indent + "    ", report: t.report, outcome: "PASS"}
	sub.do(body)
	if sub.outcome == "FAIL" {
		t.mark("FAIL")
	}
	return sub.outcome != "FAIL"
}

// do runs body in a goroutine of its own, which Fatal can end.
func (t *Standalone) do(body func(*Standalone)) {
	fmt.Fprintf(t.report, "=== RUN   %s\n", t.name)
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanUp()
		body(t)
	}()
	<-done
	fmt.Fprintf(t.report, "%s--- %s: %s (%.2fs)\n", t.indent, t.outcome, t.name, time.Since(start).Seconds())
}

// cleanUp calls all cleanups, the latest first, even if one of them ends this goroutine.
func (t *Standalone) cleanUp() {
	t.mu.Lock()
	n := len(t.cleanups)
	if n == 0 {
		t.mu.Unlock()
		return
	}
	last := t.cleanups[n-1]
	t.cleanups = t.cleanups[:n-1]
	t.mu.Unlock()
	defer t.cleanUp()
	last()
}

// mark sets the outcome; a failure stays a failure.
func (t *Standalone) mark(outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outcome != "FAIL" {
		t.outcome = outcome
	}
}

// say writes a line about the test.
func (t *Standalone) say(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.report, "%s    %s: %s\n", t.indent, t.name, strings.TrimSuffix(text, "\n"))
}

// Helper does nothing: no source lines are shown.
func (t *Standalone) Helper() {}

// Logf writes a line about the test.
func (t *Standalone) Logf(format string, args ...any) { t.say(fmt.Sprintf(format, args...)) }

// Error fails the test, which goes on.
func (t *Standalone) Error(args ...any) {
	t.mark("FAIL")
	t.say(fmt.Sprintln(args...))
}

// Errorf is [Standalone.Error] with a format.
func (t *Standalone) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }

// Fatal fails the test and ends the goroutine that calls it.
func (t *Standalone) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

// Fatalf is [Standalone.Fatal] with a format.
func (t *Standalone) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf ends the test, which has not failed.
func (t *Standalone) Skipf(format string, args ...any) {
	t.mark("SKIP")
	t.Logf(format, args...)
	runtime.Goexit()
}

// Cleanup has f called when the test is over.
func (t *Standalone) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Output is where the test writes.
func (t *Standalone) Output() io.Writer { return t.report }
