package submit

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"drun/engine/recipe"
	"drun/history/records"
	"drun/internal/exit"
)

// Environment variables with which a job's script tells drun run what it was submitted for: the file of the job, and which of
// its runs, from 1.
const (
	FileVariable = "DRUN_JOB"
	CellVariable = "DRUN_JOB_CELL"
)

// File is what a job takes along for its runs, as JSON.
type File struct {
	Version int            `json:"version"`
	Recipe  string         `json:"recipe"` // as the user named it
	Dir     string         `json:"dir"`    // there, in which the recipe finds its data
	Main    string         `json:"main"`
	Project recipe.Project `json:"project"`
	Sources []captured     `json:"sources"`
	Runs    []Run          `json:"runs"` // one, or the cells of a sweep
	Sweep   *records.Sweep `json:"sweep,omitempty"`
}

// Run is what a run is called.
type Run struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
}

type captured struct {
	Path    string `json:"path"`
	Role    string `json:"role"`
	Content []byte `json:"content"`
}

const fileVersion = 1

func newFile(b *recipe.Bundle, dir string) *File {
	f := &File{Version: fileVersion, Recipe: b.Name, Dir: dir, Main: b.Main, Project: b.Project}
	for _, s := range b.Sources {
		f.Sources = append(f.Sources, captured{s.Path, s.Role, s.Content})
	}
	return f
}

// Bundle is the recipe as it was when the job was submitted.
func (f *File) Bundle() *recipe.Bundle {
	b := &recipe.Bundle{Name: f.Recipe, Dir: f.Dir, Main: f.Main, Project: f.Project}
	for _, s := range f.Sources {
		b.Sources = append(b.Sources, records.NewSource(s.Path, s.Role, s.Content))
	}
	return b
}

// ReadFile reads the file of the job that this process runs a recipe for, and which run of it; nil: it runs for none.
func ReadFile(recipe string) (*File, *Run, error) {
	path := os.Getenv(FileVariable)
	if path == "" {
		return nil, nil, nil
	}
	fault := func(err error) (*File, *Run, error) {
		return nil, nil, exit.Errorf(exit.Usage, "the job's file, of %s: %w", FileVariable, err)
	}
	text, err := os.ReadFile(path)
	f := &File{}
	if err == nil {
		err = json.Unmarshal(text, f)
	}
	if err == nil && f.Version != fileVersion {
		err = fmt.Errorf("%s was made by another version of drun", path)
	}
	if err != nil {
		return fault(err)
	}
	if f.Recipe != recipe {
		return nil, nil, nil // another run, which the job's own script starts
	}
	cell := 1
	if text := os.Getenv(CellVariable); text != "" {
		cell, err = strconv.Atoi(text)
	}
	if err != nil || cell < 1 || cell > len(f.Runs) {
		return fault(fmt.Errorf("%s: it has no run %q", path, os.Getenv(CellVariable)))
	}
	return f, &f.Runs[cell-1], nil
}
