package main

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
	"drun/runs/report"
)

func newMetrics() *cobra.Command {
	var asCSV, lineage bool
	var points, attempt int
	cmd := &cobra.Command{
		Use:   "metrics RUN [NAME…]",
		Short: "Print the points of a run's metrics",
		Long: `Print the points of a run's metrics, all of them or those named, in the order
in which they were recorded. Values are exact: they read back to the same bits.
In JSON, NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".`,
		Example: `  drun metrics last loss
  drun metrics calm-otter --csv > points.csv
  drun metrics 7 loss val/acc --points 200 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asCSV && wantsJSON(cmd) {
				return usage("", "--csv and --json exclude each other")
			}
			if cmd.Flags().Changed("points") && points < history.MinDownsample {
				return usage("without --points all are printed", "--points %d: must be at least %d", points, history.MinDownsample)
			}
			if cmd.Flags().Changed("attempt") && attempt < 0 {
				return usage("attempts are numbered from 0", "--attempt %d: there is none", attempt)
			}
			if lineage && cmd.Flags().Changed("attempt") {
				return usage("", "--attempt and --lineage exclude each other")
			}
			return withRun(cmd, args[0], func(db *history.DB, id int64) error {
				list, err := report.Points(db, id, args[1:], lineage, attempt, points)
				if err != nil {
					return err
				}
				if asCSV {
					return printPointsCSV(cmd.OutOrStdout(), list)
				}
				return show(cmd, list, printPoints)
			})
		},
	}
	cmd.Flags().IntVar(&attempt, "attempt", -1, "print what attempt number `N` recorded, even if a later attempt recorded it again")
	cmd.Flags().BoolVar(&lineage, "lineage", false, "print also the points of the runs that this one was resumed from, up to the checkpoint")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print as CSV")
	cmd.Flags().IntVar(&points, "points", 0, "print at most `N` points per metric and rank; spikes are kept")
	return cmd
}

func cells(p records.Point) []string {
	return []string{p.Name, strconv.FormatInt(p.Step, 10), strconv.Itoa(p.Rank),
		records.Float(p.Value).String(), p.Time.Format(time.RFC3339Nano)}
}

func printPointsCSV(out io.Writer, list []records.Point) error {
	w := csv.NewWriter(out)
	if err := w.Write([]string{"name", "step", "rank", "value", "time"}); err != nil {
		return err
	}
	for _, p := range list {
		line := cells(p)
		line[0] = terminal.Cell(line[0]) // the only text column
		if terminal.Is(out) {
			line[0] = terminal.Escape(line[0])
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

func printPoints(out io.Writer, list []records.Point) error {
	if len(list) == 0 {
		return nil
	}
	w := terminal.NewTable(out)
	row(w, "NAME", "STEP", "RANK", "VALUE", "TIME")
	for _, p := range list {
		row(w, cells(p))
	}
	return w.Flush()
}
