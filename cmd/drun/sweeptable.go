package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/terminal"
	"drun/runs/sweep"
)

// combination holds the results of a sweep's runs with the same parameters but different seeds.
type combination struct {
	cell  string
	runs  []history.Summary
	worse bool // it was ended early, or would have been
}

// combine groups runs by their cells, in the order of the runs.
func combine(plan []sweep.Outcome, runs []history.Summary) (all []*combination) {
	cells, found := map[int64]*sweep.Outcome{}, map[string]*combination{}
	for i := range plan {
		if r := plan[i].Result; r != nil {
			cells[r.ID] = &plan[i]
		}
	}
	for _, r := range runs {
		cell := cells[r.ID].Cell.String()
		if found[cell] == nil {
			found[cell] = &combination{cell: cell, worse: cells[r.ID].Stopped > 0}
			all = append(all, found[cell])
		}
		found[cell].runs = append(found[cell].runs, r)
	}
	return all
}

// of returns the mean of a metric's last values over the finished runs, and their standard deviation (of a sample).
func (c *combination) of(metric string) (mean, deviation float64, n int) {
	var values []float64
	for _, r := range c.runs {
		if m, has := r.Metrics[metric]; has && r.Status == history.Done {
			values = append(values, float64(m.Last))
			mean += float64(m.Last)
		}
	}
	n = len(values)
	mean /= float64(n)
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / float64(n-1)), n
}

// text returns a metric as a table shows it.
func (c *combination) text(metric string) string {
	mean, deviation, n := c.of(metric)
	switch n {
	case 0:
		return "-"
	case 1:
		return number(records.Float(mean))
	}
	return number(records.Float(mean)) + " ± " + fmt.Sprintf("%.2g", deviation)
}

// rank sorts combinations by --minimize, names the best one, and returns the runs in that order. NaN comes last, as do
// those that were found worse on the way.
func (f *sweepFlags) rank(cmd *cobra.Command, all []*combination) (runs []history.Summary) {
	metric, largest := strings.CutPrefix(f.minimize, "-")
	slices.SortStableFunc(all, func(a, b *combination) int {
		x, _, _ := a.of(metric)
		y, _, _ := b.of(metric)
		switch {
		case a.worse != b.worse:
			return map[bool]int{true: 1, false: -1}[a.worse]
		case math.IsNaN(x) || math.IsNaN(y): // which cmp.Compare puts first
			return -cmp.Compare(x, y)
		case largest:
			return cmp.Compare(y, x)
		}
		return cmp.Compare(x, y)
	})
	for _, c := range all {
		runs = append(runs, c.runs...)
	}
	errs := cmd.ErrOrStderr()
	if len(all) == 0 || all[0].text(metric) == "-" {
		fmt.Fprintf(errs, "--minimize %s: no finished run logged %s; the metrics are %s\n", terminal.Escape(f.minimize), terminal.Escape(metric), terminal.Escape(strings.Join(metricNames(runs), ", ")))
		return runs
	}
	ids := each.Of(all[0].runs, func(r history.Summary) string { return whole(r.ID) })
	fmt.Fprintf(errs, "best: %s: %s %s (%s %s)\n", terminal.Escape(cmp.Or(all[0].cell, "the defaults")), terminal.Escape(metric), all[0].text(metric),
		english.PluralWord(len(ids), "run", ""), english.WordSeries(ids, "and"))
	return runs
}

func paramOrNone(r history.Summary, name string) string {
	if _, has := r.Params[name]; has {
		return r.Params.Text(name)
	}
	return "-"
}

func printCombinations(out io.Writer, all []*combination, swept []string) error {
	var columns []column[*combination]
	for _, name := range swept {
		columns = append(columns, column[*combination]{name, func(c *combination) any { return paramOrNone(c.runs[0], name) }})
	}
	columns = append(columns, column[*combination]{"RUNS", func(c *combination) any {
		var ids []string
		for _, r := range c.runs {
			id := whole(r.ID)
			if r.Status != history.Done {
				id += " " + string(r.Status)
			}
			ids = append(ids, id)
		}
		return strings.Join(ids, ", ")
	}})
	var runs []history.Summary
	for _, c := range all {
		runs = append(runs, c.runs...)
	}
	for _, name := range metricNames(runs) {
		columns = append(columns, column[*combination]{name, func(c *combination) any { return c.text(name) }})
	}
	return printList(out, all, columns)
}
