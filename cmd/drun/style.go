package main

import (
	"fmt"
	"io"
	"math"
	"os"
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

func (p painter) status(s history.Status) painted {
	if !p {
		return painted(terminal.Escape(string(s)))
	}
	colour := map[history.Status]int{history.Running: 36, history.Done: 32, history.Failed: 31,
		history.Killed: 31, history.Interrupted: 33, history.Lost: 35}[s]
	return painted(fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, terminal.Escape(string(s))))
}

// pad adds as many invisible bytes to a heading as the coloured words beneath it have, so that a tabwriter aligns
// them.
func (p painter) pad(heading string) painted {
	if !p {
		return painted(heading)
	}
	return painted("\x1b[39m" + heading + "\x1b[0m")
}

// duration shows seconds that may be unknown.
func duration(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return elapsed.Text(*seconds)
}

// number shows a metric to six digits; exact values are for --json and --csv.
func number(f records.Float) string {
	if v := float64(f); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return fmt.Sprintf("%.6g", v)
	}
	return f.String()
}

func localTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// row writes one line of a tabwriter: strings, which are escaped because they may come from anywhere, and painted
// text.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if p, ok := c.(painted); ok {
			texts[i] = string(p)
		} else {
			texts[i] = terminal.Escape(c.(string))
		}
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// anyOf turns strings into cells.
func anyOf(texts []string) []any {
	cells := make([]any, len(texts))
	for i, t := range texts {
		cells[i] = t
	}
	return cells
}
