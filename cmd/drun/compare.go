package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

func newCompare() *cobra.Command {
	var all bool
	var c conditions
	cmd := &cobra.Command{
		Use:   "compare [RUN…]",
		Short: "Show how runs differ",
		Long: `Show how runs differ: parameters, seed and ranks, metrics, artifacts, recipe, data files, backend, machine
and versions. Prints what differs, and how much is the same; for two runs, also the lines in which their
recipes differ. A RUN is an id, a name, or last; --where and --tag choose runs as in drun runs instead, the oldest first.`,
		Example: `  drun compare 3 7
  drun compare calm-otter last --all
  drun compare --where 'metrics.acc.last > 0.9'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withChosen(cmd, &c, args, func(db *history.DB, ids []int64) error {
				if len(ids) < 2 {
					return usage("usage: "+cmd.UseLine(), "one run alone cannot be compared: run %d", ids[0])
				}
				c := try.To(report.Compare(db, ids))
				return show(cmd, c, func(out io.Writer, c *report.Comparison) error {
					return printComparison(out, c.Comparison, c.Diff, all)
				})
			})
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "print also what is the same")
	return cmd
}

// sideBySide is up to how many runs have a column each. More runs have a row each, as do three or more if the
// columns do not fit into the terminal.
const sideBySide = 6

func printComparison(out io.Writer, c *history.Comparison, diff string, all bool) error {
	rows := c.Differences
	if all {
		rows = append(append([]history.Difference{}, rows...), c.Same...)
	}
	columns, wide := beside(c.Runs, rows)
	if len(c.Runs) > sideBySide || len(c.Runs) > 2 && terminal.Is(out) && wide > terminal.Width(out) {
		beneath(out, c.Runs, rows)
	} else {
		_, _ = io.WriteString(out, columns)
	}
	if len(c.Differences) == 0 {
		fmt.Fprintln(out, "nothing differs: of metrics, the last, smallest and largest values and their count are compared here; drun diff compares all")
	}
	if len(c.Same) > 0 && !all {
		fmt.Fprintf(out, "\nthe rest, %d values, is the same; --all shows it\n", len(c.Same))
	}
	if diff != "" {
		fmt.Fprintf(out, "\n%s", paintDiff(out, diff))
	}
	return nil
}

func title(r history.RunName) string { return fmt.Sprintf("%d %s", r.ID, r.Name) }

// beside gives each run a column, with the rows of a kind together. wide is the length of the longest line in
// characters.
func beside(runs []history.RunName, rows []history.Difference) (table string, wide int) {
	var text strings.Builder
	w := terminal.NewTable(&text)
	heading := append([]string{""}, each.Of(runs, title)...)
	for i, d := range rows {
		if i == 0 || rows[i-1].Kind != d.Kind {
			if i > 0 {
				row(w, make([]string, len(heading)))
			}
			heading[0] = strings.ToUpper(d.Kind)
			row(w, heading)
		}
		row(w, d.Name, each.Of(d.Values, func(v any) string { return comparedText(d.Kind, v) }))
	}
	w.Flush()
	var trimmed strings.Builder
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, " \n") // empty cells leave spaces
		trimmed.WriteString(line + "\n")
		wide = max(wide, terminal.Columns(line))
	}
	return trimmed.String(), wide
}

// beneath prints a row per run with the short values, and below that which runs have which of the rest.
func beneath(out io.Writer, runs []history.RunName, rows []history.Difference) {
	w := terminal.NewTable(out)
	room := math.MaxInt
	if terminal.Is(out) {
		room = terminal.Width(out) - 30
	}
	var columns, rest []history.Difference
	for _, d := range rows {
		short := d.Kind == "parameter" || d.Kind == "run" || d.Kind == "metric" && strings.HasSuffix(d.Name, ".last")
		if short && room > 0 {
			columns = append(columns, d)
			room -= max(len(d.Name), 10) + 2
		} else if d.Kind != "metric" {
			rest = append(rest, d)
		}
	}
	row(w, "ID", "NAME", each.Of(columns, func(d history.Difference) string { return d.Name }))
	shown := each.Of(columns, texts)
	for i, r := range runs {
		row(w, whole(r.ID), r.Name, each.Of(shown, func(column []string) string { return column[i] }))
	}
	w.Flush()
	for _, d := range rest {
		fmt.Fprintf(out, "\n%s %s\n", strings.ToUpper(d.Kind), terminal.Escape(d.Name))
		var values []string
		who := map[string][]string{}
		for i, v := range d.Values {
			text := comparedText(d.Kind, v)
			if who[text] == nil {
				values = append(values, text)
			}
			who[text] = append(who[text], whole(runs[i].ID))
		}
		for _, text := range values {
			row(w, "  "+text, "runs "+strings.Join(who[text], " "))
		}
		w.Flush()
	}
}

// texts are the displayed values of a difference; metrics get all digits if fewer do not tell them apart.
func texts(d history.Difference) []string {
	list, exact := make([]string, len(d.Values)), make([]string, len(d.Values))
	short := map[string]string{}
	all := false
	for i, v := range d.Values {
		list[i] = comparedText(d.Kind, v)
		exact[i] = list[i]
		if f, is := v.(records.Float); is {
			exact[i] = f.String()
		}
		before, again := short[list[i]]
		all = all || again && before != exact[i]
		short[list[i]] = exact[i]
	}
	if all {
		return exact
	}
	return list
}

func comparedText(kind string, v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case records.Float:
		return number(v)
	case json.RawMessage:
		return string(v)
	case string:
		if kind == "recipe" || kind == "artifact" || kind == "data" {
			return shortSum(v)
		}
		return v
	}
	return fmt.Sprint(v)
}

// shortSum shortens a SHA-256 to a distinctive part, and keeps what follows it. Other texts stay.
func shortSum(text string) string {
	if len(text) < 64 {
		return text
	}
	if _, err := hex.DecodeString(text[:64]); err != nil {
		return text
	}
	return text[:12] + strings.TrimPrefix(text[64:], ",")
}

// paintDiff makes a diff safe to print, and colours it on a terminal.
func paintDiff(out io.Writer, diff string) string {
	paint := painterFor(out)
	var b strings.Builder
	for line := range strings.Lines(terminal.Lines(diff)) {
		colour := map[byte]int{'@': 36, '+': 32, '-': 31}[line[0]]
		if strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---") {
			colour = 1
		}
		b.WriteString(paint.colour(colour, strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

func newSource() *cobra.Command {
	var diff string
	cmd := &cobra.Command{
		Use:   "source RUN [FILE…]",
		Short: "Print the recipe of a run, and what it loaded",
		Long: `Prints the recipe of a run and every file that it loaded, as they were then, or only the files that are
named. Several files have a line with the name before each; a single file is printed as it was, byte by byte, except that
a terminal is shown control characters as \x1b. --diff RUN prints the lines in which another run's files differ.`,
		Example: `  drun source 7
  drun source 7 recipe.star > recipe.star
  drun source 7 --diff last`,
		RunE: func(cmd *cobra.Command, args []string) error {
			runs := args[:1]
			if cmd.Flags().Changed("diff") {
				if len(args) > 1 {
					return usage("", "--diff compares all files: name none")
				}
				runs = append(runs, diff)
			}
			return withRuns(cmd, runs, func(db *history.DB, ids []int64) error {
				if len(ids) == 1 {
					return printSources(cmd, db, ids[0], args[1:])
				}
				text := try.To(report.SourceDiff(db, ids[0], ids[1]))
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), map[string]string{"diff": text})
				}
				if text == "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "the files are the same")
				}
				_, err := io.WriteString(cmd.OutOrStdout(), paintDiff(cmd.OutOrStdout(), text))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&diff, "diff", "", "print how the files of this `RUN` differ from those of the first")
	return cmd
}

func printSources(cmd *cobra.Command, db *history.DB, id int64, names []string) error {
	all := try.To(db.Sources(id))
	known := each.Of(all, func(s records.Source) string { return s.Path })
	list := all
	if len(names) > 0 {
		list = nil
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return usage("it has: "+fmt.Sprint(known), "run %d has no file %q", id, name)
		}
		list = append(list, all[i])
	}
	out := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		return printJSON(out, report.Files(list))
	}
	for i, s := range list {
		if len(list) > 1 {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "==> %s <==\n", terminal.Escape(s.Path))
		}
		text := string(s.Content) // a pipe gets the bytes unchanged
		if terminal.Is(out) {
			text = terminal.Lines(text)
		}
		try.To(io.WriteString(out, text))
	}
	return nil
}
