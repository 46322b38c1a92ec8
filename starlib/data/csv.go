package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// table is a file of numbers: the features row by row, and the label column
// apart where one was named.
type table struct {
	rows, cols int // of features
	features   []float32
	labels     []float64 // one a row; nil without a label column
	classes    bool      // every label is an integer
}

// parseCSV reads comma-separated numbers. A first line without any number is a
// header and is skipped. label is the label's column, negative from the end;
// nil means that there is none. Errors name file, line and column.
func parseCSV(name string, in io.Reader, label *int) (*table, error) {
	r := csv.NewReader(in)
	r.ReuseRecord = true
	r.FieldsPerRecord = -1 // the check below names the line it compares with
	r.TrimLeadingSpace = true
	t := &table{classes: true}
	width, first, at := -1, 0, -1
	for n := 0; ; n++ {
		record, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, csvError(name, err)
		}
		line, _ := r.FieldPos(0)
		if n == 0 {
			record[0] = strings.TrimPrefix(record[0], "\ufeff")
		}
		if width < 0 {
			width, first = len(record), line
			if at, err = labelColumn(label, width); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if isHeader(record) {
				continue
			}
		}
		if len(record) != width {
			return nil, fmt.Errorf("%s: line %d, column %d: the line has %d columns, but line %d has %d",
				name, line, min(len(record), width)+1, len(record), first, width)
		}
		if err := t.addRow(record, at); err != nil {
			return nil, fmt.Errorf("%s: line %d, %w", name, line, err)
		}
	}
	if t.rows == 0 {
		return nil, fmt.Errorf("%s: no rows of numbers", name)
	}
	t.cols = len(t.features) / t.rows
	return t, nil
}

// addRow takes one line; at is the label's column or -1.
func (t *table) addRow(record []string, at int) error {
	for i, field := range record {
		field = strings.TrimSpace(field)
		bits := 32
		if i == at {
			bits = 64
		}
		v, err := strconv.ParseFloat(field, bits)
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("column %d: %s does not fit float%d", i+1, shorten(field), bits)
		}
		if err != nil {
			return fmt.Errorf("column %d: %q is not a number", i+1, shorten(field))
		}
		if i != at {
			t.features = append(t.features, float32(v))
			continue
		}
		// Beyond 2^53 a float64 may stand for another integer.
		t.classes = t.classes && v == float64(int64(v)) && v >= -1<<53 && v <= 1<<53
		t.labels = append(t.labels, v)
	}
	t.rows++
	return nil
}

// isHeader tells whether a line holds names: no field of it is a number.
func isHeader(record []string) bool {
	for _, field := range record {
		if _, err := strconv.ParseFloat(strings.TrimSpace(field), 64); err == nil || errors.Is(err, strconv.ErrRange) {
			return false
		}
	}
	return true
}

func labelColumn(label *int, width int) (int, error) {
	if label == nil {
		return -1, nil
	}
	at := *label
	if at < 0 {
		at += width
	}
	if at < 0 || at >= width {
		return 0, fmt.Errorf("label = %d, but there are %d columns: expected %d to %d", *label, width, -width, width-1)
	}
	return at, nil
}

// csvError puts encoding/csv's position into the words used here.
func csvError(name string, err error) error {
	if p := (*csv.ParseError)(nil); errors.As(err, &p) {
		return fmt.Errorf("%s: line %d, column %d: %w", name, p.Line, p.Column, p.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}
