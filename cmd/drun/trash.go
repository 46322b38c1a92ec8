package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/serve/mlflow"
	"drun/runs/serve/objects"
)

func newRm() *cobra.Command {
	var c conditions
	cmd := &cobra.Command{
		Use:        "rm [RUN…]",
		SuggestFor: []string{"delete", "remove"},
		Short:      "Move runs to the trash, or out of it",
		Long: `Moves runs to the trash: those that are named, or those that --where and --tag choose as in drun runs. No command shows
them any more, except drun runs --trash and drun sql. They keep their checkpoints and names until drun gc, which deletes
them for good. --undo takes runs out of the trash. A run in progress is refused. Runs that were resumed from a removed
run are named.`,
		Example: `  drun rm 7 calm-otter
  drun runs --trash
  drun rm --undo calm-otter
  drun rm --where 'status == "failed"' && drun gc`,
		RunE: func(cmd *cobra.Command, args []string) error {
			act := (*history.DB).Trash
			if c.trash {
				act = (*history.DB).Restore
			}
			return change(cmd, &c, args, func(db *history.DB, ids []int64) error {
				ids = unique(ids)
				try.Ok(act(db, ids))
				names := make([]history.RunName, len(ids))
				for _, r := range try.To(db.Select(history.Selection{IDs: ids})) {
					names[slices.Index(ids, r.ID)] = history.RunName{ID: r.ID, Name: r.Name}
				}
				if !c.trash {
					for _, c := range try.To(db.ResumedFrom(ids)) {
						fmt.Fprintf(cmd.ErrOrStderr(), "run %d %s was resumed from run %d at step %d: once drun gc has removed that, drun replay cannot repeat it\n",
							c.ID, terminal.Escape(c.Name), c.Parent.ID, c.Parent.Step)
					}
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), names)
				}
				for _, r := range names {
					what := fmt.Sprintf("is in the trash; to take it out: drun rm --undo %d", r.ID)
					if c.trash {
						what = "is out of the trash"
					}
					fmt.Fprintf(cmd.OutOrStdout(), "run %d %s %s\n", r.ID, terminal.Escape(r.Name), what)
				}
				return nil
			})
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&c.trash, "undo", false, "take the runs out of the trash")
	return cmd
}

func unique(ids []int64) (list []int64) {
	for _, id := range ids {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// change finds runs as withChosen does, and opens the history for writing. It does not create a history.
func change(cmd *cobra.Command, c *conditions, refs []string, fn func(*history.DB, []int64) error) (err error) {
	defer try.Caught(&err)
	reader := try.To(history.OpenReadOnly(homeOf(cmd)))
	defer reader.Close()
	ids := try.To(c.find(cmd, reader, refs))
	db := try.To(history.Open(homeOf(cmd)))
	defer db.Close()
	return fn(db, ids)
}

func newRename() *cobra.Command {
	return &cobra.Command{
		Use:     "rename RUN NAME",
		Short:   "Rename a run",
		Example: `  drun rename last first-that-works`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return change(cmd, &conditions{}, args[:1], func(db *history.DB, ids []int64) error {
				try.Ok(db.Rename(ids[0], args[1]))
				return answer(cmd, history.RunName{ID: ids[0], Name: args[1]}, "run %d %s", ids[0], args[1])
			})
		},
	}
}

func newTag() *cobra.Command {
	var remove []string
	cmd := &cobra.Command{
		Use:   "tag RUN [TAG…]",
		Short: "Tag a run, or remove tags",
		Example: `  drun tag last baseline
  drun tag 7 good --remove baseline
  drun runs --tag good`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+len(remove) < 2 {
				return usage("usage: "+cmd.UseLine(), "no label was given")
			}
			checkTags(args[1:])
			return change(cmd, &conditions{}, args[:1], func(db *history.DB, ids []int64) error {
				try.Ok(db.Label(ids[0], args[1:], remove))
				return printLabels(cmd, db, ids[0])
			})
		},
	}
	cmd.Flags().StringArrayVar(&remove, "remove", nil, "remove this `tag` (repeatable)")
	return cmd
}

// checkTags refuses labels that the history cannot keep.
func checkTags(tags []string) {
	for _, tag := range tags {
		try.Ok(history.CheckTag(tag))
	}
}

func printLabels(cmd *cobra.Command, db *history.DB, id int64) error {
	runs := try.To(db.Select(history.Selection{IDs: []int64{id}, Tags: true}))
	if len(runs) == 0 {
		return nil
	}
	r := runs[0]
	return answer(cmd, map[string]any{"id": r.ID, "name": r.Name, "tags": r.Tags}, "run %d %s: %s", r.ID, r.Name, strings.Join(r.Tags, ", "))
}

const maxNote = 1 << 20 // bytes, as for run.note

func newNote() *cobra.Command {
	return &cobra.Command{
		Use:     "note RUN TEXT",
		Short:   "Add a note to a run",
		Example: `  drun note last "the loss rises after epoch 3: try a smaller lr"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if text := args[1]; text == "" || len(text) > maxNote {
				return usage("", "a note has 1 to %d bytes, not %d", maxNote, len(text))
			}
			return change(cmd, &conditions{}, args[:1], func(db *history.DB, ids []int64) error {
				try.Ok(db.AddNote(ids[0], args[1]))
				if wantsJSON(cmd) {
					d := try.To(db.Get(ids[0]))
					return printJSON(cmd.OutOrStdout(), d.Notes)
				}
				return nil
			})
		},
	}
}

func newGC() *cobra.Command {
	return &cobra.Command{
		Use:        "gc",
		SuggestFor: []string{"clean", "prune"},
		Short:      "Delete the runs in the trash, and data that no checkpoint needs",
		Long: `Deletes the runs in the trash for good, with their checkpoints and the files that they wrote. Frees the data in packs
that no checkpoint needs, and says how many bytes it freed. Other runs may continue meanwhile; a checkpoint that one of
them may still restore stays, and its run stays in the trash. Packs in the quarantine stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home := homeOf(cmd)
			out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
			try.Ok(used(home))
			freed := try.To(collectGarbage(home, errs))
			if wantsJSON(cmd) {
				texts := each.Of(freed.Damaged, error.Error)
				try.Ok(printJSON(out, map[string]any{"freed": freed.Bytes, "removed": freed.Removed, "quarantined": freed.Quarantined,
					"quarantined_bytes": freed.QuarantinedBytes, "damaged": texts}))
			} else {
				for _, r := range freed.Removed {
					fmt.Fprintf(out, "removed run %d %s\n", r.ID, terminal.Escape(r.Name))
				}
				try.To(fmt.Fprintf(out, "freed %s (%d bytes)\n", humanize.IBytes(uint64(freed.Bytes)), freed.Bytes))
			}
			if freed.Quarantined > 0 {
				fmt.Fprintf(errs, "%s holds %s, %s, that the catalog does not list: delete them once every run can be resumed\n",
					terminal.Escape(filepath.Join(home, "checkpoints", "quarantine")), english.Plural(freed.Quarantined, "pack", ""), humanize.IBytes(uint64(freed.QuarantinedBytes)))
			}
			if len(freed.Damaged) > 0 {
				return exit.WithHint(exit.Errorf(exit.Storage, "damaged packs stay as they are (%d): %w", len(freed.Damaged), errors.Join(freed.Damaged...)),
					"drun checkpoints verify RUN says which checkpoints are damaged, drun checkpoints rm removes them")
			}
			return nil
		},
	}
}

// used returns an error unless drun has kept something in a home.
func used(home string) error {
	for _, name := range []string{"history.db", "checkpoints.db", "checkpoints"} {
		if _, err := os.Lstat(filepath.Join(home, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return usage("--home or $DRUN_HOME names another one", "nothing of drun's is in %s", home)
}

type garbage struct {
	checkpoints.Freed
	Removed []history.RunName // from the trash
}

// collectGarbage frees what it can, and removes from the history the checkpoints that are gone, which a kill may
// have left there.
func collectGarbage(home string, errs io.Writer) (g garbage, err error) {
	defer try.Caught(&err)
	g.Removed = []history.RunName{}
	store := try.To(openStore(home))
	defer store.Close()
	freed := try.To(g.emptyTrash(home, store, errs))
	if store != nil {
		g.Freed = try.To(store.Free())
		try.Ok(forgetCheckpoints(home, store, errs))
	}
	g.Bytes = max(g.Bytes, 0) + freed
	return g, nil
}

// openStore opens the checkpoints of a home; nil: there are none.
func openStore(home string) (*checkpoints.Store, error) {
	found, err := checkpoints.OpenIfAny(home) // creates nothing
	if found == nil || err != nil {
		return nil, err
	}
	found.Close()
	return checkpoints.Open(home)
}

// emptyTrash removes the runs in the trash, and returns how many bytes that freed besides the checkpoints' packs.
func (g *garbage) emptyTrash(home string, store *checkpoints.Store, errs io.Writer) (freed int64, err error) {
	defer try.Caught(&err)
	reader, err := history.OpenReadOnly(home) // creates nothing
	if errors.As(err, new(*history.ErrNone)) {
		return 0, nil
	}
	try.Ok(err)
	there, err := reader.Select(history.Selection{Trashed: true})
	reader.Close()
	if err != nil || len(there) == 0 {
		return 0, err
	}
	db := try.To(history.Open(home))
	defer db.Close()
	for _, r := range there {
		name := fmt.Sprintf("run %d %s", r.ID, terminal.Escape(r.Name))
		held := 0
		was := try.To(db.Purge(r.ID, func() (stays bool, err error) {
			list, err := store.List(r.UID)
			if err == nil && len(list) > 0 {
				var stay []checkpoints.Info
				stay, err = store.Delete(list...)
				held = len(stay)
			}
			return held > 0, err
		}))
		switch {
		case held > 0:
			fmt.Fprintf(errs, "%s stays in the trash: a run that goes on may still restore %d of its checkpoints\n", name, held)
			continue
		case !was:
			continue // restored from the trash, or removed by another process
		}
		g.Removed = append(g.Removed, history.RunName{ID: r.ID, Name: r.Name})
		outputs := filepath.Join(home, "outputs", whole(r.ID))
		bytes, _ := bytesIn(outputs)
		freed += bytes
		if err := os.RemoveAll(outputs); err != nil {
			return freed, exit.Errorf(exit.Storage, "%s could not be removed: %w", outputs, err)
		}
	}
	if len(g.Removed) == 0 {
		return 0, nil
	}
	try.Ok(mlflow.Sweep(context.Background(), db, objects.In(home)))
	return freed + try.To(db.Shrink()), nil
}

func forgetCheckpoints(home string, store *checkpoints.Store, errs io.Writer) (err error) {
	defer try.Caught(&err)
	db := try.To(history.Open(home))
	defer db.Close()
	for _, r := range try.To(db.Select(history.Selection{Checkpoints: true})) {
		if r.Status == history.Running {
			continue
		}
		gone := []int64{}
		for _, c := range r.Checkpoints {
			_, err := store.Find(r.UID, checkpoints.Step(c.Step))
			if errors.As(err, new(*checkpoints.ErrNone)) {
				gone = append(gone, c.Step)
				fmt.Fprintf(errs, "%s@%d was not in %s, and is now taken out of the history\n", terminal.Escape(r.Name), c.Step, filepath.Join(home, "checkpoints.db"))
			} else if err != nil {
				return err
			}
		}
		if len(gone) > 0 {
			try.Ok(db.RemoveCheckpoints(r.ID, gone))
		}
	}
	return nil
}
