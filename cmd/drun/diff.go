package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/replay"
	"drun/runs/report"
)

func newDiff() *cobra.Command {
	var again againFlags
	var trace bool
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Why two runs differ: what went in, the first metric, the first operation",
		Long: `Prints which inputs of two runs differ (parameters, recipe, data, seed, ranks, backend, machine,
versions), and the first step and metric at which the runs differ. With --trace both are run again, in a temporary home, from
the nearest state that they had in common to that step, and the first operation of the recipe whose result
differs is named with its line and rank. A RUN is an id, a name, or last.`,
		Example: `  drun diff 3 7
  drun diff calm-otter last --trace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return again.with(cmd, args[0], func(o run.Options, db *history.DB, a int64) (err error) {
				defer try.Caught(&err)
				b := try.To(db.Find(args[1]))
				d, err := replay.Diff(o, db, homeOf(cmd), a, b, trace, again.params)
				if d == nil {
					return err
				}
				if wantsJSON(cmd) {
					return errors.Join(printJSON(cmd.OutOrStdout(), d), err)
				}
				untraced := err
				source := try.To(report.SourceDiff(db, a, b))
				try.Ok(printDifferences(cmd.OutOrStdout(), d, source, trace && untraced == nil))
				return untraced
			})
		},
	}
	cmd.Flags().BoolVar(&trace, "trace", false, "run both again, and name the first operation that differs")
	again.add(cmd.Flags())
	return cmd
}

func printDifferences(out io.Writer, d *replay.Differences, source string, traced bool) error {
	if len(d.Inputs) == 0 {
		fmt.Fprintln(out, "what went in is the same")
	}
	w := terminal.NewTable(out)
	if len(d.Inputs) > 0 {
		row(w, "WENT IN", "FIRST RUN", "SECOND RUN")
	}
	for _, in := range d.Inputs {
		row(w, in.What, inputText(in.What, in.A), inputText(in.What, in.B))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if source != "" {
		fmt.Fprintf(out, "\n%s\n", paintDiff(out, source))
	}
	if d.First == nil {
		fmt.Fprintln(out, "no metric differs")
	} else {
		fmt.Fprintf(out, "the first that differs is %s\n", difference(d.First, "first run", "second run"))
	}
	var err error
	switch op := d.Operation; {
	case !traced:
	case op == nil:
		_, err = fmt.Fprintln(out, "no operation has another result")
	default:
		side := func(line, op string) string {
			if op == "" {
				return "no further operation"
			}
			return op + " at " + line
		}
		text := side(op.Line, op.Op)
		if other := side(op.LineB, op.OpB); other != text {
			text += ", in the second run " + other
		}
		_, err = fmt.Fprintf(out, "the first operation with another result, on rank %d: %s\n", op.Rank, terminal.Escape(text))
	}
	return err
}

func inputText(what string, v any) string {
	kind := "data"
	if strings.HasPrefix(what, "params.") {
		kind = "parameter"
	}
	if f, is := v.(records.Float); is {
		v = f.String()
	}
	return terminal.Escape(comparedText(kind, v))
}
