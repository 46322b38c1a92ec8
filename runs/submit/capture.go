package submit

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"drun/engine"
	"drun/engine/recipe"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Environment variables with which a job's script tells drun run what it was submitted for: the file of the job, and which of
// its runs, from 1.
const (
	FileVariable = "DRUN_JOB"
	CellVariable = "DRUN_JOB_CELL"
)

// File is what a job takes along for its runs, as JSON.
type File struct {
	Version  int
	Bundle   recipe.Bundle // Dir: there, in which the recipe finds its data
	Contents [][]byte      // of its sources
	Filed    []engine.Param
	Runs     []Run // one, or the cells of a sweep
	Sweep    *records.Sweep
}

// Run is what a run is called.
type Run struct{ UID, Name string }

const fileVersion = 3

// file is the job's file, as text.
func (j *job) file() []byte {
	f := &File{Version: fileVersion, Bundle: *j.Bundle, Filed: j.Filed, Runs: j.runs, Sweep: j.Info.Sweep}
	if !Here(j.Target) {
		f.Bundle.Dir = j.Dir
	}
	if j.Cells != nil {
		f.Sweep = j.Cells[0].Info.Sweep
	}
	for _, s := range j.Bundle.Sources {
		f.Contents = append(f.Contents, s.Content)
	}
	text, _ := json.Marshal(f) // plain data: it cannot fail
	return text
}

// ReadFile reads the file of the job that this process runs a recipe for, and which run of it; nil: it runs for none.
func ReadFile(recipe string) (_ *File, _ *Run, err error) {
	path, cell := os.Getenv(FileVariable), 1
	if path == "" {
		return nil, nil, nil
	}
	defer func() {
		if err != nil {
			err = exit.Errorf(exit.Usage, "the job's file, of %s: %w", FileVariable, err)
		}
	}()
	defer try.Caught(&err)
	f := &File{}
	try.Ok(json.Unmarshal(try.To(os.ReadFile(path)), f))
	if f.Version != fileVersion || len(f.Contents) != len(f.Bundle.Sources) {
		return nil, nil, fmt.Errorf("%s was made by another version of drun", path)
	}
	if f.Bundle.Name != recipe {
		return nil, nil, nil // another run, which the job's own script starts
	}
	for i, s := range f.Bundle.Sources {
		f.Bundle.Sources[i] = records.NewSource(s.Path, s.Role, f.Contents[i])
	}
	if text := os.Getenv(CellVariable); text != "" {
		cell, err = strconv.Atoi(text)
	}
	if err != nil || cell < 1 || cell > len(f.Runs) {
		return nil, nil, fmt.Errorf("%s: it has no run %q", path, os.Getenv(CellVariable))
	}
	return f, &f.Runs[cell-1], nil
}
