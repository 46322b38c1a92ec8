package table

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// MissingValues are the texts that stand for a missing cell by default, as in pandas.
var MissingValues = []string{"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"}

// CSV says how a file of separated values is to be read.
type CSV struct {
	Delimiter rune     // 0: a comma
	Header    *bool    // whether the first line holds the columns' names; nil: if no field of it is a number
	Columns   []string // the wanted columns; nil: all
	Missing   []string // nil: MissingValues
	Largest   int      // how many bytes the cells may take; 0: no limit
}

// MaxRecord bounds a line, or a JSON value.
const MaxRecord = 64 << 20

// A RecordReader bounds the size of a record: encoding/csv keeps all of it, and a quote that is never closed extends to
// the end of the file.
type RecordReader struct {
	io.Reader
	bytes int // since the record began, or some kB before
}

// Bound bounds the records read from in.
func Bound(in io.Reader) *RecordReader { return &RecordReader{Reader: in} }

// Next says that a record begins.
func (r *RecordReader) Next() { r.bytes = 0 }

// Read returns an error once the record is longer than MaxRecord.
func (r *RecordReader) Read(p []byte) (int, error) {
	if r.bytes > MaxRecord {
		return 0, fmt.Errorf("a line of more than %d bytes, or a quote that is not closed", MaxRecord)
	}
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// Read reads a file. A column is of integers, floats or bools (true and false) if all its cells are that or missing; otherwise, and if an
// integer is too large for the column's type, its cells are texts as in the file. Errors name line and column.
func (o CSV) Read(in io.Reader) (*Table, error) {
	bounded := Bound(in)
	r := csv.NewReader(bounded)
	r.ReuseRecord = true
	r.FieldsPerRecord = -1
	if o.Delimiter != 0 {
		r.Comma = o.Delimiter
	}
	missing := o.Missing
	if missing == nil {
		missing = MissingValues
	}
	isMissing := make(map[string]bool, len(missing))
	for _, m := range missing {
		isMissing[m] = true
	}
	var names []string
	var cells [][]string // of the wanted columns
	var wanted []int     // their indices in a line
	left := newBudget(o.Largest)
	line, first := 0, 0
	for n := 0; ; n++ {
		bounded.Next()
		record, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			if p := (*csv.ParseError)(nil); errors.As(err, &p) {
				return nil, fmt.Errorf("line %d, column %d: %w", p.Line, p.Column, p.Err)
			}
			return nil, fmt.Errorf("after line %d: %w", line, err)
		}
		line, _ = r.FieldPos(0)
		if n == 0 {
			record[0] = strings.TrimPrefix(record[0], "\ufeff")
			first = line
			header := o.Header != nil && *o.Header || o.Header == nil && !slices.ContainsFunc(record, isNumber)
			for i, field := range record {
				if name := strconv.Itoa(i); header {
					names = append(names, strings.TrimSpace(field))
				} else {
					names = append(names, name)
				}
			}
			if err := unique(names); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			if wanted, err = places(names, o.Columns); err != nil {
				return nil, err
			}
			cells = make([][]string, len(wanted))
			if header {
				continue
			}
		}
		if len(record) != len(names) {
			return nil, fmt.Errorf("line %d, column %d: the line has %d columns, but line %d has %d",
				line, min(len(record), len(names))+1, len(record), first, len(names))
		}
		size := 0
		for k, i := range wanted {
			cells[k] = append(cells[k], strings.TrimSpace(record[i]))
			size += 16 + len(record[i])
		}
		if err := left.take(size); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if names == nil {
		return nil, errors.New("no rows")
	}
	t := &Table{}
	for k, i := range wanted {
		t.Columns = append(t.Columns, column(names[i], cells[k], isMissing))
		t.Rows = len(cells[k])
	}
	return t, nil
}

// places finds the wanted columns.
func places(names, columns []string) ([]int, error) {
	var wanted []int
	if columns == nil {
		for i := range names {
			wanted = append(wanted, i)
		}
	}
	for _, name := range columns {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, NoColumn(name, names)
		}
		wanted = append(wanted, i)
	}
	return wanted, nil
}

// NoColumn says that there is no column with that name, and which there are.
func NoColumn(name string, names []string) error {
	var have []string
	for i, n := range names {
		if i == 20 {
			have = append(have, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		have = append(have, short(n))
	}
	return fmt.Errorf("there is no column %s; there are %s", short(name), strings.Join(have, ", "))
}

// isNumber reports whether a field is a number in decimal notation; texts such as 0x10 and 1_000 are not.
func isNumber(field string) bool {
	field = strings.TrimSpace(field)
	if strings.ContainsAny(field, "xXpP_") {
		return false
	}
	_, err := strconv.ParseFloat(field, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// column finds the narrowest kind that all cells have.
func column(name string, cells []string, isMissing map[string]bool) *Column {
	c := &Column{Name: name}
	ints, floats, bools, some, large := true, true, true, false, false
	for _, s := range cells {
		if isMissing[s] {
			continue
		}
		some = true
		if ints {
			_, err := strconv.ParseInt(s, 10, 64)
			ints = err == nil
		}
		if !ints && floats {
			_, err := strconv.ParseFloat(s, 64)
			floats = err == nil && isNumber(s)
		}
		if n, err := strconv.ParseInt(s, 10, 64); floats && (errors.Is(err, strconv.ErrRange) || err == nil && !exact(n)) {
			large = true // not to be rounded silently
		}
		bools = bools && (strings.EqualFold(s, "true") || strings.EqualFold(s, "false"))
		if !ints && !floats && !bools {
			break
		}
	}
	floats = floats && !large
	for _, s := range cells {
		var v any
		switch {
		case isMissing[s]:
		case !some:
		case bools:
			v = strings.EqualFold(s, "true")
		case ints:
			n, _ := strconv.ParseInt(s, 10, 64)
			v = n
		case floats:
			f, _ := strconv.ParseFloat(s, 64)
			v = f
		default:
			v = s
		}
		_ = c.Append(v) // of one kind
	}
	return c
}
