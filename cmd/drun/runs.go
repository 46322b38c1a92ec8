package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/terminal"
)

func newRuns() *cobra.Command {
	var limit int
	var all bool
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List the runs, newest first",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && cmd.Flags().Changed("limit") {
				return usage("", "--limit and --all exclude each other")
			}
			if limit < 1 {
				return usage("all runs: --all", "--limit %d: must be at least 1", limit)
			}
			if all {
				limit = 0
			}
			list, err := listRuns(homeOf(cmd), limit)
			var none *history.ErrNone
			if errors.As(err, &none) {
				// Without a history the answer is an empty list, not an error.
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", terminal.Lines(none.Error()), none.Hint())
				err = nil
			}
			if err != nil {
				return err
			}
			return show(cmd, list, printRuns)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most `N` runs")
	cmd.Flags().BoolVar(&all, "all", false, "show all runs")
	return cmd
}

func listRuns(home string, limit int) ([]history.Summary, error) {
	db, err := history.OpenReadOnly(home)
	if err != nil {
		return []history.Summary{}, err
	}
	defer db.Close()
	return db.List(limit)
}

func printRuns(out io.Writer, list []history.Summary) error {
	if len(list) == 0 {
		return nil
	}
	paint := painterFor(out)
	room := math.MaxInt // a pipe or file gets all metrics
	if terminal.Is(out) {
		room = width(out) - 90 // what the fixed columns take
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(w, "ID", "NAME", paint.pad("STATUS"), "RECIPE", "RANKS", "STARTED", "SECONDS", "TAGS", "METRICS")
	for _, r := range list {
		seconds := "-"
		if r.Seconds != nil {
			seconds = strconv.FormatFloat(*r.Seconds, 'f', 1, 64)
		}
		tags := strings.Join(r.Tags, ",")
		row(w, strconv.FormatInt(r.ID, 10), r.Name, paint.status(r.Status), r.Recipe,
			strconv.Itoa(r.WorldSize), humanize.Time(r.Started), seconds, tags, lastMetrics(r.Metrics, room-len(tags)))
	}
	return w.Flush()
}

// lastMetrics lists as many of the last values as there is room for.
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
