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
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/exchange"
	"drun/runs/ui"
)

func newExportRuns() *cobra.Command {
	var to, file string
	var c conditions
	formats := append(slices.Clone(exchange.Formats), exchange.Format{Name: "html"})
	names := append(each.Of(formats, func(f exchange.Format) string { return f.Name }), "tensorboard", "mlflow")
	cmd := &cobra.Command{
		Use:   "export [RUN…]",
		Short: "Write runs for other tools: CSV, JSON, Parquet, HTML, TensorBoard, MLflow",
		Long: `Writes all points of runs for other tools: of the runs that are named, or of those that --where and --tag choose as in
drun runs. csv and parquet have one row per point, with the columns run, run_name, metric, step, rank, value and time; json is a list of the runs as drun show --json prints them, each with its points.
CSV and JSON write NaN, Infinity and -Infinity (as strings in JSON); Parquet stores them as numbers.

html is a report: one page with the charts of the runs and what differs between them, or all about the run if it is one. A
browser shows it from the file alone, so it can be sent. Checkpoints are only listed.

tensorboard makes a new folder (--output) with a folder for each run; TensorBoard keeps 32 bits of a value. mlflow
adds the runs to the SQLite store that --output names, which MLflow must have made, in its experiment drun.`,
		Example: `  drun export 3 7 --to csv > runs.csv
  drun export last --to parquet --output last.parquet
  drun export --where 'params.lr < 0.1' --to json > runs.json
  drun export 3 7 --to html --output report.html
  drun export 3 7 --to tensorboard --output events && tensorboard --logdir events
  mlflow db upgrade sqlite:///mlflow.db && drun export 3 7 --to mlflow --output mlflow.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "tensorboard" || to == "mlflow" {
				return exportTo(cmd, &c, args, to, file)
			}
			i := slices.IndexFunc(formats, func(f exchange.Format) bool { return f.Name == to })
			if i < 0 {
				return usage("--to "+strings.Join(names, ", --to "), "--to %q: there is no such form", to)
			}
			form := formats[i]
			if to == "html" {
				form.Write = func(w io.Writer, _ *history.DB, ids []int64) error { return writeReport(w, homeOf(cmd), ids) }
			}
			if file != "" {
				if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
					return usage("give the name of a new file", "%s already exists", file)
				}
			} else if form.Binary && terminal.Is(cmd.OutOrStdout()) {
				return usage("for example --output runs."+form.Name, "%s is not for a terminal: name a file with --output", form.Name)
			}
			return withChosen(cmd, &c, args, func(db *history.DB, ids []int64) error {
				write := func(w io.Writer) error { return form.Write(w, db, unique(ids)) }
				out := cmd.OutOrStdout()
				if file == "" && terminal.Is(out) {
					var text strings.Builder
					try.Ok(write(&text))
					_, err := io.WriteString(out, terminal.Lines(text.String()))
					return err
				}
				if file == "" {
					return write(out)
				}
				size, err := create(file, 0o600, write)
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
	c.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&to, "to", "csv", "form: "+strings.Join(names, ", "))
	cmd.Flags().StringVarP(&file, "output", "o", "", "write a new `file` or folder instead of printing; for mlflow, the store")
	return cmd
}

// writeReport writes runs as one page.
func writeReport(w io.Writer, home string, ids []int64) error {
	pages := ui.New(home)
	err := pages.Report(w, each.Of(ids, whole))
	return errors.Join(err, pages.Close())
}

// exportTo writes runs where another tool finds them.
func exportTo(cmd *cobra.Command, c *conditions, args []string, to, path string) error {
	if path == "" {
		return usage("name it with --output", "--to %s writes to a place of its own", to)
	}
	return withChosen(cmd, c, args, func(db *history.DB, ids []int64) error {
		write := exchange.WriteMLflow
		if to == "tensorboard" {
			write = exchange.WriteTensorBoard
		}
		err := write(path, db, unique(ids))
		if errors.Is(err, fs.ErrExist) {
			return usage("give the name of a new folder", "%s already exists", path)
		}
		if errors.As(err, new(*fs.PathError)) {
			return exit.WithCode(err, exit.Storage)
		}
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", terminal.Escape(path), english.Plural(len(unique(ids)), "run", ""))
		}
		return err
	})
}

func newImportRuns() *cobra.Command {
	var tags []string
	cmd := &cobra.Command{
		Use:   "import FILE…",
		Short: "Import runs of other tools: MLflow, TensorBoard, CSV",
		Long: `Imports runs of other tools into the history, from an MLflow SQLite store, from TensorBoard's event files (a folder
stands for all files beneath it), and from CSV. It recognises a file by its content. CSV has a header row, and either a row
for each point, with the columns metric and value, or a column for each metric; both forms may have the columns step, rank,
time, run and run_name. A run that has been imported before is skipped.`,
		Example: `  drun import mlflow.db
  drun import runs/ --tag tensorboard
  drun import curves.csv && drun plot last loss`,
		RunE: func(cmd *cobra.Command, args []string) error {
			checkTags(tags)
			var all []history.Foreign
			errs := cmd.ErrOrStderr()
			for _, path := range args { // all are read before any is entered
				runs, notes := try.To2(exchange.Read(path))
				for _, note := range notes {
					fmt.Fprintln(errs, terminal.Escape(note))
				}
				all = append(all, runs...)
			}
			return enter(cmd, all, tags)
		},
	}
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "`tag` of the runs (repeatable)")
	return cmd
}

func enter(cmd *cobra.Command, all []history.Foreign, tags []string) error {
	db := try.To(history.Open(homeOf(cmd)))
	defer db.Close()
	ids, there := []int64{}, 0
	for i := range all {
		all[i].Tags = append(all[i].Tags, tags...)
		id := try.To(db.Enter(&all[i], os.Args))
		if id == 0 {
			there++
			continue
		}
		ids = append(ids, id)
	}
	if there > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %s had been imported before\n", there, english.Plural(len(all), "run", ""))
	}
	list := try.To(db.Summaries(ids))
	return show(cmd, list, printRuns)
}
