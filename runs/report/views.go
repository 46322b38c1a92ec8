// Package report makes what people and programs are shown of the history and the checkpoints: the values that the
// command line prints as JSON with --json and the pages of drun ui fetch.
package report

import (
	"encoding/json"
	"io"
	"strings"

	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
)

// JSON writes a value and a line end, on one line if indent is empty. It escapes characters that would control a
// terminal.
func JSON(out io.Writer, v any, indent string) error {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(out, terminal.JSON(b.String()))
	return err
}

// Find finds the runs that refs name, in their order.
func Find(refs []string, find func(ref string) (id int64, err error)) ([]int64, error) {
	ids := make([]int64, len(refs))
	for i, ref := range refs {
		var err error
		if ids[i], err = find(ref); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Points returns the points of a run's metrics, of all or of those with the names: with lineage also those of the runs
// that it was resumed from, with an attempt from 0 what that attempt recorded, and with most above 0 at most so many of
// each metric and rank.
func Points(db *history.DB, id int64, names []string, lineage bool, attempt, most int) (list []records.Point, err error) {
	switch {
	case lineage:
		list, err = db.LineagePoints(id, names...)
	case attempt >= 0:
		list, err = db.AttemptPoints(id, attempt, names...)
	default:
		list, err = db.Points(id, names...)
	}
	if most > 0 {
		list = history.Downsample(list, most)
	}
	return list, err
}

// Suffixes end the names of files with artifacts, by their kind.
var Suffixes = map[string]string{"text": ".txt", "tensor": ".safetensors", "image": ".png", "histogram": ".json", "table": ".json"}
