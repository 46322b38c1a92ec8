package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
	"drun/starlib/checkpoint"
	"drun/starlib/data"
)

func newExport() *cobra.Command {
	var rank int
	cmd := &cobra.Command{
		Use:   "export RUN[@STEP] FILE",
		Short: "Write the tensors of a checkpoint into a .safetensors or .npz file",
		Long: `Writes the tensors of a checkpoint, the newest or that of STEP (a number, last or best), into a new file, whose
name ends in .safetensors or .npz. A tensor's name is the state's key and PyTorch's name in the module, such as
model.0.weight; the tensors of optimizers are written, too. Whatever is not a tensor, such as a number, is left out,
and a line says what. Tensors that differ between the ranks need --rank.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.Contains(args[0], "@") {
				args[0] += "@last"
			}
			if err := newFile(args[1]); err != nil {
				return err
			}
			return withCheckpoints(cmd, args[:1], true, func(_ *history.DB, store *checkpoints.Store, list []report.Kept) error {
				return export(cmd, store, list[0], rank, args[1])
			})
		},
	}
	cmd.Flags().IntVar(&rank, "rank", 0, "the rank whose tensors are written")
	return cmd
}

// newFile refuses a path that exists, or that cannot be a file of tensors.
func newFile(path string) error {
	if _, err := data.FormatOf(path); err != nil {
		return usage("", "%s", err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return usage("", "%s cannot be written: there is no folder %s", path, filepath.Dir(path))
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return usage("give the name of a new file", "%s already exists", path)
	}
	return nil
}

func export(cmd *cobra.Command, store *checkpoints.Store, k report.Kept, rank int, path string) (err error) {
	defer try.Caught(&err)
	try.Ok(k.Gone(homeOf(cmd)))
	size, left := try.To2(writeTensors(cmd, store, k, rank, path))
	return answer(cmd, map[string]any{"file": path, "bytes": size, "step": k.Step, "left_out": left}, "%s: %s of %s", path, humanize.IBytes(uint64(size)), k)
}

// writeTensors writes the tensors of a checkpoint to a file, and says what it leaves out.
func writeTensors(cmd *cobra.Command, store *checkpoints.Store, k report.Kept, rank int, path string) (size int64, left []string, err error) {
	tensors, err := report.Tensors(store, k, rank, cmd.Flags().Changed("rank"))
	if err != nil {
		return 0, nil, err
	}
	left = []string{}
	written, err := create(path, 0o600, func(w io.Writer) (err error) {
		names, err := checkpoint.Export(w, path, tensors)
		left = append(left, names...)
		return err
	})
	if errors.As(err, new(*fs.PathError)) {
		return 0, nil, exit.Errorf(exit.Storage, "%s could not be written: %w", path, err)
	}
	if err != nil {
		return 0, nil, usage("", "%s: %s", path, err)
	}
	if len(left) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "left out, as they are not tensors: %s\n", terminal.Escape(strings.Join(left, ", ")))
	}
	return written, left, nil
}

// create writes a file atomically. An existing one is replaced.
func create(path string, mode fs.FileMode, write func(io.Writer) error) (size int64, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".drun-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name()) // renamed by then, unless there was an error
	out := bufio.NewWriterSize(file, 1<<20)
	if err = write(out); err == nil {
		err = out.Flush()
	}
	if err == nil && mode != 0o600 { // what the file has; file systems without modes refuse to change them
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if info, serr := file.Stat(); serr == nil {
		size = info.Size()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	return size, err
}
