package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
)

func newGC() *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "Free the bytes that no checkpoint needs",
		Long: `Removes what no checkpoint needs from the packs in which checkpoints are kept, and says how
many bytes that freed. Runs may go on meanwhile. Packs in the quarantine stay.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			home := homeOf(cmd)
			freed, err := collectGarbage(home)
			if err != nil {
				return err
			}
			out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
			if wantsJSON(cmd) {
				texts := []string{}
				for _, err := range freed.Damaged {
					texts = append(texts, err.Error())
				}
				err = printJSON(out, map[string]any{"freed": freed.Bytes, "quarantined": freed.Quarantined,
					"quarantined_bytes": freed.QuarantinedBytes, "damaged": texts})
			} else {
				_, err = fmt.Fprintf(out, "freed %s (%d bytes)\n", humanize.IBytes(uint64(max(freed.Bytes, 0))), freed.Bytes)
			}
			if err != nil {
				return err
			}
			if freed.Quarantined > 0 {
				fmt.Fprintf(errs, "%s holds %d packs, %s, that the catalog does not list: delete them once every run can be resumed\n",
					terminal.Escape(filepath.Join(home, "checkpoints", "quarantine")), freed.Quarantined, humanize.IBytes(uint64(freed.QuarantinedBytes)))
			}
			if len(freed.Damaged) > 0 {
				return exit.WithHint(exit.Errorf(exit.Storage, "%d packs stay as they are: %w", len(freed.Damaged), errors.Join(freed.Damaged...)),
					"drun checkpoints verify RUN says which checkpoints are damaged, drun checkpoints rm removes them")
			}
			return nil
		},
	}
}

// collectGarbage frees what it can, and takes checkpoints that are gone out of the
// history, where a kill has left them.
func collectGarbage(home string) (freed checkpoints.Freed, err error) {
	found, err := checkpoints.OpenReadOnly(home) // creates nothing
	if errors.As(err, new(*checkpoints.ErrNone)) {
		return freed, nil
	}
	if err != nil {
		return freed, err
	}
	found.Close()
	store, err := checkpoints.Open(home)
	if err != nil {
		return freed, err
	}
	defer store.Close()
	if freed, err = store.Free(); err != nil {
		return freed, err
	}
	db, err := history.Open(home)
	if err != nil {
		return freed, err
	}
	defer db.Close()
	runs, err := db.List(0)
	if err != nil {
		return freed, err
	}
	for _, r := range runs {
		if r.Status == history.Running {
			continue
		}
		gone := []int64{}
		for _, c := range r.Checkpoints {
			_, err := store.Find(r.UID, checkpoints.Step(c.Step))
			if errors.As(err, new(*checkpoints.ErrNone)) {
				gone = append(gone, c.Step)
			} else if err != nil {
				return freed, err
			}
		}
		if len(gone) > 0 {
			if err := db.RemoveCheckpoints(r.ID, gone); err != nil {
				return freed, err
			}
		}
	}
	return freed, nil
}
