package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/exchange"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
)

func newExportRuns() *cobra.Command {
	var to, file string
	var names []string
	for _, f := range exchange.Formats {
		names = append(names, f.Name)
	}
	cmd := &cobra.Command{
		Use:   "export RUN…",
		Short: "Write runs for other tools: CSV, JSON, Parquet",
		Long: `Writes all points of runs, for other tools. csv and parquet have one row a point, with the columns run, run_name,
metric, step, rank, value and time; json is a list of the runs as drun show --json prints them, each with its points.
CSV and JSON write NaN, Infinity and -Infinity, as texts in JSON; Parquet has them as numbers.`,
		Example: `  drun export 3 7 --to csv > runs.csv
  drun export last --to parquet --output last.parquet`,
		Args: arguments(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.IndexFunc(exchange.Formats, func(f exchange.Format) bool { return f.Name == to })
			if i < 0 {
				return usage("--to "+strings.Join(names, ", --to "), "--to %q: there is no such form", to)
			}
			form := exchange.Formats[i]
			if file != "" {
				if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
					return usage("give the name of a new file", "%s already exists", file)
				}
			} else if form.Binary && terminal.Is(cmd.OutOrStdout()) {
				return usage("for example --output runs."+form.Name, "%s is not for a terminal: name a file with --output", form.Name)
			}
			return withRuns(cmd, args, func(db *history.DB, ids []int64) error {
				write := func(w io.Writer) error { return form.Write(w, db, unique(ids)) }
				out := cmd.OutOrStdout()
				if file == "" && terminal.Is(out) {
					var text strings.Builder
					if err := write(&text); err != nil {
						return err
					}
					_, err := io.WriteString(out, terminal.Lines(text.String()))
					return err
				}
				if file == "" {
					return write(out)
				}
				size, err := create(file, write)
				if errors.As(err, new(*fs.PathError)) {
					return exit.Errorf(exit.Storage, "%s could not be written: %w", file, err)
				}
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", terminal.Escape(file), humanize.IBytes(uint64(size)))
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "csv", "form: "+strings.Join(names, ", "))
	cmd.Flags().StringVarP(&file, "output", "o", "", "write a new `file` instead of printing")
	return cmd
}
