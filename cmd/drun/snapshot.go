package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"drun/history/records"
	"drun/internal/terminal"
)

// printSnapshot shows what every rank was doing at a moment of an attempt, and each rank's latest calls.
func printSnapshot(out io.Writer, s records.Snapshot, attempt string) {
	fmt.Fprintf(out, "\nRANKS AT %s (%s%s)\n", localTime(s.Time), terminal.Escape(s.Reason), attempt)
	w := terminal.NewTable(out)
	row(w, "RANK", "STATE", "CALL", "NUMBER", "GROUP", "POSITION", "SINCE")
	calls := 0
	for _, k := range s.Ranks {
		row(w, strconv.Itoa(k.Rank), k.State, dash(k.Call), ordinal(k.Number), ordinal(uint64(k.Group)), dash(k.Position), seconds(k.Seconds))
		calls += len(k.Recent)
	}
	w.Flush()
	if calls == 0 {
		return
	}
	fmt.Fprintln(out)
	row(w, "RANK", "LATEST CALLS", "NUMBER", "GROUP", "POSITION", "STARTED", "TOOK")
	for _, k := range s.Ranks {
		for _, c := range k.Recent {
			took := "not ended"
			switch {
			case c.Seconds != nil:
				took = seconds(*c.Seconds)
			case c.Async:
				took = "not waited for"
			}
			row(w, strconv.Itoa(k.Rank), c.Call, ordinal(c.Number), ordinal(uint64(c.Group)), dash(c.Position), seconds(c.Ago)+" before", took)
		}
	}
	w.Flush()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// ordinal shows a number that counts from 1; 0 means none.
func ordinal(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// seconds shows a short time.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
