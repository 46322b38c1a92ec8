package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/history"
	"drun/history/query"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

// conditions choose runs by what they are.
type conditions struct {
	where, tags []string
	trash       bool // among the runs in the trash, instead of the others
}

func (c *conditions) addFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&c.where, "where", "w", nil, "only runs for which the expression `EXPR` is true (repeatable: all must be)")
	f.StringArrayVar(&c.tags, "tag", nil, "only runs with the tag `TAG` (repeatable: all must match)")
}

// match returns the ids of the runs that the conditions choose, in the order of the sort keys, newest first among
// equals. It also returns the names that no run has.
func (c *conditions) match(cmd *cobra.Command, db *history.DB, sort []string) (ids []int64, unknown []string, err error) {
	where, keys := try.To2(query.ParseSelection("--", c.where, c.tags, sort))
	ids, unknown, err = query.Choose(db, c.trash, where, keys)
	for _, note := range unknown {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", terminal.Escape(note))
	}
	return ids, unknown, err
}

// find returns the ids of the runs that arguments name or, without any, of those that the conditions choose, the
// oldest first.
func (c *conditions) find(cmd *cobra.Command, db *history.DB, refs []string) ([]int64, error) {
	switch chosen := len(c.where)+len(c.tags) > 0; {
	case chosen == (len(refs) > 0):
		return nil, usage("usage: "+cmd.UseLine(), "either name runs, or choose them with --where and --tag")
	case !chosen && c.trash:
		return report.Find(refs, db.FindTrashed)
	case !chosen:
		return report.Find(refs, db.Find)
	}
	ids, _, err := c.match(cmd, db, nil)
	if err == nil && len(ids) == 0 {
		err = usage("drun runs takes --where and --tag, too", "no run matches")
	}
	slices.Reverse(ids)
	return ids, err
}

// choice is how the user selects runs to list.
type choice struct {
	conditions
	sort  []string
	limit int
	all   bool
}

func newRuns() *cobra.Command {
	var c choice
	var columns string
	cmd := &cobra.Command{
		Use:        "runs",
		SuggestFor: []string{"ls", "ps", "list", "history"},
		Short:      "List the runs, newest first",
		Long: `List the runs, newest first, or those that --where and --tag choose.

--where takes a Starlark expression over id name status recipe started seconds world_size
backend seed tags error parent project owner params.X metrics.X. A metric has .last .min .max .first .count;
a name with other characters is written metrics["val/acc"]. started is UTC as text, such as
"2026-01-02T15:04:05.000000Z", which compares as text. A part of the expression with a name that a
run lacks is neither true nor false, and a comparison with NaN is false, except !=.

--sort takes such an expression, too: the smallest comes first, and with a minus before it the
largest. Runs without a value come last. --columns takes several, separated by commas; without it a
narrow terminal shows fewer columns than a wide one, a pipe or a file.`,
		Example: `  drun runs --where 'params.lr < 0.1 and metrics.acc.last > 0.95'
  drun runs --where 'status == "failed" and "nan" in error' --all
  drun runs --tag baseline --sort -metrics.acc.max --limit 5
  drun runs --sort metrics.loss.last --columns 'id, name, params.lr, metrics.loss.last'
  drun runs --where '"warm" in tags and started > "2026-03"' --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.all && cmd.Flags().Changed("limit") {
				return usage("", "--limit and --all exclude each other")
			}
			if c.limit < 1 {
				return usage("all runs: --all", "--limit %d: must be at least 1", c.limit)
			}
			return listRuns(cmd, &c, columns)
		},
	}
	f := cmd.Flags()
	c.addFlags(f)
	f.StringArrayVarP(&c.sort, "sort", "s", nil, "sort by the expression `KEY`; -KEY: the largest first (repeatable)")
	f.IntVar(&c.limit, "limit", 20, "show at most `N` runs")
	f.BoolVar(&c.all, "all", false, "show all runs")
	f.BoolVar(&c.trash, "trash", false, "the runs in the trash instead of the others")
	f.StringVar(&columns, "columns", "", "show the values of these `expressions`, separated by commas")
	return cmd
}

// choose returns the ids of the runs that the user wants to see, and how many there were before --limit.
func (c *choice) choose(cmd *cobra.Command, db *history.DB) (ids []int64, found int, err error) {
	if !c.all && len(c.where)+len(c.tags)+len(c.sort) == 0 { // no need to read all runs
		newest, err := db.Select(history.Selection{Limit: c.limit, Trashed: c.trash})
		ids = each.Of(newest, func(r history.Summary) int64 { return r.ID })
		return ids, len(ids), err
	}
	ids, unknown, err := c.match(cmd, db, c.sort)
	found = len(ids)
	if err == nil && found == 0 && len(unknown) == 0 && len(c.where)+len(c.tags) > 0 && !wantsJSON(cmd) {
		fmt.Fprintln(cmd.ErrOrStderr(), "no run matches")
	}
	if !c.all {
		ids = ids[:min(found, c.limit)]
	}
	return ids, found, err
}

func listRuns(cmd *cobra.Command, c *choice, columns string) error {
	shown := []*query.Expr(nil)
	if columns != "" {
		shown = try.To(query.ParseList("--columns", columns))
	}
	db, err := openHistory(cmd)
	var none *history.ErrNone
	if errors.As(err, &none) {
		// Without a history the answer is an empty list, not an error.
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", terminal.Lines(none.Error()), none.Hint())
		return show(cmd, []history.Summary{}, printRuns)
	}
	try.Ok(err)
	defer db.Close()
	ids, found := try.To2(c.choose(cmd, db))
	if len(ids) < found && len(c.where)+len(c.tags) > 0 && !cmd.Flags().Changed("limit") {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d runs; all of them: --all\n", len(ids), found)
	}
	if shown != nil {
		table := try.To(query.Table(db, ids, shown))
		return show(cmd, table, printColumns)
	}
	list := try.To(db.Summaries(ids))
	return show(cmd, list, printRuns)
}

func printColumns(out io.Writer, table *history.Table) error {
	return printTable(out, table, func(v any) string {
		switch v := v.(type) {
		case nil:
			return "-"
		case records.Float:
			return number(v)
		case []any:
			parts := each.Of(v, func(e any) string { return fmt.Sprint(e) })
			return strings.Join(parts, ",")
		}
		return fmt.Sprint(v)
	})
}

func printRuns(out io.Writer, list []history.Summary) error {
	if len(list) == 0 {
		return nil
	}
	has := func(what func(history.Summary) bool) bool { return slices.ContainsFunc(list, what) }
	parents, errors := has(func(r history.Summary) bool { return r.Parent != nil }), has(func(r history.Summary) bool { return r.Error != "" })
	paint := painterFor(out)
	room, errorRoom := math.MaxInt, math.MaxInt // a pipe or file gets everything
	narrow, tags := false, true
	if terminal.Is(out) {
		room = terminal.Width(out) - 90 // minus the fixed columns
		if narrow = room < 24; narrow {
			tags = has(func(r history.Summary) bool { return len(r.Tags) > 0 })
			room = terminal.Width(out) - narrowColumns(list)
		}
		if errors {
			errorRoom = 40
			if narrow {
				errorRoom = max(12, room/2)
			}
			room -= errorRoom + 2
		}
		room = max(room, 0)
	}
	columns := []column[history.Summary]{
		{"ID", func(r history.Summary) any { return whole(r.ID) }},
		{"NAME", func(r history.Summary) any { return r.Name }},
		{"STATUS", func(r history.Summary) any { return paint.status(r.Status) }},
	}
	add := func(heading string, cell func(r history.Summary) any) {
		columns = append(columns, column[history.Summary]{heading, cell})
	}
	if narrow {
		add("RECIPE", func(r history.Summary) any { return filepath.Base(r.Recipe) })
	} else {
		add("RECIPE", func(r history.Summary) any { return r.Recipe })
		add("RANKS", func(r history.Summary) any { return strconv.Itoa(r.WorldSize) })
		add("STARTED", func(r history.Summary) any { return humanize.Time(r.Started) })
		add("SECONDS", func(r history.Summary) any { return known(r.Seconds, tenths) })
	}
	labels := func(r history.Summary) string { return strings.Join(r.Tags, ",") }
	if tags {
		add("TAGS", func(r history.Summary) any { return labels(r) })
	}
	if parents {
		add("PARENT", func(r history.Summary) any {
			if r.Parent == nil {
				return ""
			}
			return fmt.Sprintf("%d@%d", r.Parent.ID, r.Parent.Step)
		})
	}
	add("METRICS", func(r history.Summary) any { return lastMetrics(r.Metrics, room-len(labels(r))) })
	if errors {
		add("ERROR", func(r history.Summary) any { return painted(shorten(firstLine(r.Error), errorRoom)) })
	}
	return printList(out, list, columns)
}

// narrowColumns is how many characters the columns of runs take in a narrow terminal, without tags, metrics and
// errors.
func narrowColumns(list []history.Summary) int {
	wide := [4]int{2, 4, 6, 6} // the headings
	for _, r := range list {
		for i, text := range []string{strconv.FormatInt(r.ID, 10), r.Name, string(r.Status), filepath.Base(r.Recipe)} {
			wide[i] = max(wide[i], terminal.Columns(text))
		}
	}
	return wide[0] + wide[1] + wide[2] + wide[3] + 2*len(wide)
}

func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// lastMetrics lists as many of the last values as fit.
func lastMetrics(metrics map[string]history.MetricSummary, room int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		part := name + "=" + number(metrics[name].Last)
		if room -= len(part) + 1; room < 0 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func newSQL() *cobra.Command {
	return &cobra.Command{
		Use:   "sql QUERY",
		Short: "Query the history with SQL, read-only",
		Long: `Query the history with SQL. Nothing can be written. The tables are described in
docs/history-tables.md; with --json the result is a list of objects, one per row, with
NaN and infinities as the strings "NaN", "Infinity" and "-Infinity".`,
		Example: `  drun sql "select name, last from metric_summaries where run = 7"
  drun sql "select r.name, p.value from runs r join params p on p.run = r.id where p.name = 'lr'"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			db := try.To(openHistory(cmd))
			defer db.Close()
			table := try.To(db.Query(cmd.Context(), args[0]))
			return show(cmd, table, func(out io.Writer, table *history.Table) error { return printTable(out, table, cell) })
		},
	}
}

func printTable(out io.Writer, table *history.Table, text func(any) string) error {
	if len(table.Columns) == 0 {
		return nil
	}
	w := terminal.NewTable(out)
	row(w, table.Columns)
	for _, values := range table.Rows {
		cells := each.Of(values, text)
		row(w, cells)
	}
	return w.Flush()
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return records.Float(v).String()
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return fmt.Sprintf("x'%x'", v)
	}
	return fmt.Sprint(v)
}
