package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
)

// An event is a line of go test -json (go doc test2json).
type event struct{ Action, Package, Test, Output string }

// A result is the outcome of a test, or of a package, whose Test is empty.
type result struct {
	Package string
	Test    string `json:",omitempty"`
	Outcome string // pass, fail or skip
	Reason  string `json:",omitempty"` // of a skip
	Cached  bool   `json:",omitempty"` // the package did not run: Go has kept what came of it
}

type name struct{ pkg, test string }

// A follower prints what go test without -json would: the output of tests that fail, here as soon as each ends, and a
// line for each package.
type follower struct {
	out     io.Writer
	results *json.Encoder
	output  map[name]*strings.Builder // of packages, and of tests that have not ended
	begun   []name
}

// follow reads the events of a go test until it ends.
func follow(events io.Reader, out, results io.Writer) error {
	f := &follower{out: out, results: json.NewEncoder(results), output: map[name]*strings.Builder{}}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		e := event{}
		if json.Unmarshal([]byte(line), &e) != nil {
			_, bad := io.WriteString(out, line)
			err = errors.Join(bad, err)
		} else {
			err = errors.Join(f.event(e), err)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var framing = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

func (f *follower) event(e event) error {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		return f.print(e.Output)
	case "output":
		if !framing.MatchString(e.Output) {
			f.of(n).WriteString(e.Output)
		}
	case "run":
		f.of(n)
	case "pass", "fail", "skip":
		return f.ended(n, e.Action)
	}
	return nil
}

// of is the output of a test, or of a package, so far.
func (f *follower) of(n name) *strings.Builder {
	if f.output[n] == nil {
		f.output[n] = &strings.Builder{}
		f.begun = append(f.begun, n)
	}
	return f.output[n]
}

func (f *follower) ended(n name, outcome string) error {
	said := f.of(n).String()
	delete(f.output, n)
	r := result{Package: n.pkg, Test: n.test, Outcome: outcome}
	if n.test == "" {
		r.Cached = strings.HasSuffix(said, "\t(cached)\n")
		return errors.Join(f.package_(n.pkg, outcome, said), f.results.Encode(r))
	}
	if outcome == "skip" {
		r.Reason = reason(said)
	}
	err := f.results.Encode(r)
	if outcome != "fail" {
		return err
	}
	if parent := strings.LastIndex(n.test, "/"); parent >= 0 && f.output[name{n.pkg, n.test[:parent]}] != nil {
		f.of(name{n.pkg, n.test[:parent]}).WriteString(said)
		return err
	}
	return errors.Join(err, f.print(said))
}

// package_ prints a package's line; if it failed, also all that it printed, preceded by the output of its unfinished
// tests, as in a panic.
func (f *follower) package_(pkg, outcome, said string) error {
	var unended strings.Builder
	var begun []name
	for _, n := range f.begun {
		if n.pkg == pkg && f.output[n] != nil {
			unended.WriteString(f.output[n].String())
			delete(f.output, n)
		} else if n.pkg != pkg {
			begun = append(begun, n)
		}
	}
	f.begun = begun
	if outcome == "fail" {
		return f.print(unended.String() + said)
	}
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
			return f.print(line)
		}
	}
	return nil
}

func (f *follower) print(text string) error {
	_, err := io.WriteString(f.out, text)
	return err
}

// logged matches a line that a test logs: file, line, text.
var logged = regexp.MustCompile(`(?m)^    ([^ ]+\.go):\d+: (.*)$`)

// reason is the last line that a skipped test has logged. testscript logs the script after it.
func reason(said string) string {
	reason := "no reason is given"
	for _, m := range logged.FindAllStringSubmatch(said, -1) {
		if m[1] != "testscript.go" {
			reason = m[2]
		}
	}
	return reason
}
