package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"drun/history/records"
	"drun/internal/elapsed"
	"drun/internal/terminal"
)

// printSnapshot shows what every rank was doing at a moment of an attempt, and each rank's latest calls.
func printSnapshot(out io.Writer, s records.Snapshot, attempt string) {
	fmt.Fprintf(out, "\nRANKS AT %s (%s%s)\n", localTime(s.Time), terminal.Escape(s.Reason), attempt)
	w := terminal.NewTable(out)
	row(w, "RANK", "STATE", "CALL", "NUMBER", "GROUP", "POSITION", "SINCE")
	calls := 0
	for _, k := range s.Ranks {
		row(w, strconv.Itoa(k.Rank), k.State, cmp.Or(k.Call, "-"), ordinal(k.Number), ordinal(k.Group), cmp.Or(k.Position, "-"), elapsed.Text(k.Seconds))
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
				took = elapsed.Text(*c.Seconds)
			case c.Async:
				took = "not waited for"
			}
			row(w, strconv.Itoa(k.Rank), c.Call, ordinal(c.Number), ordinal(c.Group), cmp.Or(c.Position, "-"), elapsed.Text(c.Ago)+" before", took)
		}
	}
	w.Flush()
}

// ordinal shows a number that counts from 1; 0 means none.
func ordinal[N uint32 | uint64](n N) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
