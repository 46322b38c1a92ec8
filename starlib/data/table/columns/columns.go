// Package columns reads Parquet and Arrow files. A program that imports it can open them with table.OpenColumns.
package columns

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

	"github.com/x448/float16"

	"drun/starlib/data/table"
)

func init() {
	table.Register("arrow", openArrow)
	table.Register("parquet", openParquet)
}

// reader is a table.Columns of either format.
type reader struct {
	in     batches
	unit   string // what the format calls a batch
	fields []table.Field
	wanted []int
	place  table.Place
}

// batches is a file of columns in one format.
type batches interface {
	// rows returns the number of rows in a batch, the same as in the call before or a later one; io.EOF for the one after the last.
	rows(batch int) (int, error)
	// open begins reading the batch that rows was last called for, unless it is open already.
	open() error
	// cells returns the function for a column's cells, which are asked for one after the other.
	cells(column int) func(row int) (any, error)
	// end returns an error if a column of the batch has more cells than rows.
	end() error
	// rewind makes open start the batch over.
	rewind()
	close()
}

func (r *reader) Fields() []table.Field { return r.fields }

func (r *reader) Place() table.Place { return r.place }

func (r *reader) Close() { r.in.close() }

// errChanged is the error of a place that the file no longer has.
func (r *reader) errChanged(p table.Place) error {
	return fmt.Errorf("it has no row %d of %s %d, where the checkpoint was: it has changed", p.Row(), r.unit, p.Batch())
}

func (r *reader) Seek(p table.Place) error {
	n, err := r.in.rows(p.Batch())
	if err != nil && err != io.EOF {
		return err
	}
	if p.Row() > n {
		return r.errChanged(p)
	}
	r.in.rewind()
	r.place = table.NewPlace(p.Batch(), 0)
	for r.place < p { // read the rows before it: nothing in the file can be trusted to say where it begins
		if _, err := r.Next(min(p.Row()-r.place.Row(), 4096)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) Next(limit int) (*table.Table, error) {
	t := &table.Table{}
	for _, i := range r.wanted {
		t.Columns = append(t.Columns, &table.Column{Name: r.fields[i].Name, Kind: r.fields[i].Kind})
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
		r.place = table.NewPlace(r.place.Batch()+1, 0)
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
			return nil, fmt.Errorf("%s %d, row %d, column %s: %w", r.unit, r.place.Batch(), row, table.Short(r.fields[i].Name), err)
		}
	}
	r.place += table.Place(t.Rows)
	return t, nil
}

// The largest message of an Arrow file: its description (schema, or the layout of a batch), and its body.
const (
	maxMetadata = 64 << 20
	maxBatch    = 1 << 30
)

// maxRows is how many rows a batch may have: Place has 32 bits for a row's number.
const maxRows = math.MaxInt32

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
		return "a length or a position in it points outside the data"
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

// micros converts a time to microseconds; an error if int64 cannot hold it exactly.
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

// decimal returns the float64 nearest to n / 10^scale; an error if n has more digits than a float64 holds.
func decimal(n *big.Int, scale int32) (any, error) {
	if !n.IsInt64() || !table.Exact(n.Int64()) {
		return nil, fmt.Errorf("the decimal %s (with %d places) has more digits than a float64 holds", table.Short(n.String()), scale)
	}
	return strconv.ParseFloat(n.String()+"e"+strconv.Itoa(-int(scale)), 64)
}

// half converts the bits of a float16. arrow-go misreads numbers below 2^-14.
func half(bits uint16) float64 {
	if h := float16.Frombits(bits); !h.IsNaN() {
		return float64(h.Float32())
	}
	return math.NaN() // always with the same bits
}

// unsigned makes a cell of an unsigned 64-bit integer.
func unsigned(n uint64) (any, error) {
	if n > math.MaxInt64 {
		return nil, fmt.Errorf("%d does not fit int64", n)
	}
	return int64(n), nil
}
