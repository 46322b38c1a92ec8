package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/elapsed"
	"drun/internal/terminal"
)

// painter colours words if the output is a terminal and NO_COLOR is unset.
type painter bool

func painterFor(out io.Writer) painter {
	return painter(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal.Is(out))
}

// painted is text that a table prints without escaping.
type painted string

// colour gives a text a colour, by its number in ANSI's escape sequences; 0: none.
func (p painter) colour(number int, text string) string {
	if !p || number == 0 {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", number, text)
}

func (p painter) status(s history.Status) painted {
	colour := map[history.Status]int{history.Running: 36, history.Done: 32, history.Failed: 31,
		history.Interrupted: 33, history.StoppedEarly: 33, history.Preempted: 33, history.Cancelled: 33, history.Pending: 34, history.Lost: 35}[s]
	return painted(p.colour(colour, terminal.Escape(string(s))))
}

func duration(seconds *float64) string { return known(seconds, elapsed.Text) }

// number shows a metric to six digits; exact values are for --json and --csv.
func number(f records.Float) string {
	if v := float64(f); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return fmt.Sprintf("%.6g", v)
	}
	return f.String()
}

func localTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// row writes one line of a tabwriter: strings and lists of them, which are escaped because they may come from
// anywhere, and painted text.
func row(w io.Writer, cells ...any) {
	var texts []string
	for _, c := range cells {
		switch c := c.(type) {
		case painted:
			texts = append(texts, string(c))
		case []string:
			for _, text := range c {
				texts = append(texts, terminal.Escape(text))
			}
		default:
			texts = append(texts, terminal.Escape(c.(string)))
		}
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// column is a column of a table: its heading, and the cell of each row.
type column[T any] struct {
	heading any
	cell    func(T) any
}

// printList prints a list as a table, with nothing for an empty list.
func printList[T any](out io.Writer, list []T, columns []column[T]) error {
	if len(list) == 0 {
		return nil
	}
	w := terminal.NewTable(out)
	cells := make([]any, len(columns))
	for i, c := range columns {
		cells[i] = c.heading
	}
	row(w, cells...)
	for _, v := range list {
		for i, c := range columns {
			cells[i] = c.cell(v)
		}
		row(w, cells...)
	}
	return w.Flush()
}

// known shows a value that may be missing.
func known[T any](v *T, show func(T) string) string {
	if v == nil {
		return "-"
	}
	return show(*v)
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// tenths shows seconds in a table that compares them.
func tenths(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 1, 64) }
