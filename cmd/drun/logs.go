package main

import (
	"bufio"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/terminal"
)

func newLogs() *cobra.Command {
	var rank int
	var grep string
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Print what the ranks of a run printed",
		Long: `Print what the ranks of a run printed. With more than one rank each line begins
with its rank, "[0] "; lines of drun itself begin with "[drun] ". On a terminal,
control characters are made visible, as \x1b; a pipe or file gets them as they
were printed. --json prints a list of {"rank", "stream", "time", "text"}; with
--follow as well, one such object per line.`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter := history.LogFilter{}
			if cmd.Flags().Changed("rank") {
				filter.Rank = &rank
			}
			if grep != "" {
				re, err := regexp.Compile(grep)
				if err != nil {
					return usage("the syntax is RE2's, as in Go", "--grep: %v", err)
				}
				filter.Grep = re
			}
			return withRun(cmd, args[0], func(db *history.DB, id int64) error {
				return printLogs(cmd, db, id, filter, follow)
			})
		},
	}
	cmd.Flags().IntVar(&rank, "rank", 0, "only lines of rank `N` (-1: drun's own)")
	cmd.Flags().StringVar(&grep, "grep", "", "only lines that match the regular expression `RE`")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines until the run has ended")
	return cmd
}

func printLogs(cmd *cobra.Command, db *history.DB, id int64, filter history.LogFilter, follow bool) error {
	run, err := db.Get(id)
	if err != nil {
		return err
	}
	if filter.Rank != nil && (*filter.Rank < -1 || *filter.Rank >= run.WorldSize) {
		return usage("", "--rank %d: the run's ranks are 0 to %d", *filter.Rank, run.WorldSize-1)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	defer out.Flush()
	if wantsJSON(cmd) && !follow {
		lines := []history.LogLine{}
		_, err := db.Logs(id, filter, func(l history.LogLine) error { lines = append(lines, l); return nil })
		if err != nil {
			return err
		}
		return printJSON(out, lines)
	}
	show := func(text string) string { return text } // a pipe gets the bytes
	if terminal.Is(cmd.OutOrStdout()) {
		show = terminal.Line
	}
	printLine := func(l history.LogLine) error {
		if wantsJSON(cmd) {
			return encodeJSON(out, l, "")
		}
		_, err := fmt.Fprintln(out, prefix(l.Rank, run.WorldSize)+show(l.Text))
		return err
	}
	if !follow {
		_, err := db.Logs(id, filter, printLine)
		return err
	}
	return db.Follow(cmd.Context(), id, filter, func(l history.LogLine) error {
		if err := printLine(l); err != nil {
			return err
		}
		return out.Flush() // the reader waits for this line
	})
}

func prefix(rank, worldSize int) string {
	switch {
	case rank < 0:
		return "[drun] "
	case worldSize > 1:
		return fmt.Sprintf("[%d] ", rank)
	}
	return ""
}
