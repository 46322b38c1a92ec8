package main

import (
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
	"drun/internal/try"
)

func newSQL() *cobra.Command {
	return &cobra.Command{
		Use:   "sql QUERY",
		Short: "Query the history with SQL, read-only",
		Long: `Query the history with SQL. Nothing can be written. The tables are described in
docs/history.md; with --json the result is a list of objects, one per row, with
NaN and infinities as the strings "NaN", "Infinity" and "-Infinity".`,
		Example: `  drun sql "select name, last from metric_summaries where run = 7"
  drun sql "select r.name, p.value from runs r join params p on p.run = r.id where p.name = 'lr'"`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer try.Caught(&err)
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
		cells := make([]string, len(values))
		for i, v := range values {
			cells[i] = text(v)
		}
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
