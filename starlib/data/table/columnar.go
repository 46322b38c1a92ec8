package table

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"drun/internal/try"
)

// Reader reads a file of columns (Parquet, Arrow), some rows at a time, so that the file may be larger than memory.
// Files are not trusted: an error names the place in the file, and the column if the fault is in one.
type Reader struct {
	in     batches
	unit   string // what the format calls a batch
	fields []Field
	wanted []int
	place  Place
}

// batches is a file of columns in one format.
type batches interface {
	// rows is the number of rows in a batch, which is the one before or a later one; io.EOF for the one after the last.
	rows(batch int) (int, error)
	// open begins to read the batch for whose rows was asked last, unless that was done.
	open() error
	// cells returns the function for a column's cells, which are asked for one after the other.
	cells(column int) func(row int) (any, error)
	// end returns an error if a column of the batch has more cells than rows.
	end() error
	// rewind makes open begin anew.
	rewind()
	close()
}

// Fields are all columns of the file.
func (r *Reader) Fields() []Field { return r.fields }

// Place is that of the row with which Next continues. The rows that Next has read have consecutive places.
func (r *Reader) Place() Place { return r.place }

// Close closes the reader, not the file.
func (r *Reader) Close() { r.in.close() }

// errChanged is the error of a place that the file no longer has.
func (r *Reader) errChanged(p Place) error {
	return fmt.Errorf("it has no row %d of %s %d, where the checkpoint was: it has changed", p.Row(), r.unit, p.Batch())
}

// Seek moves to a place returned by Place; in Arrow, only forward.
func (r *Reader) Seek(p Place) error {
	n, err := r.in.rows(p.Batch())
	if err != nil && err != io.EOF {
		return err
	}
	if p.Row() > n {
		return r.errChanged(p)
	}
	r.in.rewind()
	r.place = NewPlace(p.Batch(), 0)
	for r.place < p { // reads the rows before it: nothing in the file can be trusted to say where it begins
		if _, err := r.Next(min(p.Row()-r.place.Row(), 4096)); err != nil {
			return err
		}
	}
	return nil
}

// Next reads at most limit rows of the wanted columns, all from one batch of the file. At the end it returns the columns
// without rows, and io.EOF.
func (r *Reader) Next(limit int) (*Table, error) {
	t := &Table{}
	for _, i := range r.wanted {
		t.Columns = append(t.Columns, &Column{Name: r.fields[i].Name, Kind: r.fields[i].Kind})
	}
	for t.Rows == 0 {
		n, err := r.in.rows(r.place.Batch())
		if err != nil {
			return t, err
		}
		if t.Rows = min(limit, n-r.place.Row()); t.Rows > 0 {
			break
		}
		if err := r.in.end(); err != nil {
			return nil, fmt.Errorf("%s %d, %w", r.unit, r.place.Batch(), err)
		}
		r.place = NewPlace(r.place.Batch()+1, 0)
	}
	if err := r.in.open(); err != nil {
		return nil, fmt.Errorf("%s %d, %w", r.unit, r.place.Batch(), err)
	}
	for k, i := range r.wanted {
		row := r.place.Row()
		err := guarded(func() error {
			cell := r.in.cells(i)
			for end := row + t.Rows; row < end; row++ {
				v, err := cell(row)
				if err == nil {
					err = t.Columns[k].Append(v)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s %d, row %d, column %s: %w", r.unit, r.place.Batch(), row, short(r.fields[i].Name), err)
		}
	}
	r.place += Place(t.Rows)
	return t, nil
}

// Field is a column of a file, and why it cannot be read, if it cannot.
type Field struct {
	Name    string
	Type    string // as the file's format names it
	Kind    Kind   // of its cells
	Refused bool   // its type is not supported
}

// Place is a row of a file: the number of its batch (a row group of Parquet, a record batch of Arrow) and its own number
// in that.
type Place int64

// NewPlace is a row of a batch.
func NewPlace(batch, row int) Place { return Place(batch)<<32 | Place(row) }

// Batch is the number of the batch.
func (p Place) Batch() int { return int(p >> 32) }

// Row is the number in the batch.
func (p Place) Row() int { return int(p & (1<<32 - 1)) }

// The largest message of an Arrow file: its description (schema, or the layout of a batch), and its body.
const (
	maxMetadata = 64 << 20
	maxBatch    = 1 << 30
)

// maxRows is how many rows a batch may have: a place has 32 bits for them.
const maxRows = math.MaxInt32

// ReadColumns reads all rows of a file.
func ReadColumns(r *Reader, largest int) (*Table, error) {
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

// size is about how many bytes the cells take.
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

// SizeOf is about how many bytes a value of a cell takes.
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

// choose finds the wanted columns among those of a file; nil wants all. One of a type that is not supported is an error.
func choose(fields []Field, columns []string) (_ []int, err error) {
	defer try.Caught(&err)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	try.Ok(unique(names))
	wanted := try.To(places(names, columns))
	for _, i := range wanted {
		if f := fields[i]; f.Refused {
			return nil, fmt.Errorf("column %s: its type, %s, is not supported; select the other columns with columns", short(f.Name), f.Type)
		}
	}
	try.FailIf(len(fields) == 0, "no columns")
	return wanted, nil
}

// guarded calls a function that reads a file through a library, and turns a panic into an error: the libraries index
// a file's content without checking bounds.
func guarded(what func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			switch p := p.(type) {
			case runtime.Error:
				err = errors.New("the data is corrupt: " + misread(p.Error()))
			case error:
				err = fmt.Errorf("the data is corrupt: %w", p)
			default:
				err = fmt.Errorf("the data is corrupt: %v", p)
			}
		}
	}()
	return what()
}

// misread says what is wrong with a file that made a library panic.
func misread(stumble string) string {
	if strings.Contains(stumble, "out of range") || strings.Contains(stumble, "memory address") {
		return "a length or a position in it leads outside of the data"
	}
	return "a part of it is not what its description says"
}

// Units of time: microseconds in a unit or, if negative, units in a microsecond.
const (
	perSecond = 1_000_000
	perMilli  = 1000
	perMicro  = 1
	perNano   = -1000
	perDay    = 86_400 * perSecond
)

// micros is a time in microseconds; an error if int64 cannot hold it exactly.
func micros(n, unit int64) (any, error) {
	if unit < 0 {
		if n%-unit != 0 {
			return nil, fmt.Errorf("the time %d ns is not a whole number of microseconds", n)
		}
		return n / -unit, nil
	}
	if n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return nil, fmt.Errorf("the time %d does not fit into 64 bits as microseconds", n)
	}
	return n * unit, nil
}

// decimal is the float64 nearest to n / 10^scale, if n has no more digits than a float64 holds.
func decimal(n *big.Int, scale int32) (any, error) {
	if !n.IsInt64() || !exact(n.Int64()) {
		return nil, fmt.Errorf("the decimal %s (with %d places) has more digits than a float64 holds", short(n.String()), scale)
	}
	return strconv.ParseFloat(n.String()+"e"+strconv.Itoa(-int(scale)), 64)
}

// half is the number in the bits of a float16. arrow-go misreads those below 2^-14.
func half(bits uint16) float64 {
	sign := 1.0
	if bits>>15 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// unsigned is an integer of 64 bits without a sign.
func unsigned(n uint64) (any, error) {
	if n > math.MaxInt64 {
		return nil, fmt.Errorf("%d does not fit int64", n)
	}
	return int64(n), nil
}

// IsColumns reports whether OpenColumns reads a format.
func IsColumns(format string) bool { return format == "arrow" || format == "parquet" }

// Random is a file that can be read at any position.
type Random interface {
	io.ReaderAt
	Size() int64
}

// OpenColumns opens a file of columns; columns are the wanted ones, nil for all. in reads the file from its start,
// unpacked if compressed, which only works for an Arrow stream.
func OpenColumns(format string, file Random, in io.Reader, packed bool, columns []string) (*Reader, error) {
	switch {
	case format == "parquet" && packed:
		return nil, errors.New("a Parquet file is not read beneath gzip or zstd: unpack it; its pages may be compressed")
	case format == "parquet":
		return openParquet(file, columns)
	}
	return openArrow(file, in, packed, columns)
}
