package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/elapsed"
	"drun/internal/terminal"
	"drun/internal/try"
)

func newShow() *cobra.Command {
	return &cobra.Command{
		Use:        "show RUN|FILE",
		SuggestFor: []string{"status", "info", "describe"},
		Short:      "Show one run in full",
		Long:       "Show one run in full: parameters, metrics, attempts, sources, data files and checkpoints.\nRUN is an id, a name, or last; FILE is one of drun pack.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if close := try.To(packed(cmd, args[0])); close != nil {
				defer close()
				args[0] = "last"
			}
			return withRun(cmd, args[0], func(db *history.DB, id int64) error {
				d := try.To(db.Get(id))
				return show(cmd, d, func(out io.Writer, d *history.Detail) error { return printDetail(cmd, out, d) })
			})
		},
	}
}

// commandLine shows a command as a shell takes it.
func commandLine(command []string) string { return strings.Join(each.Of(command, terminal.Word), " ") }

func printDetail(cmd *cobra.Command, out io.Writer, d *history.Detail) error {
	w := terminal.NewTable(out)
	fmt.Fprintf(w, "run %d %s: %s\n", d.ID, terminal.Escape(d.Name), painterFor(out).status(d.Status))
	field := func(name, value string) { row(w, "  "+name, value) }
	if d.Error != "" {
		row(w, "  error", painted(strings.ReplaceAll(terminal.Lines(d.Error), "\n", "\n\t")))
	}
	if d.Status != history.Done && d.Status.Ended() && len(d.Checkpoints) > 0 {
		o := run.Options{Recipe: d.Recipe, Nproc: d.WorldSize, DataDirs: d.DataDirs, Communication: run.Communication{Backend: d.Backend}}
		o.Command = d.Command
		if slices.ContainsFunc(d.Command, func(word string) bool { return strings.HasPrefix(word, "--deterministic") }) {
			o.Deterministic = d.Deterministic
		}
		field("to go on", howToContinue(cmd, &o, d.Name, severalNodes(d)))
	}
	field("recipe", d.Recipe)
	field("command", commandLine(d.Command))
	if s := d.Sweep; s != nil {
		field("sweep", fmt.Sprintf("%s, %s; to go on: %s", terminal.Escape(s.Name), english.Plural(s.Cells, "cell", ""), commandLine(s.Command)))
	}
	if p := d.Parent; p != nil {
		field("resumed", fmt.Sprintf("run %d %s at step %d", p.ID, p.Name, p.Step))
	} else if d.Orphaned != nil {
		field("resumed", fmt.Sprintf("a run that has been removed, at step %d", *d.Orphaned))
	}
	ranks := fmt.Sprintf("%d, backend %s, %s each", d.WorldSize, english.WordSeries(d.Backends(), "and"), english.Plural(d.Threads, "thread", ""))
	if d.OwnOrder() {
		ranks += ", added in its own order"
	}
	if len(d.Ranks) > 0 && !severalNodes(d) {
		ranks += ", kernels " + d.Ranks[0].Kernels
	}
	field("ranks", ranks)
	field("seed", whole(d.Seed))
	field("started", fmt.Sprintf("%s (%s)", localTime(d.Started), humanize.Time(d.Started)))
	field("took", duration(d.Seconds))
	if p := d.Progress; p != nil {
		field("progress", progressText(p))
	}
	if d.ExitCode != nil {
		field("exit code", strconv.Itoa(*d.ExitCode))
	}
	field("on", fmt.Sprintf("%s (pid %d) in %s, drun %s", d.Host, d.PID, d.Dir, d.Version))
	if g := d.Git; g != nil {
		commit := g.Commit
		if g.Dirty {
			commit += ", with changes"
		}
		field("git commit", commit)
	}
	if d.Key != "" {
		field("key", d.Key)
	}
	if len(d.Tags) > 0 {
		field("tags", strings.Join(d.Tags, ", "))
	}
	for _, n := range d.Notes {
		field("note", localTime(n.Time)+" "+terminal.Escape(n.Text))
	}
	try.Ok(w.Flush())
	return printTables(out, d)
}

// progressText says how far a loop has got.
func progressText(p *records.Progress) string {
	text := whole(p.Current)
	if p.Total >= 0 {
		text += fmt.Sprintf(" of %d", p.Total)
	}
	if rate := p.Rate(); rate > 0 {
		text += fmt.Sprintf(", %.4g a second", rate)
	}
	if left, known := p.Left(); known {
		text += ", " + elapsed.Text(left) + " left"
	}
	if p.Label != "" {
		text = terminal.Escape(p.Label) + ": " + text
	}
	return text
}

func printTables(out io.Writer, d *history.Detail) error {
	w := terminal.NewTable(out)
	heading := func(n int, cells ...string) {
		if n > 0 {
			w.Flush() // each table has its own column widths
			fmt.Fprintln(out)
			row(w, cells)
		}
	}
	heading(len(d.Params), "PARAMETER", "VALUE")
	for _, name := range slices.Sorted(maps.Keys(d.Params)) {
		row(w, name, d.Params.Text(name))
	}
	heading(len(d.Metrics), "METRIC", "LAST", "MIN", "MAX", "FIRST", "POINTS")
	for _, name := range slices.Sorted(maps.Keys(d.Metrics)) {
		m := d.Metrics[name]
		row(w, name, number(m.Last), number(m.Min), number(m.Max), number(m.First), whole(m.Count))
	}
	heading(len(d.Attempts), "ATTEMPT", "STATUS", "FROM STEP", "STARTED", "TOOK", "ERROR")
	for _, a := range d.Attempts {
		row(w, strconv.Itoa(a.Attempt), string(a.Status), known(a.FromStep, whole), localTime(a.Started), duration(a.Seconds), firstLine(a.Error))
	}
	heading(len(d.Checkpoints), "CHECKPOINT", "BYTES", "SCORE", "SAVED")
	for _, c := range d.Checkpoints {
		row(w, whole(c.Step), humanize.IBytes(uint64(c.Bytes)), known(c.Score, number), localTime(c.Time))
	}
	heading(len(d.Plugins), "PLUGIN", "VERSION", "SHA-256", "PATH")
	for _, p := range d.Plugins {
		row(w, p.Name, p.Version, p.SHA256, p.Path)
	}
	if severalNodes(d) {
		heading(len(d.Ranks), "RANK", "NODE", "HOST", "LOCAL RANK", "THREADS", "KERNELS")
		for _, r := range d.Ranks {
			row(w, strconv.Itoa(r.Rank), strconv.Itoa(r.Node), r.Host, strconv.Itoa(r.LocalRank), strconv.Itoa(r.Threads), r.Kernels)
		}
		measured := slices.DeleteFunc(slices.Clone(d.Usage), func(u history.RankUsage) bool { return u.MachineMemory == 0 || u.Rank >= len(d.Ranks) })
		heading(len(measured), "NODE", "ALL PROCESSES' CPU", "MOST MEMORY", "SENT", "RECEIVED")
		for _, u := range measured {
			row(w, strconv.Itoa(d.Ranks[u.Rank].Node), elapsed.Text(u.MachineCPU), humanize.IBytes(uint64(u.MachineMemory)), humanize.IBytes(uint64(u.MachineSent)), humanize.IBytes(uint64(u.MachineReceived)))
		}
	}
	heading(len(d.Usage), "RANK", "CPU", "PEAK MEMORY", "IN COLLECTIVES", "OF IT WAITING")
	for _, u := range d.Usage {
		row(w, strconv.Itoa(u.Rank), elapsed.Text(u.CPU), humanize.IBytes(uint64(u.Peak)), elapsed.Text(u.Collectives), elapsed.Text(u.Waiting))
	}
	copied := slices.DeleteFunc(slices.Clone(d.Copies), func(c records.Copies) bool { return c.Rank > 0 || c.Attempt != d.Copies[len(d.Copies)-1].Attempt })
	heading(len(copied), "RANK 0 COPIED AT", "IN", "TO THE DEVICE", "BYTES", "BACK", "BYTES")
	for _, c := range copied {
		row(w, c.Position, c.Call, strconv.Itoa(c.Uploads), humanize.IBytes(uint64(c.UploadedBytes)), strconv.Itoa(c.Downloads), humanize.IBytes(uint64(c.DownloadedBytes)))
	}
	if w.Flush(); len(d.Snapshots) > 0 {
		shown := d.Snapshots
		if len(d.Attempts) > 1 { // each failed attempt has left one
			shown = shown[len(shown)-1:]
		}
		for _, snapshot := range shown {
			printSnapshot(out, snapshot, attemptAt(d, snapshot.Time))
		}
		if n := len(d.Snapshots) - len(shown); n > 0 {
			fmt.Fprintf(out, "\nwith --json: %s of earlier attempts\n", english.Plural(n, "snapshot", ""))
		}
	}
	heading(len(d.Sources), "SOURCE", "SHA-256", "ROLE")
	for _, s := range d.Sources {
		row(w, s.Path, s.SHA256, s.Role)
	}
	heading(len(d.DataFiles), "DATA FILE", "SHA-256", "BYTES", "MODIFIED", "READ AT")
	shown, rest := d.DataFiles, d.DataFiles[:0]
	if len(shown) > manyFiles { // such as a folder of pictures
		shown, rest = shown[:manyFiles/2], shown[manyFiles/2:]
	}
	for _, f := range shown {
		at := f.Position
		if f.Node != nil && severalNodes(d) {
			at += fmt.Sprintf(", node %d", *f.Node)
		}
		row(w, f.Path, f.SHA256, whole(f.Bytes), known(f.Modified, localTime), at)
	}
	if err := w.Flush(); err != nil || len(rest) == 0 {
		return err
	}
	bytes := uint64(0)
	for _, f := range rest {
		bytes += uint64(f.Bytes)
	}
	_, err := fmt.Fprintf(out, "\nwith --json: %s more, of %s\n", english.Plural(len(rest), "data file", ""), humanize.IBytes(bytes))
	return err
}

// manyFiles is up to how many data files are listed; of more, half as many are.
const manyFiles = 20

// severalNodes reports whether a run's ranks were on more than one machine.
func severalNodes(d *history.Detail) bool {
	return slices.ContainsFunc(d.Ranks, func(r records.RankPlace) bool { return r.Node != d.Ranks[0].Node })
}

// firstLine returns the part of a text that a table row shows.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return terminal.Escape(line)
}

// attemptAt names the attempt of a run that was running at a time; "" if there is only one.
func attemptAt(d *history.Detail, at time.Time) (name string) {
	for _, a := range d.Attempts {
		if len(d.Attempts) > 1 && !a.Started.After(at) {
			name = fmt.Sprintf(", attempt %d", a.Attempt)
		}
	}
	return name
}

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
