package lang

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// An Error is a fault of a recipe, found when it was parsed, compiled or run.
type Error struct {
	Pos    syntax.Position // where in the recipe; invalid if unknown
	Msg    string
	Frames []Frame  // the recipe's calls, outermost first; empty before it runs
	Also   []*Error // further faults found with it
	Cause  error    // what a builtin or a Cancel gave as the error; may be nil
}

// A Frame is a call of a recipe's function, and where in it execution is.
type Frame struct {
	Func string
	Pos  syntax.Position
}

// Error returns a line "file:line:col: message" for each fault.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Pos.IsValid() {
		fmt.Fprintf(&b, "%s: ", e.Pos)
	}
	b.WriteString(e.Msg)
	for i, also := range e.Also {
		if i == shownFaults {
			fmt.Fprintf(&b, "\nand %d more", len(e.Also)-i)
			break
		}
		fmt.Fprintf(&b, "\n%s", also)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Cause }

// Explain converts any error from parsing, compiling or executing a recipe to an *Error; nil stays nil. thread is the
// one that executed it, if any.
func Explain(thread *starlark.Thread, err error) *Error {
	if err == nil {
		return nil
	}
	e := explain(err)
	cause := Cancelled(thread)
	if cause == nil || !causedByCancel(err) {
		if e != err {
			_ = surprised(e)
		}
		return e
	}
	// An iterator that called the recipe back cancels with the recipe's error.
	if inner := (*starlark.EvalError)(nil); errors.As(cause, &inner) {
		return around(cause, explainEval(inner), nil)
	}
	e.Msg, e.Cause = cause.Error(), cause
	return e
}

func explain(err error) *Error {
	switch err := err.(type) {
	case *Error:
		return err
	case syntax.Error:
		return &Error{Pos: err.Pos, Msg: err.Msg, Cause: err}
	case resolve.ErrorList:
		first := &Error{Pos: err[0].Pos, Msg: err[0].Msg, Cause: err}
		for _, also := range err[1:] {
			first.Also = append(first.Also, &Error{Pos: also.Pos, Msg: also.Msg, Cause: also})
		}
		return first
	case *starlark.EvalError:
		return explainEval(err)
	}
	if inner := located(err); inner != nil {
		return around(err, explain(inner), nil)
	}
	return &Error{Msg: err.Error(), Cause: err}
}

func explainEval(err *starlark.EvalError) *Error {
	e := &Error{Msg: err.Msg, Cause: err.Unwrap()}
	for _, frame := range err.CallStack {
		if IsRecipe(frame.Pos) {
			e.Frames = append(e.Frames, Frame{Func: frame.Name, Pos: frame.Pos})
		}
	}
	n := len(e.Frames)
	if n > 1 && wrongArguments(err.Msg, e.Frames[n-1].Func) {
		n-- // the fault is in the call: the callee has not begun
	}
	if e.Frames = e.Frames[:n]; n > 0 {
		e.Pos = e.Frames[n-1].Pos
	}
	// A load, or a builtin that called back, may wrap an error from deeper in the recipe.
	if inner := located(err.Unwrap()); inner != nil {
		return around(err, explain(inner), e.Frames)
	}
	return e
}

// wrongArguments reports whether msg says that a call's arguments do not match the function.
func wrongArguments(msg, function string) bool {
	rest, ok := strings.CutPrefix(msg, "function "+function+" ")
	return ok && (strings.HasPrefix(rest, "missing ") || strings.HasPrefix(rest, "accepts ") || strings.HasPrefix(rest, "got "))
}

// around returns inner with the calls that led to it added, in err's wording.
func around(err error, inner *Error, outer []Frame) *Error {
	e := *inner
	if n := len(outer); len(inner.Frames) < n || !slices.Equal(inner.Frames[:n], outer) { // from another thread's stack
		e.Frames = slices.Concat(outer, inner.Frames)
	}
	// Keep what a builtin adds to a callback's error; what load adds, the position says already.
	if msg := err.Error(); strings.HasSuffix(msg, inner.Msg) && !strings.HasPrefix(msg, "cannot load ") {
		e.Msg = msg
	}
	return &e
}

// located finds an error with a position of its own in the chain of err.
func located(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		switch err.(type) {
		case *Error, syntax.Error, resolve.ErrorList, *starlark.EvalError:
			return err
		}
	}
	return nil
}

// Std begins the names of the files of drun's own library. A recipe's user sees the calls of its functions as those of
// other builtins.
const Std = "<std>/"

// IsRecipe reports whether a frame's position is in a recipe's file: those of builtins are not.
func IsRecipe(pos syntax.Position) bool {
	return pos.IsValid() && pos.Line > 0 && !strings.HasPrefix(pos.Filename(), Std)
}

const (
	shownFaults = 10 // of those found with the first
	shownFrames = 8  // at each end of a long backtrace
)

// Render returns the error as a user reads it: what Error says, then the calls that led to it, each with its line of
// source. source returns the text of a file, nil if it has none.
func (e *Error) Render(source func(filename string) []byte) string {
	var b strings.Builder
	b.WriteString(e.Error())
	b.WriteByte('\n')
	if len(e.Frames) == 0 {
		quote(&b, source, e.Pos)
		return b.String()
	}
	b.WriteString("Traceback (most recent call last):\n")
	calls := runs(e.Frames)
	for i := 0; i < len(calls); i++ {
		if skip := len(calls) - 2*shownFrames; i == shownFrames && skip > 1 {
			fmt.Fprintf(&b, "  … %d more …\n", skip)
			i += skip
		}
		fmt.Fprintf(&b, "  %s: in %s\n", calls[i].Pos, calls[i].Func)
		quote(&b, source, calls[i].Pos)
		if n := calls[i].times; n > 1 {
			fmt.Fprintf(&b, "    … the same call, %d times in all\n", n)
		}
	}
	return b.String()
}

// A run is a call that occurs several times in a row in a backtrace.
type run struct {
	Frame
	times int
}

func runs(frames []Frame) (list []run) {
	for _, f := range frames {
		if n := len(list); n > 0 && list[n-1].Frame == f {
			list[n-1].times++
		} else {
			list = append(list, run{f, 1})
		}
	}
	return list
}

// quote writes the line of a position with a mark below its column.
func quote(b *strings.Builder, source func(string) []byte, pos syntax.Position) {
	if source == nil || !IsRecipe(pos) {
		return
	}
	line, ok := sourceLine(source(pos.Filename()), int(pos.Line))
	if !ok {
		return
	}
	text := strings.TrimLeft(line, " \t")
	fmt.Fprintf(b, "    %s\n", text)
	// Columns count characters; a tab before the mark keeps its width.
	col := int(pos.Col) - 1 - (len(line) - len(text))
	runes := []rune(text)
	if text == "" || col < 0 || col > len(runes) {
		return
	}
	mark := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(runes[:col]))
	fmt.Fprintf(b, "    %s^\n", mark)
}

func sourceLine(src []byte, n int) (string, bool) {
	rest := string(src)
	for ; n > 1; n-- {
		i := strings.IndexByte(rest, '\n')
		if i < 0 {
			return "", false
		}
		rest = rest[i+1:]
	}
	line, _, _ := strings.Cut(rest, "\n")
	line = strings.TrimRight(line, " \t\r")
	return line, line != ""
}
