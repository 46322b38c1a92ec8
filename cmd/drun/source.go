package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

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
				text, err := report.SourceDiff(db, ids[0], ids[1])
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), map[string]string{"diff": text})
				}
				if text == "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "the files are the same")
				}
				_, err = io.WriteString(cmd.OutOrStdout(), paintDiff(cmd.OutOrStdout(), text))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&diff, "diff", "", "print how the files of this `RUN` differ from those of the first")
	return cmd
}

func printSources(cmd *cobra.Command, db *history.DB, id int64, names []string) (err error) {
	defer try.Caught(&err)
	all := try.To(db.Sources(id))
	var known []string
	for _, s := range all {
		known = append(known, s.Path)
	}
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
