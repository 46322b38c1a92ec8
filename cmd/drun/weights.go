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
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
	"drun/starlib"
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
			try.Ok(newFile(args[1]))
			return withCheckpoints(cmd, args[:1], true, func(_ *history.DB, store *checkpoints.Store, list []report.Kept) error {
				k := list[0]
				try.Ok(k.Gone(homeOf(cmd)))
				size, left := try.To2(writeTensors(cmd, store, k, rank, args[1]))
				return answer(cmd, map[string]any{"file": args[1], "bytes": size, "step": k.Step, "left_out": left}, "%s: %s of %s", args[1], humanize.IBytes(uint64(size)), k)
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

// writeTensors writes the tensors of a checkpoint to a file, and says what it leaves out.
func writeTensors(cmd *cobra.Command, store *checkpoints.Store, k report.Kept, rank int, path string) (size int64, left []string, err error) {
	tensors := try.To(report.Tensors(store, k, rank, cmd.Flags().Changed("rank")))
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
	defer file.Close()
	defer try.Caught(&err)
	out := bufio.NewWriterSize(file, 1<<20)
	try.Ok(write(out))
	try.Ok(out.Flush())
	if mode != 0o600 { // what the file has; file systems without modes refuse to change them
		try.Ok(file.Chmod(mode))
	}
	try.Ok(file.Sync())
	info := try.To(file.Stat())
	try.Ok(file.Close())
	return info.Size(), os.Rename(file.Name(), path)
}

func newImport() *cobra.Command {
	var name string
	var step int64
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a checkpoint from a .safetensors or .npz file",
		Long: `Makes a run that is done and has one checkpoint: the tensors of a .safetensors or .npz file, under the names
that they have there. drun run --resume RUN then starts with these weights: checkpoint.restore puts them into the
modules and tensors of its state, and leaves the rest as it is.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			made := try.To(importFile(homeOf(cmd), args[0], name, step, false))
			return answer(cmd, made, "%s@%d: %d tensors of %s, %s", made.Run, made.Step, made.Tensors, args[0], humanize.IBytes(uint64(made.Bytes)))
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the run (default: two words)")
	cmd.Flags().Int64Var(&step, "step", 0, "step of the checkpoint")
	return cmd
}

// imported is a checkpoint made from a file.
type imported struct {
	ID      int64  `json:"id"`
	Run     string `json:"run"`
	Step    int64  `json:"step"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// importFile makes a run with one checkpoint of a file's tensors. With again, it may return an earlier import of the
// same file with the same content.
func importFile(home, path, name string, step int64, again bool) (_ *imported, err error) {
	defer try.Caught(&err)
	if name != "" {
		try.Ok(history.CheckName(name))
	}
	began := time.Now()
	items, file := readWeights(path)
	made := &imported{Step: step, Tensors: len(items) - 1}
	if made.Tensors == 0 {
		return nil, usage("", "%s has no tensors", path)
	}
	entries := each.Of(items, func(it checkpoint.Item) checkpoints.Entry {
		kind := "tensor"
		if it.DType == "" {
			kind = "value"
		}
		return checkpoints.Entry{Name: it.Name, Kind: kind, DType: it.DType, Shape: it.Shape, Data: it.Data}
	})
	db := try.To(history.Open(home))
	defer db.Close()
	store := try.To(checkpoints.Open(home))
	defer store.Close()
	if again {
		if old := importedBefore(db, store, file, step); old != nil {
			return old, nil
		}
	}
	r := try.To(db.Begin(history.RunInfo{Name: name, Recipe: file.Path, WorldSize: 1, Backend: record.FileBackend, Started: began,
		Given: records.Given{Version: version(), Command: []string{"drun", "checkpoints", "import", path}}}))
	defer try.CaughtOr(&err, func() { _ = r.Discard() })
	try.Ok(r.BeginAttempt())
	info := try.To(store.SaveAfter(0, r.UID, step, nil, map[int][]checkpoints.Entry{0: entries}))
	try.Ok(r.Write(&history.Batch{
		Checkpoints: []history.Checkpoint{{Step: step, Bytes: info.Bytes, Time: time.Now()}},
		End:         &history.End{Status: history.Done, Seconds: time.Since(began).Seconds()},
		Batch:       records.Batch{DataFiles: []records.DataFile{*file}},
	}))
	made.ID, made.Run, made.Bytes = r.ID, r.Name, info.Bytes
	return made, nil
}

// importedBefore finds the newest run that importFile has made from a file, and that still has its checkpoint.
func importedBefore(db *history.DB, store *checkpoints.Store, file *records.DataFile, step int64) *imported {
	for _, r := range try.To(db.List(0)) {
		if r.Recipe != file.Path || r.Status != history.Done {
			continue
		}
		d := try.To(db.Get(r.ID))
		if len(d.DataFiles) != 1 || d.DataFiles[0].SHA256 != file.SHA256 {
			continue
		}
		if info, err := store.Find(r.UID, checkpoints.Last); err == nil && info.Step == step {
			return &imported{ID: r.ID, Run: r.Name, Step: info.Step, Bytes: info.Bytes}
		}
	}
	return nil
}

// readWeights reads the tensors of a file, or fails (internal/try).
func readWeights(path string) ([]checkpoint.Item, *records.DataFile) {
	_, err := data.FormatOf(path)
	try.Ok(exit.WithCode(err, exit.Usage))
	abs := try.To(filepath.Abs(path))
	real, err := filepath.EvalSymlinks(abs) // the user named it, wherever it is
	if err != nil {
		try.Ok(usage("", "%s: %s", path, cause(err)))
	}
	files, err := starlib.OpenFiles(filepath.Dir(real))
	try.Ok(exit.WithCode(err, exit.Usage))
	out := &records.DataFile{Path: abs}
	files.OnRead = func(f starlib.FileRead) {
		out.SHA256, out.Bytes, out.Modified = f.SHA256, f.Bytes, &f.Modified
	}
	file, err := files.Open(filepath.Base(real))
	try.Ok(exit.WithCode(err, exit.Usage))
	defer file.Close()
	items, err := checkpoint.Import(file, filepath.Base(path))
	if err != nil {
		try.Ok(exit.WithCode(fmt.Errorf("%s: %w", path, err), exit.Usage))
	}
	try.To(io.Copy(io.Discard, file)) // to its end, for the checksum
	return items, out
}

// cause returns an error without the operation and the path that package os adds.
func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
