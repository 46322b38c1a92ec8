package history

import (
	"database/sql"
	"time"

	"drun/history/records"
)

// Foreign is a run that another tool recorded.
type Foreign struct {
	// Mark is a label that identifies the run; a run whose mark is known is not entered again.
	Mark    string
	Name    string // if "", malformed or taken, a name is made up, and a note has this one
	Source  string // shown in place of a recipe's path
	Tool    string // shown in place of drun's version
	Status  Status
	Started time.Time
	Seconds float64
	Params  []Param
	Tags    []string
	Notes   []string
	Points  []records.Point
}

// Enter records a foreign run. id is 0 if the run is there already, perhaps in the trash.
func (db *DB) Enter(f *Foreign, command []string) (id int64, err error) {
	known := false
	err = db.read(func(rows *sql.Rows) error { known = true; return nil }, "SELECT 1 FROM tags WHERE tag = ?", f.Mark)
	if err != nil || known {
		return 0, err
	}
	info := RunInfo{Name: f.Name, Recipe: f.Source, WorldSize: 1, Backend: "none", Version: f.Tool, Command: command, Started: f.Started}
	notes := f.Notes
	r, err := db.Begin(info)
	if _, bad := err.(*NameError); bad {
		info.Name, notes = "", append(notes, "called "+f.Name)
		r, err = db.Begin(info)
	}
	if err != nil {
		return 0, err
	}
	batch := &Batch{Params: f.Params, Batch: records.Batch{Tags: append([]string{f.Mark}, f.Tags...)}}
	for _, text := range notes {
		batch.Notes = append(batch.Notes, records.Note{Time: f.Started, Text: text})
	}
	const most = 50_000 // points per transaction, so that other writers get their turn
	for rest := f.Points; ; rest = rest[min(len(rest), most):] {
		batch.Points = rest[:min(len(rest), most)]
		if len(rest) <= most {
			batch.End = &End{Status: f.Status, Seconds: f.Seconds}
		}
		if err := r.Write(batch); err != nil {
			_ = r.Discard() // as if it had never begun, so that it can be tried again
			return 0, err
		}
		if batch.End != nil {
			return r.ID, nil
		}
		batch = &Batch{}
	}
}
