package exit_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"drun/internal/exit"
)

type lost struct{ hint string }

func (e *lost) Error() string       { return "lost" }
func (e *lost) ExitCode() exit.Code { return exit.RankLost }
func (e *lost) Hint() string        { return e.hint }

func TestCodeAndHintAreFoundThroughWrappedErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code exit.Code
		hint string
		text string
	}{
		"nil":                     {nil, exit.Done, "", "<nil>"},
		"nil stays nil":           {exit.WithHint(exit.WithCode(nil, exit.Usage), "a"), exit.Done, "", "<nil>"},
		"neither":                 {io.EOF, exit.Recipe, "", "EOF"},
		"a type's own":            {fmt.Errorf("x: %w", &lost{"a"}), exit.RankLost, "a", "x: lost"},
		"both":                    {exit.WithHint(exit.Errorf(exit.Usage, "n is %d", 3), "a"), exit.Usage, "a", "n is 3"},
		"the outer code hides":    {exit.Errorf(exit.Usage, "x: %w", &lost{"a"}), exit.Usage, "a", "x: lost"},
		"WithCode hides none":     {exit.WithCode(fmt.Errorf("x: %w", &lost{}), exit.Backend), exit.RankLost, "", "x: lost"},
		"WithCode":                {exit.WithCode(io.EOF, exit.Backend), exit.Backend, "", "EOF"},
		"the outer hint hides":    {exit.WithHint(&lost{"a"}, "b"), exit.RankLost, "b", "lost"},
		"an empty one hides none": {exit.WithHint(fmt.Errorf("x: %w", &lost{"a"}), ""), exit.RankLost, "a", "x: lost"},
		"a type without a hint":   {&lost{}, exit.RankLost, "", "lost"},
		"beneath one without":     {fmt.Errorf("%w", &outer{exit.WithHint(io.EOF, "a")}), exit.Recipe, "a", "outer"},
		"among several":           {errors.Join(io.EOF, &lost{"a"}), exit.RankLost, "a", "EOF\nlost"},
	} {
		if code, hint, text := exit.CodeOf(c.err), exit.HintOf(c.err), fmt.Sprint(c.err); code != c.code || hint != c.hint || text != c.text {
			t.Errorf("%s: %q with code %d and hint %q; want %q, %d, %q", name, text, code, hint, c.text, c.code, c.hint)
		}
	}
	if err := exit.WithHint(exit.Errorf(exit.Usage, "x: %w", io.EOF), "a"); !errors.Is(err, io.EOF) {
		t.Errorf("%v does not wrap its cause", err)
	}
}

// outer is an error type that may have a hint, and has none.
type outer struct{ err error }

func (e *outer) Error() string { return "outer" }
func (e *outer) Unwrap() error { return e.err }
func (e *outer) Hint() string  { return "" }

func TestStatus(t *testing.T) {
	for code, want := range map[exit.Code]string{
		exit.Done: "done", exit.Recipe: "failed", exit.RankLost: "failed", exit.Timeout: "failed",
		exit.Mismatch: "failed", exit.Storage: "failed", exit.Interrupted: "interrupted",
	} {
		if got := code.Status(); got != want {
			t.Errorf("exit code %d is %q, want %q", code, got, want)
		}
	}
}

func TestLasts(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":              {exit.Permanent(nil), false},
		"any":              {exit.WithCode(io.EOF, exit.Backend), false},
		"one that does":    {exit.Permanent(io.EOF), true},
		"beneath a code":   {exit.WithHint(exit.WithCode(fmt.Errorf("x: %w", exit.Permanent(io.EOF)), exit.Backend), "a"), true},
		"above a code":     {exit.Permanent(exit.Errorf(exit.Backend, "x")), true},
		"one among others": {errors.Join(io.EOF, exit.Permanent(io.EOF)), true},
	} {
		if got := exit.IsPermanent(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := exit.Permanent(exit.Errorf(exit.Backend, "x")); exit.CodeOf(err) != exit.Backend || err.Error() != "x" {
		t.Errorf("%v with code %d", err, exit.CodeOf(err))
	}
}
