package table

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"drun/internal/each"
	"drun/internal/try"
)

// MaxDepth is how deeply lists and objects of a JSON value may nest.
const MaxDepth = 100

// ReadLine reads a line with its line end; the next call reuses its memory. A line of more than MaxRecord bytes is an error.
func ReadLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	long := bytes.Clone(line)
	for err == bufio.ErrBufferFull {
		if len(long) > MaxRecord {
			return nil, fmt.Errorf("a line of more than %d bytes", MaxRecord)
		}
		line, err = in.ReadSlice('\n')
		long = append(long, line...)
	}
	return long, err
}

// Lines calls visit for each non-blank line of a text, with its number, counted from 1.
func Lines(in io.Reader, visit func(number int, line []byte) error) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		line, err := ReadLine(r)
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := visit(number, line); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// Member is an entry of a JSON object.
type Member struct {
	Name  string
	Value any
}

// Object is a JSON object, in the order of the file.
type Object []Member

// ParseJSON reads one JSON value: nil, bool, int64, float64, string, []any or Object. An integer that does not fit in
// 64 bits is an error, as are duplicate names and deep nesting; errors name the byte.
func ParseJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("unexpected data after the value")
		}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("the value ends early")
	}
	if err != nil {
		return nil, fmt.Errorf("byte %d: %w", d.InputOffset(), err)
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (_ any, err error) {
	defer try.Caught(&err)
	t := try.To(d.Token())
	switch t := t.(type) {
	case json.Number:
		return number(string(t))
	case json.Delim:
		try.FailIf(depth == MaxDepth, "lists and objects are nested more than %d deep", MaxDepth)
		if t == '[' {
			list := []any{}
			for d.More() {
				v := try.To(parseValue(d, depth+1))
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		var object Object
		seen := map[string]bool{}
		for d.More() {
			t := try.To(d.Token())
			name, _ := t.(string)
			if seen[name] {
				return nil, fmt.Errorf("the object has %s twice", Short(name))
			}
			seen[name] = true
			v := try.To(parseValue(d, depth+1))
			object = append(object, Member{name, v})
		}
		_, err := d.Token()
		return object, err
	}
	return t, nil // nil, bool, string
}

func number(s string) (any, error) {
	if !bytes.ContainsAny([]byte(s), ".eE") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s does not fit into 64 bits", Short(s))
		}
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("%s does not fit into a float64", Short(s))
	}
	return f, nil
}

// JSONLines reads a file of JSON objects, one per line. Its columns are the names in any of them, in order of first
// occurrence; if an object lacks a name, or has null, the cell is missing.
func JSONLines(in io.Reader, columns []string, largest int) (_ *Table, err error) {
	defer try.Caught(&err)
	t := &Table{}
	try.Ok(t.readObjects(in, columns, newBudget(largest), nil))
	if columns != nil {
		order := try.To(places(t.Names(), columns))
		sorted := each.Of(order, func(k int) *Column { return t.Columns[k] })
		t.Columns = sorted
	}
	return t, nil
}

// readObjects appends the rows of a file of JSON objects. after, unless nil, is called after each, and may remove rows.
func (t *Table) readObjects(in io.Reader, columns []string, left *budget, after func()) (err error) {
	defer try.Caught(&err)
	at := map[string]int{}
	rows := 0
	want := map[string]bool{}
	for _, name := range columns {
		want[name] = true
	}
	try.Ok(Lines(in, func(_ int, line []byte) (err error) {
		defer try.Caught(&err)
		try.Ok(left.take(2 * len(line)))
		v := try.To(ParseJSON(line))
		object, ok := v.(Object)
		if !ok {
			return fmt.Errorf("want a JSON object, got %s", Short(string(line)))
		}
		try.Ok(left.take(16 * (len(t.Columns) + len(object))))
		for _, m := range object {
			if columns != nil && !want[m.Name] {
				continue
			}
			k, known := at[m.Name]
			if !known {
				k = len(t.Columns)
				at[m.Name] = k
				try.Ok(left.take(16 * t.Rows))
				c := &Column{Name: m.Name}
				for range t.Rows {
					_ = c.Append(nil)
				}
				t.Columns = append(t.Columns, c)
			}
			if err := t.Columns[k].Append(m.Value); err != nil {
				return fmt.Errorf("column %s: %w", Short(m.Name), err)
			}
		}
		rows++
		t.Rows++
		for _, c := range t.Columns {
			if c.Len() < t.Rows {
				_ = c.Append(nil)
			}
		}
		if after != nil {
			after()
		}
		return nil
	}))
	try.FailIf(rows == 0, "no rows")
	return nil
}
