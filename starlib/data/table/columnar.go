package table

import (
	"fmt"
	"io"

	"drun/internal/each"
	"drun/internal/try"
)

// Columns reads a file of columns (Parquet, Arrow), some rows at a time, so that the file may be larger than memory.
// Files are not trusted: an error names the place in the file, and the column if the fault is in one.
type Columns interface {
	// Fields returns all columns of the file.
	Fields() []Field
	// Place returns the position of the row that Next reads next. The rows that a call of Next reads have consecutive positions.
	Place() Place
	// Seek moves to a place returned by Place; in Arrow, only forward.
	Seek(Place) error
	// Next reads at most limit rows of the wanted columns, all from one batch of the file. At the end it returns the
	// columns without rows, and io.EOF.
	Next(limit int) (*Table, error)
	// Close closes the reader, not the file.
	Close()
}

// Field is a column of a file, and why it cannot be read, if it cannot.
type Field struct {
	Name    string
	Type    string // as the file's format names it
	Kind    Kind   // of its cells
	Refused bool   // its type is not supported
}

// Place is the position of a row in a file: the number of its batch (a row group in Parquet, a record batch in Arrow), and its number within
// the batch.
type Place int64

// NewPlace returns the position of a row of a batch.
func NewPlace(batch, row int) Place { return Place(batch)<<32 | Place(row) }

func (p Place) Batch() int { return int(p >> 32) }

// Row returns the row's number within the batch.
func (p Place) Row() int { return int(p & (1<<32 - 1)) }

// Random is a file that can be read at any position.
type Random interface {
	io.ReaderAt
	Size() int64
}

// IsColumns reports whether OpenColumns reads a format.
func IsColumns(format string) bool { return format == "arrow" || format == "parquet" }

// openers are the formats that the program can open. Their libraries are large, so only programs that need them link them.
var openers = map[string]Opener{}

// Opener opens a file of one format, as OpenColumns does.
type Opener = func(file Random, in io.Reader, packed bool, columns []string) (Columns, error)

// Register makes open the function that OpenColumns calls for a format; a package that reads the format calls it from init.
func Register(format string, open Opener) { openers[format] = open }

// OpenColumns opens a file of columns; columns are the wanted ones, nil for all. in reads the file from its start,
// decompressed if need be, which only works for an Arrow stream.
func OpenColumns(format string, file Random, in io.Reader, packed bool, columns []string) (Columns, error) {
	open := openers[format]
	if open == nil {
		return nil, fmt.Errorf("this program was built without the reader of %s files: its main package must import drun/starlib/data/table/columns", format)
	}
	return open(file, in, packed, columns)
}

// ReadColumns reads all rows of a file.
func ReadColumns(r Columns, largest int) (*Table, error) {
	var all *Table
	left := newBudget(largest)
	for {
		from := r.Place()
		t, err := r.Next(1 << 16)
		if err == io.EOF {
			if all == nil {
				all = t
			}
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if err := left.take(t.size()); err != nil {
			return nil, fmt.Errorf("row %d of batch %d: %w", from.Row(), from.Batch(), err)
		}
		if all == nil {
			all = t
			continue
		}
		for i, c := range all.Columns {
			c.extend(t.Columns[i])
		}
		all.Rows += t.Rows
	}
}

// size returns about how many bytes the cells take.
func (t *Table) size() int {
	n := 0
	for _, c := range t.Columns {
		n += len(c.Bools) + 8*len(c.Ints) + 8*len(c.Floats) + 16*len(c.Texts) + len(c.Missing)
		for _, s := range c.Texts {
			n += len(s)
		}
		for _, v := range c.Values {
			n += SizeOf(v)
		}
	}
	return n
}

// SizeOf returns about how many bytes a cell's value takes.
func SizeOf(v any) int {
	n := 24
	switch v := v.(type) {
	case string:
		n += len(v)
	case []byte:
		n += len(v)
	case []any:
		for _, x := range v {
			n += SizeOf(x)
		}
	case Object:
		for _, m := range v {
			n += 16 + len(m.Name) + SizeOf(m.Value)
		}
	}
	return n
}

// extend adds the cells of a column of the same kind.
func (c *Column) extend(more *Column) {
	if c.Missing == nil && more.Missing != nil {
		c.Missing = make([]bool, c.Len(), c.Len()+more.Len())
	} else if c.Missing != nil && more.Missing == nil {
		c.Missing = append(c.Missing, make([]bool, more.Len())...)
	}
	c.Missing = append(c.Missing, more.Missing...)
	c.Bools = append(c.Bools, more.Bools...)
	c.Ints = append(c.Ints, more.Ints...)
	c.Floats = append(c.Floats, more.Floats...)
	c.Texts = append(c.Texts, more.Texts...)
	c.Values = append(c.Values, more.Values...)
}

// Choose finds the wanted columns among those of a file; nil means all. A wanted column of a type that is not supported is an error.
func Choose(fields []Field, columns []string) (_ []int, err error) {
	defer try.Caught(&err)
	names := each.Of(fields, func(f Field) string { return f.Name })
	try.Ok(unique(names))
	wanted := try.To(places(names, columns))
	for _, i := range wanted {
		if f := fields[i]; f.Refused {
			return nil, fmt.Errorf("column %s: its type, %s, is not supported; select the other columns with columns", Short(f.Name), f.Type)
		}
	}
	try.FailIf(len(fields) == 0, "no columns")
	return wanted, nil
}
