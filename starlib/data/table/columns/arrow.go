package columns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"drun/starlib/data/table"
)

// arrowReader reads the record batches of a file or a stream, one after the other. A file, too, is a stream between its
// magic and its footer; the footer is not read.
type arrowReader struct {
	stream   *ipc.Reader
	messages *arrowMessages
	of       []arrowCell // for the columns
	wanted   []int
	at       int               // the number of the batch
	batch    arrow.RecordBatch // nil: not read yet
}

// arrowMessages reads messages, skips record batches, and tells a complete stream from one that is cut off,
// which ipc.Reader does not.
type arrowMessages struct {
	ipc.MessageReader
	in   io.Reader
	n    int64 // bytes read
	skip int   // record batches to skip before the next message
}

// Read counts the bytes that the library reads.
func (m *arrowMessages) Read(b []byte) (int, error) {
	n, err := m.in.Read(b)
	m.n += int64(n)
	return n, err
}

// Message returns the next message, valid until the next call; io.EOF is the stream's end marker, which must be there.
func (m *arrowMessages) Message() (*ipc.Message, error) {
	for {
		message, err := m.MessageReader.Message()
		switch {
		case err == io.EOF:
			return nil, err
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("truncated: it ends early")
		case err != nil || m.skip == 0 || message.Type() != ipc.MessageRecordBatch:
			return message, err
		}
		m.skip--
	}
}

// bounded refuses buffers that would exhaust memory, so that the recipe gets an error instead of the process being killed.
type bounded struct{ memory.Allocator }

func (m bounded) Allocate(size int) []byte {
	if size > maxBatch {
		panic(fmt.Errorf("a buffer of %d bytes: at most %d are allowed", size, maxBatch))
	}
	return m.Allocator.Allocate(size)
}

// arrowMagic begins a file, with two bytes more, and ends it; a stream begins with its schema.
const arrowMagic = "ARROW1"

func openArrow(in table.Random, stream io.Reader, packed bool, columns []string) (_ table.Columns, err error) {
	m := &arrowMessages{in: stream}
	if head := make([]byte, len(arrowMagic)); !packed {
		n, err := in.ReadAt(head, 0)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if strings.HasPrefix(string(head[:n]), "FEA1") {
			return nil, errors.New("this is Feather's first version, which is not supported: write the file again (pyarrow.feather.write_feather)")
		}
		if string(head[:n]) == arrowMagic {
			if _, err := in.ReadAt(head, max(8, in.Size()-int64(len(head)))); string(head) != arrowMagic || err != nil && err != io.EOF {
				return nil, errors.Join(errors.New("truncated: it does not end with "+arrowMagic), err)
			}
			m.in, m.n = io.NewSectionReader(in, 8, in.Size()-8), 8
		}
	}
	m.MessageReader = ipc.NewMessageReader(m, ipc.WithMetadataSizeLimit(maxMetadata), ipc.WithBodySizeLimit(maxBatch))
	r := &arrowReader{messages: m}
	if r.stream, err = ipc.NewReaderFromMessageReader(m, ipc.WithAllocator(bounded{memory.NewGoAllocator()})); err != nil {
		return nil, fmt.Errorf("not an Arrow file or stream, or its schema is corrupt: %w", plainError(err))
	}
	var fields []table.Field
	for _, f := range r.stream.Schema().Fields() {
		kind, cell := arrowCells(f.Type)
		fields = append(fields, table.Field{Name: f.Name, Type: f.Type.String(), Kind: kind, Refused: cell == nil})
		r.of = append(r.of, cell)
	}
	if r.wanted, err = table.Choose(fields, columns); err != nil {
		return nil, err
	}
	return &reader{in: r, unit: "record batch", fields: fields, wanted: r.wanted}, nil
}

// plainError removes from an error the library's name, and its internals after a panic.
func plainError(err error) error {
	text := strings.NewReplacer("arrow/ipc: ", "", "unknown error while reading: ", "").Replace(err.Error())
	if _, stumble, ok := strings.Cut(text, "runtime error: "); ok {
		text = "the data is corrupt: " + misread(stumble)
	} else if strings.Contains(text, "interface conversion: ") {
		text = "the data is corrupt: " + misread("")
	}
	return errors.New(text)
}

type arrowCell = func(a arrow.Array, row int) (any, error)

// cellOf makes cells from an array's Value.
func cellOf[A interface{ Value(int) T }, T any](cell func(v T) (any, error)) arrowCell {
	return func(a arrow.Array, row int) (any, error) { return cell(any(a).(A).Value(row)) }
}

func whole[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](v T) (any, error) {
	return int64(v), nil
}

func floating[T float32 | float64](v T) (any, error) { return float64(v), nil }
func boolCell(v bool) (any, error)                   { return v, nil }
func halfCell(v float16.Num) (any, error)            { return half(v.Uint16()), nil }
func textCell(v string) (any, error)                 { return strings.Clone(v), nil }
func bytesCell(v []byte) (any, error)                { return bytes.Clone(v), nil }

func times[T ~int32 | ~int64](unit int64) func(v T) (any, error) {
	return func(v T) (any, error) { return micros(int64(v), unit) }
}

func unitOf(u arrow.TimeUnit) int64 {
	return map[arrow.TimeUnit]int64{arrow.Second: perSecond, arrow.Millisecond: perMilli, arrow.Microsecond: perMicro, arrow.Nanosecond: perNano}[u]
}

var plainTypes = map[arrow.Type]struct {
	kind table.Kind
	cell arrowCell
}{
	arrow.NULL:              {table.Empty, func(arrow.Array, int) (any, error) { return nil, nil }},
	arrow.BOOL:              {table.Bool, cellOf[*array.Boolean](boolCell)},
	arrow.INT8:              {table.Int, cellOf[*array.Int8](whole[int8])},
	arrow.INT16:             {table.Int, cellOf[*array.Int16](whole[int16])},
	arrow.INT32:             {table.Int, cellOf[*array.Int32](whole[int32])},
	arrow.INT64:             {table.Int, cellOf[*array.Int64](whole[int64])},
	arrow.UINT8:             {table.Int, cellOf[*array.Uint8](whole[uint8])},
	arrow.UINT16:            {table.Int, cellOf[*array.Uint16](whole[uint16])},
	arrow.UINT32:            {table.Int, cellOf[*array.Uint32](whole[uint32])},
	arrow.UINT64:            {table.Int, cellOf[*array.Uint64](unsigned)},
	arrow.FLOAT16:           {table.Float, cellOf[*array.Float16](halfCell)},
	arrow.FLOAT32:           {table.Float, cellOf[*array.Float32](floating[float32])},
	arrow.FLOAT64:           {table.Float, cellOf[*array.Float64](floating[float64])},
	arrow.STRING:            {table.Text, cellOf[*array.String](textCell)},
	arrow.LARGE_STRING:      {table.Text, cellOf[*array.LargeString](textCell)},
	arrow.STRING_VIEW:       {table.Text, cellOf[*array.StringView](textCell)},
	arrow.BINARY:            {table.Any, cellOf[*array.Binary](bytesCell)},
	arrow.LARGE_BINARY:      {table.Any, cellOf[*array.LargeBinary](bytesCell)},
	arrow.BINARY_VIEW:       {table.Any, cellOf[*array.BinaryView](bytesCell)},
	arrow.FIXED_SIZE_BINARY: {table.Any, cellOf[*array.FixedSizeBinary](bytesCell)},
	arrow.DATE32:            {table.Int, cellOf[*array.Date32](times[arrow.Date32](perDay))},
	arrow.DATE64:            {table.Int, cellOf[*array.Date64](times[arrow.Date64](perMilli))},
}

// arrowCells returns the kind of a type's cells, and the function that makes them; nil if the type is not supported.
func arrowCells(t arrow.DataType) (table.Kind, arrowCell) {
	switch t := t.(type) {
	case *arrow.TimestampType:
		return table.Int, cellOf[*array.Timestamp](times[arrow.Timestamp](unitOf(t.Unit)))
	case *arrow.Time32Type:
		return table.Int, cellOf[*array.Time32](times[arrow.Time32](unitOf(t.Unit)))
	case *arrow.Time64Type:
		return table.Int, cellOf[*array.Time64](times[arrow.Time64](unitOf(t.Unit)))
	case *arrow.DurationType:
		return table.Int, cellOf[*array.Duration](times[arrow.Duration](unitOf(t.Unit)))
	case arrow.DecimalType:
		scale := t.GetScale()
		if scale < -1000 || scale > 1000 {
			return table.Any, nil
		}
		return table.Float, func(a arrow.Array, row int) (any, error) {
			var n *big.Int
			switch a := a.(type) {
			case *array.Decimal32:
				n = big.NewInt(int64(a.Value(row)))
			case *array.Decimal64:
				n = big.NewInt(int64(a.Value(row)))
			case *array.Decimal128:
				n = a.Value(row).BigInt()
			case *array.Decimal256:
				n = a.Value(row).BigInt()
			}
			return decimal(n, scale)
		}
	case *arrow.DictionaryType:
		kind, of := arrowCells(t.ValueType)
		if of == nil {
			return table.Any, nil
		}
		return kind, func(a arrow.Array, row int) (any, error) {
			d := a.(*array.Dictionary)
			return element(d.Dictionary(), d.GetValueIndex(row), of)
		}
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType, *arrow.MapType:
		_, of := arrowCells(t.(arrow.ListLikeType).Elem())
		if of == nil {
			return table.Any, nil
		}
		return table.Any, func(a arrow.Array, row int) (any, error) {
			l := a.(array.ListLike)
			from, to := l.ValueOffsets(row)
			if from < 0 || to < from || to > int64(l.ListValues().Len()) {
				return nil, fmt.Errorf("a list of the elements from %d to %d, of %d", from, to, l.ListValues().Len())
			}
			list := []any{}
			for i := from; i < to; i++ {
				v, err := element(l.ListValues(), int(i), of)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			return list, nil
		}
	case *arrow.StructType:
		fields := make([]arrowCell, t.NumFields())
		for i, f := range t.Fields() {
			if _, fields[i] = arrowCells(f.Type); fields[i] == nil {
				return table.Any, nil
			}
		}
		return table.Any, func(a arrow.Array, row int) (any, error) {
			s := a.(*array.Struct)
			object := make(table.Object, len(fields))
			for i, of := range fields {
				v, err := element(s.Field(i), row, of)
				if err != nil {
					return nil, err
				}
				object[i] = table.Member{Name: t.Field(i).Name, Value: v}
			}
			return object, nil
		}
	}
	plain := plainTypes[t.ID()]
	return plain.kind, plain.cell
}

func element(a arrow.Array, row int, cell arrowCell) (any, error) {
	if row < 0 || row >= a.Len() {
		return nil, fmt.Errorf("there is no element %d of %d", row, a.Len())
	}
	if a.IsNull(row) {
		return nil, nil
	}
	return cell(a, row)
}

func (r *arrowReader) close()      { r.stream.Release() }
func (r *arrowReader) open() error { return nil }
func (r *arrowReader) end() error  { return nil }
func (r *arrowReader) rewind()     {}

func (r *arrowReader) cells(column int) func(row int) (any, error) {
	a, of := r.batch.Column(column), r.of[column]
	return func(row int) (any, error) { return element(a, row, of) }
}

func (r *arrowReader) rows(batch int) (int, error) {
	if r.batch != nil && batch == r.at {
		return int(r.batch.NumRows()), nil
	}
	if r.messages.skip = batch - r.at; r.batch != nil {
		r.messages.skip--
	}
	r.at, r.batch = batch, nil
	err := guarded(func() (err error) {
		r.batch, err = r.stream.Read()
		return err
	})
	if err == io.EOF {
		if r.messages.skip > 0 {
			err = fmt.Errorf("it has no record batch %d, where the checkpoint was: it has changed", batch)
		}
		return 0, err
	}
	var rows int64
	if err == nil {
		if rows = r.batch.NumRows(); rows < 0 || rows > maxRows {
			err = fmt.Errorf("it has %d rows: at most %d are allowed", rows, maxRows)
		}
		for _, i := range r.wanted {
			if c := r.batch.Column(i); int64(c.Len()) != rows {
				err = fmt.Errorf("column %s has %d cells of %d", table.Short(r.batch.ColumnName(i)), c.Len(), rows)
			}
		}
	}
	if err != nil {
		return 0, fmt.Errorf("record batch %d, before byte %d: %w", batch, r.messages.n, plainError(err))
	}
	return int(rows), nil
}
