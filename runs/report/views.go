// Package report makes what people and programs are shown of the history and the checkpoints: the values that the
// command line prints as JSON with --json and the pages of drun ui fetch.
package report

import (
	"encoding/json"
	"io"
	"strings"

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
