package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/backup"
)

func newBackup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the history and all checkpoints into one file",
		Long: `Writes the history and all checkpoints into FILE, a tar archive, as they are at one
moment. Runs may go on meanwhile; in the backup they have the status lost, and can be
resumed from their checkpoints.

To restore it, unpack it into a new folder and use that as the home:

  mkdir -m 700 restored && tar -xf FILE -C restored
  drun runs --home restored`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return usage("give the name of a new file", "%s already exists", path)
			}
			size, err := backup.Write(homeOf(cmd), path)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), map[string]any{"file": path, "bytes": size.Bytes, "packs": size.Packs})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s. To restore it: mkdir -m 700 NEW && tar -xf %s -C NEW, then --home NEW\n",
				path, humanize.Bytes(uint64(size.Bytes)), path)
			return nil
		},
	}
}
