package recipetest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"drun/engine/run"
	"drun/internal/exit"
	"drun/internal/testlimit"
	"drun/starlib/lang/chunk"
)

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

// lineOf finds the line of "file.star:12:3: …" in a message or, for an error in another file, the line of the outermost
// frame; 0 if there is none.
func lineOf(text, file string) int {
	m := regexp.MustCompile(`/` + regexp.QuoteMeta(file) + `:(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // digits
	return n
}

// setting is how a chunk is run, from the comments at its beginning.
type setting struct {
	ranks      []int
	exit       int
	everywhere bool
	within     time.Duration
	timeout    time.Duration
	prints     string
	params     []string
	ordered    *bool
	restarts   int
	alone      bool
}

func settings(c chunk.Chunk) (s setting, err error) {
	s = setting{ranks: c.Ranks, within: 30 * time.Second, timeout: testlimit.Time(20 * time.Second)}
	if len(s.ranks) == 0 {
		s.ranks = []int{1}
	}
	if len(c.Want) > 0 {
		s.exit = 1
	}
	for key, value := range c.Header {
		switch key {
		case "name", "ranks":
		case "exit":
			s.exit, err = strconv.Atoi(value)
		case "everywhere":
			s.everywhere = value == "yes"
		case "within":
			s.within, err = time.ParseDuration(value)
		case "timeout":
			s.timeout, err = time.ParseDuration(value)
		case "prints":
			s.prints = value
		case "deterministic":
			ordered := value == "yes"
			s.ordered = &ordered
		case "restarts":
			s.restarts, err = strconv.Atoi(value)
		case "alone":
			s.alone = value == "yes"
		case "params":
			s.params = strings.Fields(value)
		default:
			err = fmt.Errorf("unknown heading %q", key)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}
