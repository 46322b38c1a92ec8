package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

func newCheckpoints() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoints RUN",
		Short: "List, verify, export, import and remove checkpoints",
		Long: `Lists the checkpoints of a run in the order of saving, and marks the one with the best score.
RUN is an id, a name, or last; STEP a step's number, last or best.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCheckpoints(cmd, args[:1], true, func(_ *history.DB, _ *checkpoints.Store, list []report.Kept) error {
				return printCheckpoints(cmd, list)
			})
		},
	}
	cmd.AddCommand(newVerify(), newExport(), newImport(), newRemoveCheckpoints())
	return cmd
}

func newVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify RUN[@STEP]",
		Short: "Read checkpoints back and compare the SHA-256 of every chunk",
		Long: `Reads every chunk of the checkpoints back, of one step or of all, and compares its SHA-256.
Names the chunks that are damaged and the tensors that they belong to; the exit code is then 7.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCheckpoints(cmd, args, true, func(_ *history.DB, store *checkpoints.Store, list []report.Kept) error {
				return verifyStored(cmd, store, list)
			})
		},
	}
}

func newRemoveCheckpoints() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:        "rm RUN@STEP…",
		SuggestFor: []string{"delete", "remove"},
		Short:      "Remove checkpoints of runs that have ended",
		Long: `Removes checkpoints of runs that have ended; drun gc then frees what is left of their bytes.
A checkpoint stays if a run that goes on was resumed from it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if named := strings.Contains(arg, "@"); named == all {
					return usage("drun checkpoints rm RUN@STEP removes one checkpoint, rm --all RUN all of the run", "rm %s: say which checkpoints", arg)
				}
			}
			return withCheckpoints(cmd, args, false, func(db *history.DB, store *checkpoints.Store, list []report.Kept) error {
				return removeCheckpoints(cmd, db, store, list)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all checkpoints of each RUN")
	return cmd
}

// withCheckpoints finds the checkpoints that RUN or RUN@STEP names.
func withCheckpoints(cmd *cobra.Command, refs []string, readOnly bool, fn func(*history.DB, *checkpoints.Store, []report.Kept) error) (err error) {
	defer try.Caught(&err)
	open, openStore := history.OpenReadOnly, checkpoints.OpenIfAny
	db, err := open(homeOf(cmd))
	if err == nil && !readOnly { // there is a history to write to
		db.Close()
		open, openStore = history.Open, checkpoints.Open
		db, err = open(homeOf(cmd))
	}
	try.Ok(err)
	defer db.Close()
	store := try.To(openStore(homeOf(cmd)))
	defer store.Close()
	list := []report.Kept{}
	for _, ref := range refs {
		found := try.To(report.Checkpoints(db, store, ref))
		for _, k := range found {
			if !slices.ContainsFunc(list, func(l report.Kept) bool { return l.Run.ID == k.Run.ID && l.Step == k.Step }) {
				list = append(list, k)
			}
		}
	}
	return fn(db, store, list)
}

func printCheckpoints(cmd *cobra.Command, list []report.Kept) error {
	tellMissing(cmd, list)
	if len(list) == 0 && !wantsJSON(cmd) {
		fmt.Fprintln(cmd.ErrOrStderr(), "the run has no checkpoints")
	}
	return show(cmd, list, func(out io.Writer, list []report.Kept) error {
		return printList(out, list, []column[report.Kept]{
			{"STEP", func(k report.Kept) any { return whole(k.Step) }},
			{"SIZE", func(k report.Kept) any { return humanize.IBytes(uint64(k.Bytes)) }},
			{"SCORE", func(k report.Kept) any { return known(k.Score, number) }},
			{"SAVED", func(k report.Kept) any { return localTime(k.Time) }},
			{"", func(k report.Kept) any { return map[bool]string{k.Best: "best", k.Missing: "MISSING"}[true] }},
		})
	})
}

// tellMissing reports the checkpoints that only the history has, and what to do.
func tellMissing(cmd *cobra.Command, list []report.Kept) {
	for _, k := range list {
		if k.Missing {
			err := record.MissingError(homeOf(cmd), k.Run.Name, k.Step)
			fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s\n  hint: %s\n", terminal.Lines(err.Error()), terminal.Lines(exit.HintOf(err)))
			return // one line says what happened; the list has them all
		}
	}
}

// mostFaults limits how many damaged tensors of a checkpoint are named.
const mostFaults = 20

func verifyStored(cmd *cobra.Command, store *checkpoints.Store, list []report.Kept) error {
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	details := out
	if wantsJSON(cmd) {
		details = errs
	}
	if store != nil {
		try.Ok(store.CheckCatalog())
	}
	bad, read, hint := 0, []report.Kept{}, ""
	for _, k := range list {
		good, verdict := true, "whole, "+humanize.IBytes(uint64(k.Bytes))
		var faults []checkpoints.Fault
		if k.Missing {
			good, verdict = false, "MISSING in "+filepath.Join(homeOf(cmd), "checkpoints.db")
			hint = "put the right checkpoints.db back, or let drun gc take what is missing out of the history"
		} else {
			var err error
			_, faults, err = store.Verify(k.Info.Run, k.Info.Ref())
			if errors.As(err, new(*checkpoints.ErrNone)) {
				continue // a running run has removed it
			}
			if err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
			if len(faults) > 0 {
				good, verdict = false, "DAMAGED, "+english.Plural(len(faults), "chunk", "")
				hint = fmt.Sprintf("resume from one that is whole; drun checkpoints rm %s removes this one", k)
			}
		}
		if k.Verified = &good; !good {
			bad++
		}
		read = append(read, k)
		if !wantsJSON(cmd) {
			fmt.Fprintf(out, "%s: %s\n", terminal.Escape(k.String()), verdict)
		}
		printFaults(details, faults)
	}
	if wantsJSON(cmd) {
		try.Ok(printJSON(out, read))
	}
	if len(list) == 0 {
		fmt.Fprintln(errs, "the run has no checkpoints")
	}
	if bad > 0 {
		are := "are"
		if bad == 1 {
			are = "is"
		}
		return exit.WithHint(exit.Errorf(exit.Storage, "%d of %s %s damaged or missing", bad, english.Plural(len(read), "checkpoint", ""), are), hint)
	}
	return nil
}

// printFaults names the tensors that damaged chunks belong to, each once.
func printFaults(out io.Writer, faults []checkpoints.Fault) {
	lines := 0
	for len(faults) > 0 {
		first := faults[0]
		same := func(f checkpoints.Fault) bool { return f.Rank == first.Rank && f.Entry == first.Entry }
		n := len(faults)
		faults = slices.DeleteFunc(faults, same)
		if n -= len(faults); lines == mostFaults {
			fmt.Fprintf(out, "  and more, of %s\n", english.Plural(n+len(faults), "chunk", ""))
			return
		}
		lines++
		text := first.Err.Error()
		if n > 1 {
			text += fmt.Sprintf(", and %s more of it", english.Plural(n-1, "chunk", ""))
		}
		fmt.Fprintf(out, "  %s\n", terminal.Lines(text))
	}
}

func removeCheckpoints(cmd *cobra.Command, db *history.DB, store *checkpoints.Store, list []report.Kept) error {
	gone := map[int64][]int64{}
	var infos []checkpoints.Info
	for _, k := range list {
		if k.Run.Status == history.Running {
			return usage("wait for its end, or stop it; drun run --keep N keeps the newest N only", "%s: run %d %s goes on", k, k.Run.ID, k.Run.Name)
		}
		if !k.Missing {
			infos = append(infos, k.Info)
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "there are no checkpoints to remove")
		return nil
	}
	var held []checkpoints.Info
	if len(infos) > 0 {
		held = try.To(store.Delete(infos...))
	}
	var problem error
	removed := []report.Kept{}
	for _, k := range list {
		if !k.Missing && slices.ContainsFunc(held, k.Info.Same) {
			problem = usage("wait for its end, or stop it", "%s stays: %s", k, holder(db, k))
			continue
		}
		gone[k.Run.ID] = append(gone[k.Run.ID], k.Step)
		removed = append(removed, k)
	}
	for id, steps := range gone {
		try.Ok(db.RemoveCheckpoints(id, steps))
	}
	if wantsJSON(cmd) {
		try.Ok(printJSON(cmd.OutOrStdout(), removed))
	} else {
		for _, k := range removed {
			fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", terminal.Escape(k.String()))
		}
	}
	return problem
}

func holder(db *history.DB, k report.Kept) string {
	list, err := db.List(0)
	if err == nil {
		for _, r := range list {
			if p := r.Parent; r.Status == history.Running && p != nil && p.ID == k.Run.ID && p.Step == k.Step {
				return fmt.Sprintf("run %d %s was resumed from it and goes on", r.ID, r.Name)
			}
		}
	}
	return "a run that goes on may still restore it"
}
