package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/backup"
)

func newBackup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the history, all checkpoints and the files of runs into one file",
		Long: `Writes the history, all checkpoints and the files that runs wrote into FILE, a tar archive,
as they are at one moment. Runs may go on meanwhile; in the backup they have the status lost, and can be
resumed from their checkpoints.

To restore it, unpack it into a new folder and use that as the home:

  mkdir -m 700 restored && tar -xf FILE -C restored
  drun runs --home restored`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return usage("give the name of a new file", "%s already exists", path)
			}
			size, err := backup.Write(homeOf(cmd), path)
			if !errors.As(err, new(exit.Coded)) && (errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))) {
				err = exit.WithCode(fmt.Errorf("%s could not be written: %w", path, cause(err)), exit.Storage)
			}
			try.Ok(err)
			value := map[string]any{"file": path, "bytes": size.Bytes, "packs": size.Packs, "damaged": len(size.Damaged)}
			try.Ok(answer(cmd, value, "%s: %s. To restore it: mkdir -m 700 NEW && tar -xf %s -C NEW, then --home NEW", path, humanize.Bytes(uint64(size.Bytes)), path))
			return tellDamaged(cmd, size.Damaged)
		},
	}
}

// tellDamaged names the checkpoints in a backup that differ from what was saved, and those that were missing when
// it was made.
func tellDamaged(cmd *cobra.Command, damaged []backup.Damaged) error {
	home, errs := homeOf(cmd), cmd.ErrOrStderr()
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	store := try.To(checkpoints.OpenIfAny(home))
	defer store.Close()
	bad := len(damaged)
	for _, r := range try.To(db.Select(history.Selection{Checkpoints: true})) {
		for _, d := range damaged {
			if d.Checkpoint.Run == r.UID {
				fmt.Fprintf(errs, "%s@%d: DAMAGED: %s\n", terminal.Escape(r.Name), d.Checkpoint.Step, terminal.Lines(d.Fault.Error()))
			}
		}
		list := try.To(store.List(r.UID))
		if r.Status == history.Running {
			continue // it may be removing some at this moment
		}
		for _, c := range record.Missing(&r, list) {
			bad++
			fmt.Fprintf(errs, "%s@%d: MISSING in %s\n", terminal.Escape(r.Name), c.Step, filepath.Join(home, "checkpoints.db"))
		}
	}
	if bad == 0 {
		return nil
	}
	return exit.WithHint(exit.Errorf(exit.Storage, "the backup is complete, but %s in it cannot be resumed from", english.Plural(bad, "checkpoint", "")),
		"drun checkpoints verify RUN says what is damaged; keep an older backup that has them whole")
}
