package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// table is a file of numbers: the features row by row, and the label column
// apart where one was named.
type table struct {
	rows, cols int // of features
	features   []float32
	labels     []float64 // one a row; nil without a label column
	integers   []int64   // the labels too, while all are integers
	classes    bool      // they all are
}

// parseCSV reads comma-separated numbers. A first line without any number is a
// header and is skipped. label is the label's column, negative from the end;
// nil means that there is none. largest is how many bytes the numbers may take, 0 for
// any number. Errors name file, line and column.
func parseCSV(name string, in io.Reader, label *int, largest int) (*table, error) {
	bounded := &recordReader{Reader: in}
	r := csv.NewReader(bounded)
	r.ReuseRecord = true
	r.FieldsPerRecord = -1 // the check below names the line it compares with
	r.TrimLeadingSpace = true
	t := &table{classes: true}
	width, first, at, line := -1, 0, -1, 0
	for n := 0; ; n++ {
		bounded.bytes = 0
		record, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, csvError(name, line, err)
		}
		line, _ = r.FieldPos(0)
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
		if size := 4*len(t.features) + 16*len(t.labels); largest > 0 && size > largest {
			return nil, fmt.Errorf("%s: line %d: the numbers up to here take %d bytes, and a file of them may take %d; an array in a .npy file may take more", name, line, size, largest)
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
		t.labels = append(t.labels, v)
		if err := t.addInteger(field, v); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	t.rows++
	return nil
}

// addInteger takes a label as an integer, if it is one. Beyond 2^53 a float64 may
// stand for another: there the digits count.
func (t *table) addInteger(field string, v float64) error {
	n, err := strconv.ParseInt(field, 10, 64)
	switch {
	case err == nil:
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s does not fit int64", shorten(field))
	case v == math.Trunc(v) && -1<<53 < v && v < 1<<53: // 3.0, 1e3
		n = int64(v)
	default:
		t.classes = false
	}
	t.integers = append(t.integers, n)
	return nil
}

// recordReader bounds what one record takes: encoding/csv keeps all of it, and a
// quote that is never closed goes on to the end of the file.
type recordReader struct {
	io.Reader
	bytes int // since the record began, or some kB before
}

const maxRecord = 64 << 20

func (r *recordReader) Read(p []byte) (int, error) {
	if r.bytes > maxRecord {
		return 0, fmt.Errorf("a line of more than %d bytes, or a quote that is not closed", maxRecord)
	}
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
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
		return 0, fmt.Errorf("label = %d, but there are %d columns: valid are %d to %d", *label, width, -width, width-1)
	}
	return at, nil
}

// csvError puts encoding/csv's position into the words used here.
func csvError(name string, after int, err error) error {
	if p := (*csv.ParseError)(nil); errors.As(err, &p) {
		return fmt.Errorf("%s: line %d, column %d: %w", name, p.Line, p.Column, p.Err)
	}
	return fmt.Errorf("%s: after line %d: %w", name, after, err)
}

// oneLine is a name from a file, shortened, and quoted if it has other than printable characters.
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
