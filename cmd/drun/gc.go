package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
)

func newGC() *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "Free the bytes of runs in the trash, and those that no checkpoint needs",
		Long: `Removes the runs in the trash for good, with their checkpoints and the files that they wrote. Frees what no checkpoint
needs in the packs that hold checkpoints, and says how many bytes it freed. Runs may go on meanwhile; a checkpoint
that one of them may still restore stays, and its run stays in the trash. Packs in the quarantine stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home := homeOf(cmd)
			out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := used(home); err != nil {
				return err
			}
			freed, err := collectGarbage(home, errs)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				texts := []string{}
				for _, err := range freed.Damaged {
					texts = append(texts, err.Error())
				}
				err = printJSON(out, map[string]any{"freed": freed.Bytes, "removed": freed.Removed, "quarantined": freed.Quarantined,
					"quarantined_bytes": freed.QuarantinedBytes, "damaged": texts})
			} else {
				for _, r := range freed.Removed {
					fmt.Fprintf(out, "removed run %d %s\n", r.ID, terminal.Escape(r.Name))
				}
				_, err = fmt.Fprintf(out, "freed %s (%d bytes)\n", humanize.IBytes(uint64(freed.Bytes)), freed.Bytes)
			}
			if err != nil {
				return err
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
	g.Removed = []history.RunName{}
	store, err := openStore(home)
	if err != nil {
		return g, err
	}
	defer store.Close()
	bytes, err := g.emptyTrash(home, store, errs)
	if err != nil || store == nil {
		g.Bytes = bytes
		return g, err
	}
	g.Freed, err = store.Free()
	g.Bytes = max(g.Bytes, 0) + bytes
	if err != nil {
		return g, err
	}
	return g, forgetCheckpoints(home, store, errs)
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
	reader, err := history.OpenReadOnly(home) // creates nothing
	if errors.As(err, new(*history.ErrNone)) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	there, err := reader.Select(history.Selection{Trashed: true})
	reader.Close()
	if err != nil || len(there) == 0 {
		return 0, err
	}
	db, err := history.Open(home)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	for _, r := range there {
		name := fmt.Sprintf("run %d %s", r.ID, terminal.Escape(r.Name))
		held := 0
		was, err := db.Purge(r.ID, func() (stays bool, err error) {
			list, err := store.List(r.UID)
			if err == nil && len(list) > 0 {
				var stay []checkpoints.Info
				stay, err = store.Delete(list...)
				held = len(stay)
			}
			return held > 0, err
		})
		switch {
		case err != nil:
			return freed, err
		case held > 0:
			fmt.Fprintf(errs, "%s stays in the trash: a run that goes on may still restore %d of its checkpoints\n", name, held)
			continue
		case !was:
			continue // restored from the trash, or removed by another process
		}
		g.Removed = append(g.Removed, history.RunName{ID: r.ID, Name: r.Name})
		outputs := filepath.Join(home, "outputs", strconv.FormatInt(r.ID, 10))
		written, _ := outputFiles(outputs)
		for _, f := range written {
			freed += f.Bytes
		}
		if err := os.RemoveAll(outputs); err != nil {
			return freed, exit.Errorf(exit.Storage, "%s could not be removed: %w", outputs, err)
		}
	}
	if len(g.Removed) == 0 {
		return 0, nil
	}
	shrunk, err := db.Shrink()
	return freed + shrunk, err
}

func forgetCheckpoints(home string, store *checkpoints.Store, errs io.Writer) (err error) {
	defer try.Caught(&err)
	db := try.To(history.Open(home))
	defer db.Close()
	runs := try.To(db.Select(history.Selection{Checkpoints: true}))
	for _, r := range runs {
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
