package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/checkpoint"
	"drun/starlib/data"
)

func newImport() *cobra.Command {
	var name string
	var step int64
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a checkpoint of a .safetensors or .npz file",
		Long: `Makes a run that is done and has one checkpoint: the tensors of a .safetensors or .npz file, under the names
that they have there. drun run --resume RUN then starts with these weights: checkpoint.restore puts them into the
modules and tensors of its state, and leaves the rest as it is.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := importFile(homeOf(cmd), args[0], name, step, false)
			if err != nil {
				return err
			}
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

// importFile makes a run with one checkpoint of a file's tensors. again: an earlier import of the same file with
// the same content will do.
func importFile(home, path, name string, step int64, again bool) (_ *imported, err error) {
	defer try.Caught(&err)
	if name != "" {
		try.Ok(history.CheckName(name))
	}
	began := time.Now()
	items, file := try.To2(readWeights(path))
	made := &imported{Step: step, Tensors: len(items) - 1}
	if made.Tensors == 0 {
		return nil, usage("", "%s has no tensors", path)
	}
	entries := make([]checkpoints.Entry, len(items))
	for i, it := range items {
		kind := "tensor"
		if it.DType == "" {
			kind = "value"
		}
		entries[i] = checkpoints.Entry{Name: it.Name, Kind: kind, DType: it.DType, Shape: it.Shape, Data: it.Data}
	}
	db := try.To(history.Open(home))
	defer db.Close()
	store := try.To(checkpoints.Open(home))
	defer store.Close()
	if again {
		if old, err := importedBefore(db, store, file, step); old != nil || err != nil {
			return old, err
		}
	}
	r := try.To(db.Begin(history.RunInfo{Name: name, Recipe: file.Path, WorldSize: 1, Backend: record.FileBackend, Version: version(),
		Command: []string{"drun", "checkpoints", "import", path}, Started: began}))
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
func importedBefore(db *history.DB, store *checkpoints.Store, file *records.DataFile, step int64) (_ *imported, err error) {
	defer try.Caught(&err)
	list := try.To(db.List(0))
	for _, r := range list {
		if r.Recipe != file.Path || r.Status != history.Done {
			continue
		}
		d := try.To(db.Get(r.ID))
		if len(d.DataFiles) != 1 || d.DataFiles[0].SHA256 != file.SHA256 {
			continue
		}
		if info, err := store.Find(r.UID, checkpoints.Last); err == nil && info.Step == step {
			return &imported{ID: r.ID, Run: r.Name, Step: info.Step, Bytes: info.Bytes}, nil
		}
	}
	return nil, nil
}

// readWeights reads a file of weights as items of a checkpoint.
func readWeights(path string) ([]checkpoint.Item, *records.DataFile, error) {
	if _, err := data.FormatOf(path); err != nil {
		return nil, nil, exit.WithCode(err, exit.Usage)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, err
	}
	real, err := filepath.EvalSymlinks(abs) // the user named it, wherever it is
	if err != nil {
		return nil, nil, usage("", "%s: %s", path, cause(err))
	}
	files, err := starlib.OpenFiles(filepath.Dir(real))
	if err != nil {
		return nil, nil, exit.WithCode(err, exit.Usage)
	}
	out := &records.DataFile{Path: abs}
	files.OnRead = func(_, sum string, bytes int64, modified time.Time) {
		out.SHA256, out.Bytes, out.Modified = sum, bytes, &modified
	}
	file, err := files.Open(filepath.Base(real))
	if err != nil {
		return nil, nil, exit.WithCode(err, exit.Usage)
	}
	defer file.Close()
	items, err := checkpoint.Import(file, filepath.Base(path))
	if err != nil {
		return nil, nil, exit.WithCode(fmt.Errorf("%s: %w", path, err), exit.Usage)
	}
	if _, err := io.Copy(io.Discard, file); err != nil { // to its end, for the checksum
		return nil, nil, err
	}
	return items, out, nil
}

// cause is an error without the operation and the path that package os adds.
func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
