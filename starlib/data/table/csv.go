package table

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"drun/internal/try"
)

// MissingValues are the strings that stand for a missing cell by default: those of pandas 2.
var MissingValues = []string{"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
	"NA", "NULL", "NaN", "None", "n/a", "nan", "null"}

// Options say how a table is to be read.
type Options struct {
	Columns   []string // the wanted columns; nil: all
	Delimiter rune     // of CSV; 0: a comma
	Header    *bool    // of CSV: whether the first line holds the columns' names; nil: only if none of its fields is a number
	Missing   []string // of CSV: what stands for a missing cell; nil: MissingValues
	Largest   int      // how many bytes the cells may take; 0: no limit
}

// MaxRecord bounds a line, or a JSON value.
const MaxRecord = 64 << 20

// boundedReader bounds the size of a record: encoding/csv keeps all of it, and a quote that is never closed extends to
// the end of the file.
type boundedReader struct {
	io.Reader
	bytes int // read since the record began, or since up to some kB before that
}

// Read returns an error once the record is longer than MaxRecord.
func (r *boundedReader) Read(p []byte) (int, error) {
	if r.bytes > MaxRecord {
		return 0, fmt.Errorf("a line of more than %d bytes, or a quote that is not closed", MaxRecord)
	}
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// Records calls visit with the fields of each line of a file of separated values, valid until it returns, and the
// line's number. A line with another number of fields than the first is an error. trim removes space before fields.
func Records(in io.Reader, comma rune, trim bool, visit func(line int, fields []string) error) (err error) {
	defer try.Caught(&err)
	bounded := &boundedReader{Reader: in}
	r := csv.NewReader(bounded)
	r.Comma, r.TrimLeadingSpace = comma, trim
	r.ReuseRecord = true
	r.FieldsPerRecord = -1 // the check below names the line it compares with
	width, first, line := -1, 0, 0
	for {
		bounded.bytes = 0
		fields, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			if p := (*csv.ParseError)(nil); errors.As(err, &p) {
				return fmt.Errorf("line %d, column %d: %w", p.Line, p.Column, p.Err)
			}
			return fmt.Errorf("after line %d: %w", line, err)
		}
		if line, _ = r.FieldPos(0); width < 0 {
			fields[0] = strings.TrimPrefix(fields[0], "\ufeff")
			width, first = len(fields), line
		}
		if len(fields) != width {
			return fmt.Errorf("line %d, column %d: the line has %d columns, but line %d has %d", line, min(len(fields), width)+1, len(fields), first, width)
		}
		try.Ok(visit(line, fields))
	}
}

// CSV reads a file of separated values. A column is of integers, floats or bools (true and false) if all its cells are that or missing; otherwise, or if an
// integer is too large for the column's type, its cells are strings as in the file. Errors name line and column.
func (o Options) CSV(in io.Reader) (*Table, error) {
	isMissing := o.missing()
	var names []string
	var cells [][]string // of the wanted columns
	var wanted []int     // their indices in a line
	left := newBudget(o.Largest)
	err := Records(in, cmp.Or(o.Delimiter, ','), false, func(line int, record []string) (err error) {
		defer try.Caught(&err)
		if names == nil {
			var header bool
			names, header = try.To2(o.names(line, record))
			wanted = try.To(places(names, o.Columns))
			cells = make([][]string, len(wanted))
			if header {
				return nil
			}
		}
		size := 0
		for k, i := range wanted {
			cells[k] = append(cells[k], strings.TrimSpace(record[i]))
			size += 16 + len(record[i])
		}
		if err := left.take(size); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		return nil
	})
	if err == nil && names == nil {
		err = errors.New("no rows")
	}
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for k, i := range wanted {
		t.Columns = append(t.Columns, column(names[i], cells[k], isMissing))
		t.Rows = len(cells[k])
	}
	return t, nil
}

// missing returns the set of strings that stand for a missing cell.
func (o Options) missing() map[string]bool {
	missing := o.Missing
	if missing == nil {
		missing = MissingValues
	}
	is := make(map[string]bool, len(missing))
	for _, m := range missing {
		is[m] = true
	}
	return is
}

// names returns the columns' names, given the first line of a file; header says that this line holds them.
func (o Options) names(line int, record []string) (names []string, header bool, err error) {
	header = o.Header != nil && *o.Header || o.Header == nil && !slices.ContainsFunc(record, isNumber)
	for i, field := range record {
		if header {
			names = append(names, strings.TrimSpace(field))
		} else {
			names = append(names, strconv.Itoa(i))
		}
	}
	if err := unique(names); err != nil {
		return nil, false, fmt.Errorf("line %d: %w", line, err)
	}
	return names, header, nil
}

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

// NoColumn is the error that there is no column of that name; it lists the columns that there are.
func NoColumn(name string, names []string) error {
	var have []string
	for i, n := range names {
		if i == 20 {
			have = append(have, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		have = append(have, Short(n))
	}
	hint := ""
	if len(names) == 1 {
		if i := strings.IndexAny(names[0], ";\t|"); i >= 0 {
			hint = fmt.Sprintf(": set delimiter = %q", names[0][i:i+1])
		}
	}
	return fmt.Errorf("there is no column %s; there are %s%s", Short(name), strings.Join(have, ", "), hint)
}

// isNumber reports whether a field is a number in decimal notation; 0x10 and 1_000 are not.
func isNumber(field string) bool {
	field = strings.TrimSpace(field)
	if strings.ContainsAny(field, "xXpP_") {
		return false
	}
	_, err := strconv.ParseFloat(field, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// cellKinds are the kinds of a column's cells, the narrowest first.
var cellKinds = []struct {
	kind  Kind
	parse func(s string) (any, bool)
}{{Bool, parseBool}, {Int, parseInt}, {Float, parseFloat}, {Text, parseText}}

// column makes a column of the narrowest kind that all cells have.
func column(name string, cells []string, isMissing map[string]bool) *Column {
kinds:
	for _, is := range cellKinds {
		c := &Column{Name: name}
		for _, s := range cells {
			var v any
			if !isMissing[s] {
				var ok bool
				if v, ok = is.parse(s); !ok {
					continue kinds
				}
			}
			_ = c.Append(v) // of one kind
		}
		return c
	}
	return nil
}

func parseText(s string) (any, bool) { return s, true }

func parseBool(s string) (any, bool) {
	yes := strings.EqualFold(s, "true")
	return yes, yes || strings.EqualFold(s, "false")
}

func parseInt(s string) (any, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// parseFloat refuses integers that a float64 cannot hold exactly.
func parseFloat(s string) (any, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); errors.Is(err, strconv.ErrRange) || err == nil && !Exact(n) {
		return nil, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && isNumber(s)
}
