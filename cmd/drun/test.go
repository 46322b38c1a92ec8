package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/engine/recipe"
	"drun/engine/run"
	"drun/internal/elapsed"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/terminal"
	"drun/internal/try"
)

func newTests() *cobra.Command {
	t := &tests{options: run.Options{Timeout: time.Minute}}
	var nproc string
	cmd := &cobra.Command{
		Use:   "test RECIPE.star|FOLDER...",
		Short: "Run the tests of recipes: their test_* functions",
		Long: `Calls each function of a recipe whose name begins with test_, without arguments. Each is a separate run, with fresh
processes and a temporary home, once for each number of ranks in --ranks; nothing is recorded in the history. A test
passes if the function returns on every rank. The module testing has what tests need (drun doc testing). A folder stands
for every .star file beneath it.

Exit code: 0 all passed, 1 some failed, 2 there are none. --json prints a list of {"file", "line", "test", "ranks", "ok",
"seconds", "error", "output"}.`,
		Example: `  drun test train.star
  drun test train.star --ranks 1,2,4 -k loss
  drun test . --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("ranks") {
				t.ranks = []string{nproc}
			}
			return t.run(cmd, args)
		},
	}
	f := cmd.Flags()
	addRecipeFlags(f, &t.options, &nproc)
	f.StringSliceVar(&t.ranks, "ranks", []string{"1"}, "`numbers` of ranks on which each test runs, such as 1,2,4")
	f.StringVarP(&t.pattern, "run", "k", "", "only the tests whose names match the regular `expression`")
	f.BoolVarP(&t.verbose, "verbose", "v", false, "show what the tests that pass print, too")
	f.Lookup("timeout").DefValue = "1m0s"
	return cmd
}

type tests struct {
	options run.Options
	ranks   []string
	pattern string
	verbose bool
}

type tested struct {
	File    string  `json:"file"`
	Line    int     `json:"line"`
	Test    string  `json:"test"`
	Ranks   int     `json:"ranks"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
	Output  string  `json:"output,omitempty"`
}

func (t *tests) run(cmd *cobra.Command, args []string) error {
	wanted, err := regexp.Compile(t.pattern)
	if err != nil {
		return usage("", "--run: %v", err)
	}
	var sizes []int
	for _, text := range t.ranks {
		n := try.To(ranks(strings.TrimSpace(text)))
		if !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	stop := try.To(prepare(cmd, &t.options))
	defer stop()
	list := []tested{}
	began := time.Now()
	files := try.To(recipesIn(args...))
	for _, file := range files {
		more, err := t.file(cmd, file, wanted, sizes)
		list = append(list, more...)
		try.Ok(err)
	}
	if len(list) == 0 {
		if t.pattern != "" {
			return usage("", "no test matches %s", t.pattern)
		}
		return usage("a test is a function of a recipe whose name begins with test_, without parameters", "%s: there are no tests", strings.Join(args, " "))
	}
	failed := 0
	for _, r := range list {
		if !r.OK {
			failed++
		}
	}
	return cmp.Or(answer(cmd, list, "%d passed, %d failed in %s", len(list)-failed, failed, elapsed.Text(time.Since(began).Seconds())), failedIf(failed > 0))
}

// file runs the tests of a recipe. A recipe that cannot be read or compiled counts as a failed test without a name.
func (t *tests) file(cmd *cobra.Command, file string, wanted *regexp.Regexp, sizes []int) (list []tested, err error) {
	defer try.Caught(&err)
	report := func(r tested) error {
		list = append(list, r)
		if wantsJSON(cmd) {
			return nil
		}
		return t.print(cmd.OutOrStdout(), r)
	}
	bundle, err := recipe.Read(file)
	if err == nil {
		err = bundle.Check("testing")
	}
	if err != nil {
		if exit.CodeOf(err) == exit.Usage {
			return nil, err
		}
		return list, report(tested{File: file, Error: err.Error()})
	}
	found := try.To(bundle.Tests())
	for _, test := range found {
		if !wanted.MatchString(test.Name) {
			continue
		}
		for _, n := range sizes {
			r := try.To(t.one(file, test, n))
			try.Ok(report(r))
		}
	}
	return list, nil
}

// one runs a test. Its error ends all testing.
func (t *tests) one(file string, test recipe.Test, n int) (tested, error) {
	r := tested{File: file, Line: test.Line, Test: test.Name, Ranks: n}
	home, err := scratch.Make("test-")
	if err != nil {
		return r, err
	}
	defer home.Remove()
	var out bytes.Buffer
	o := t.options
	o.Recipe, o.Nproc, o.Function, o.Testing, o.Terminal = file, n, test.Name, true, false
	o.Home, o.Stdout, o.Stderr = filepath.Join(home.Path, "home"), &out, &out
	began := time.Now()
	result, err := run.Run(o)
	r.Seconds, r.Output = time.Since(began).Seconds(), out.String()
	switch {
	case err != nil && exit.CodeOf(err) != exit.Recipe:
		return r, err
	case err != nil:
		r.Error = err.Error()
	case result.Code == exit.Interrupted:
		return r, exitStatus(exit.Interrupted)
	case result.Failure != nil:
		r.Error = strings.TrimRight(result.Failure.Text(n), "\n")
		if hint := result.Failure.Hint; hint != "" {
			r.Error += "\n  hint: " + hint
		}
	case result.Code != exit.Done:
		r.Error = "the run was " + result.Code.Status()
	default:
		r.OK = true
	}
	return r, nil
}

func (t *tests) print(out io.Writer, r tested) error {
	word, colour := "ok  ", 32
	if !r.OK {
		word, colour = "FAIL", 31
	}
	line := painterFor(out).colour(colour, word) + " " + terminal.Escape(r.File)
	if r.Test != "" {
		line += fmt.Sprintf(":%d %s on %s (%s)", r.Line, r.Test, english.Plural(r.Ranks, "rank", ""), elapsed.Text(r.Seconds))
	}
	text := line + "\n"
	if r.Error != "" {
		text += indent(r.Error)
	}
	if r.Output != "" && (!r.OK || t.verbose) {
		text += "    printed:\n" + indent(r.Output)
	}
	_, err := io.WriteString(out, text)
	return err
}

// indent returns text from elsewhere, escaped and indented.
func indent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + terminal.Lines(strings.Join(lines, "\n    ")) + "\n"
}
