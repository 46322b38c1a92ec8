package data

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib/data/table"
)

// numbersTable is a file of numbers: the features row by row, and the label column separately if one was named.
type numbersTable struct {
	rows, cols int // of features
	features   []float32
	labels     []float64 // one per row; nil without a label column
	integers   []int64   // the labels, as long as all are integers
	classes    bool      // all labels are integers
}

// parseCSV reads comma-separated numbers. A first line without any number is a header and is skipped. label is the
// label's column: its name, or its number, negative from the end; None if there is none. largest limits the bytes
// that the numbers take; 0 for no limit. Errors name file, line and column.
func parseCSV(name string, in io.Reader, delimiter rune, label starlark.Value, largest int) (*numbersTable, error) {
	t := &numbersTable{classes: true}
	at := -2
	err := table.Records(in, delimiter, true, func(line int, record []string) (err error) {
		if at == -2 { // the first line
			if at, err = labelColumn(label, record); err != nil || isHeader(record) {
				return err
			}
		}
		if err := t.addRow(record, at); err != nil {
			return fmt.Errorf("line %d, %w", line, err)
		}
		if size := 4*len(t.features) + 16*len(t.labels); largest > 0 && size > largest {
			return fmt.Errorf("line %d: the numbers up to here take %d bytes, and a file of numbers may take at most %d; an array in a .npy file may take more", line, size, largest)
		}
		return nil
	})
	if err == nil && t.rows == 0 {
		err = errors.New("no rows of numbers")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.cols = len(t.features) / t.rows
	return t, nil
}

// addRow takes one line; at is the label's column or -1.
func (t *numbersTable) addRow(record []string, at int) error {
	for i, field := range record {
		c, err := parseCell(field, i, at)
		switch {
		case err != nil:
			return err
		case i != at:
			t.features = append(t.features, float32(c.value))
		case c.large:
			return fmt.Errorf("column %d: %s does not fit int64", i+1, shorten(strings.TrimSpace(field)))
		default:
			t.labels, t.integers = append(t.labels, c.value), append(t.integers, c.integer)
			t.classes = t.classes && c.whole
		}
	}
	t.rows++
	return nil
}

// cell is a number in a CSV line, a float32 or, as a label, a float64.
type cell struct {
	value   float64
	integer int64 // a label as an integer
	whole   bool  // the label is an integer
	large   bool  // the label is an integer beyond 64 bits
}

// parseCell reads a field of a column; at is the label's column. A float64 is not exact for integers beyond 2^53, which are parsed
// from their digits.
func parseCell(field string, column, at int) (c cell, err error) {
	field = strings.TrimSpace(field)
	bits := 32
	if column == at {
		bits = 64
	}
	c.value, err = strconv.ParseFloat(field, bits)
	if errors.Is(err, strconv.ErrRange) {
		return c, fmt.Errorf("column %d: %s does not fit float%d", column+1, shorten(field), bits)
	}
	if err != nil {
		hint := "data.table reads columns of text, too"
		if i := strings.IndexAny(field, ";\t|"); i >= 0 {
			hint = fmt.Sprintf("set delimiter = %q", field[i:i+1])
		}
		return c, fmt.Errorf("column %d: %q is not a number: %s", column+1, shorten(field), hint)
	}
	if column == at {
		n, err := strconv.ParseInt(field, 10, 64)
		c.large = errors.Is(err, strconv.ErrRange)
		if c.integer, c.whole = n, err == nil; !c.whole && !c.large && c.value == math.Trunc(c.value) && -1<<53 < c.value && c.value < 1<<53 { // 3.0, 1e3
			c.integer, c.whole = int64(c.value), true
		}
	}
	return c, nil
}

// isHeader reports whether a line holds names: none of its fields is a number.
func isHeader(record []string) bool {
	for _, field := range record {
		if _, err := strconv.ParseFloat(strings.TrimSpace(field), 64); err == nil || errors.Is(err, strconv.ErrRange) {
			return false
		}
	}
	return true
}

func labelColumn(label starlark.Value, first []string) (_ int, err error) {
	defer try.Caught(&err)
	width := len(first)
	switch label := label.(type) {
	case starlark.String:
		names := each.Of(first, strings.TrimSpace)
		if at := slices.Index(names, string(label)); at >= 0 && isHeader(first) {
			return at, nil
		}
		try.FailIf(!isHeader(first), "label = %s, but the file has no names of columns in its first line", label)
		return 0, table.NoColumn(string(label), names)
	case starlark.Int:
		at, ok := label.Int64()
		if ok && at < 0 {
			at += int64(width)
		}
		try.FailIf(!ok || at < 0 || at >= int64(width), "label = %d, but there are %d columns: valid are %d to %d", label, width, -width, width-1)
		return int(at), nil
	}
	return -1, nil
}

// oneLine returns a name from a file, shortened, and quoted if it has unprintable characters.
func oneLine(name string) string {
	if quoted := strconv.Quote(shorten(name)); strings.Contains(quoted, `\`) {
		return quoted
	}
	return shorten(name)
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}
