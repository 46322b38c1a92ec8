package recipetest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"drun/engine/run"
	"drun/internal/exit"
	"drun/starlib/lang/chunk"
)

// outcome is how a run ended.
type outcome struct {
	err    error // why the run did not start
	result *run.Result
}

func (o outcome) String() string {
	if o.err != nil {
		return "error: " + o.err.Error()
	}
	var b strings.Builder
	for _, f := range o.result.Failures {
		fmt.Fprintf(&b, "rank %d (exit %d, secondary %v): %s\n%s\n", f.Rank, f.Code, f.Secondary, f.Message, f.Traceback)
	}
	return b.String()
}

// fault is an error with the line that it names.
type fault struct {
	rank      int
	line      int
	text      string
	secondary bool // another rank's error caused this one
}

// check compares the outcome with the chunk's expectations.
func (o outcome) check(c chunk.Chunk, s setting) (problems []string) {
	code, faults := exit.CodeOf(o.err), []fault(nil)
	if o.err != nil {
		faults = []fault{{text: o.err.Error(), line: lineOf(o.err.Error(), c.File)}}
	} else {
		code = o.result.Code
		for _, f := range o.result.Failures {
			text := f.Message + "\n" + f.Traceback
			faults = append(faults, fault{f.Rank, lineOf(text, c.File), text, f.Secondary || f.Code == exit.RankLost})
		}
	}
	if int(code) != s.exit {
		problems = append(problems, fmt.Sprintf("exit code %d, want %d", code, s.exit))
	}
	if len(c.Want) == 0 && s.exit == 0 {
		for _, f := range faults {
			problems = append(problems, fmt.Sprintf("rank %d: unexpected error: %s", f.rank, f.text))
		}
	}
	met := map[int]bool{} // ranks that met an expectation
	for _, want := range c.Want {
		found := false
		for _, f := range faults {
			if f.line == want.Line && want.Pattern.MatchString(f.text) {
				found, met[f.rank] = true, true
			}
		}
		if !found {
			problems = append(problems, fmt.Sprintf("line %d: no rank reported an error like %q", want.Line, want.Pattern))
		}
	}
	for _, f := range faults {
		if len(c.Want) > 0 && !met[f.rank] && (s.everywhere || !f.secondary) {
			problems = append(problems, fmt.Sprintf("rank %d reported another error: %s", f.rank, f.text))
		}
	}
	if s.everywhere {
		if o.result != nil && len(faults) < o.result.Ranks {
			problems = append(problems, fmt.Sprintf("only %d of %d ranks reported an error", len(faults), o.result.Ranks))
		}
	}
	return problems
}

// lineOf finds the line of "file.star:12:3: …" in a message or, for an error in
// another file, the line of the outermost frame; 0 if there is none.
func lineOf(text, file string) int {
	m := regexp.MustCompile(`/` + regexp.QuoteMeta(file) + `:(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // digits
	return n
}
