package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
)

// arrowReader reads record batches: of a file, which has an index of them, or of a stream.
type arrowReader struct {
	file   *ipc.FileReader // nil: a stream
	stream *ipc.Reader
	ends   *ending // of the stream
	memory *bounded
	fields []Field
	cells  []func(a arrow.Array, row int, left *budget) (any, error)
	wanted []int
	place  Place
	batch  arrow.RecordBatch // at the place; nil: not read yet
}

// bounded is memory of which only so much is given at a time.
type bounded struct {
	memory.Allocator
	used int
}

func (m *bounded) take(n int) {
	if m.used += n; m.used > maxBatch {
		m.used -= n
		panic(fmt.Errorf("its record batches and dictionaries take more than %d bytes", maxBatch))
	}
}

func (m *bounded) Allocate(size int) []byte {
	m.take(size)
	return m.Allocator.Allocate(size)
}

func (m *bounded) Reallocate(size int, b []byte) []byte {
	m.take(size - len(b))
	return m.Allocator.Reallocate(size, b)
}

func (m *bounded) Free(b []byte) {
	m.used -= len(b)
	m.Allocator.Free(b)
}

// ending remembers the last bytes of a stream, and where they end.
type ending struct {
	in   io.Reader
	n    int64
	last [8]byte
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.in.Read(p)
	e.n += int64(n)
	if n >= len(e.last) {
		copy(e.last[:], p[n-len(e.last):n])
	} else {
		copy(e.last[:], e.last[n:])
		copy(e.last[len(e.last)-n:], p[:n])
	}
	return n, err
}

// arrowMagic begins a file; a stream begins with its schema.
const arrowMagic = "ARROW1"

func openArrow(in Random, stream io.Reader, packed bool, columns []string) (_ Reader, err error) {
	r := &arrowReader{memory: &bounded{Allocator: memory.NewGoAllocator()}}
	options := []ipc.Option{ipc.WithAllocator(r.memory), ipc.WithMetadataSizeLimit(maxMetadata), ipc.WithBodySizeLimit(maxBatch)}
	head := make([]byte, len(arrowMagic))
	if packed {
		head = nil
	} else if n, err := in.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, err
	} else {
		head = head[:n]
	}
	var schema *arrow.Schema
	switch {
	case strings.HasPrefix(string(head), "FEA1"):
		return nil, errors.New("Feather's first version is not supported: write the file again (pyarrow.feather.write_feather)")
	case string(head) == arrowMagic:
		footer, err := arrowFooter(in)
		if err == nil {
			err = arrowSchema(footer, 1)
		}
		if err == nil {
			err = guarded(func() (err error) {
				r.file, err = ipc.NewFileReader(io.NewSectionReader(in, 0, in.Size()), options...)
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("the footer or a dictionary: %w", plainError(err))
		}
		schema = r.file.Schema()
	default:
		buffered := bufio.NewReaderSize(stream, 1<<16)
		message, before, err := arrowMessage(buffered)
		if err == nil {
			err = arrowSchema(message, -1)
		}
		if err != nil {
			return nil, fmt.Errorf("the schema: %w", err)
		}
		r.ends = &ending{in: io.MultiReader(bytes.NewReader(before), bytes.NewReader(message), buffered)}
		err = guarded(func() (err error) {
			r.stream, err = ipc.NewReaderFromMessageReader(ipc.NewMessageReader(r.ends, options...), options...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("the schema: %w", plainError(err))
		}
		schema = r.stream.Schema()
	}
	for _, f := range schema.Fields() {
		field, cells := arrowField(f)
		r.fields, r.cells = append(r.fields, field), append(r.cells, cells)
	}
	if r.wanted, err = choose(r.fields, columns); err != nil {
		return nil, err
	}
	return r, nil
}

// plainError leaves out the library's name.
func plainError(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "arrow/ipc: ", ""))
}

// arrowFooter reads the description at a file's end.
func arrowFooter(in Random) ([]byte, error) {
	size := in.Size()
	tail := make([]byte, 4+len(arrowMagic))
	if size < int64(8+len(tail)) {
		return nil, errors.New("truncated: too short")
	}
	if _, err := in.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[4:]) != arrowMagic {
		return nil, errors.New("truncated: it does not end with " + arrowMagic)
	}
	n := int64(int32(binary.LittleEndian.Uint32(tail)))
	if n <= 0 || n > size-int64(len(tail))-8 {
		return nil, fmt.Errorf("a footer of %d bytes does not fit into the file", n)
	}
	if n > maxMetadata {
		return nil, fmt.Errorf("the footer has %d bytes, and may have %d", n, maxMetadata)
	}
	footer := make([]byte, n)
	_, err := in.ReadAt(footer, size-int64(len(tail))-n)
	return footer, err
}

// arrowMessage reads the description of a stream's first message, and the bytes before it that tell its length.
func arrowMessage(in io.Reader) (message, before []byte, err error) {
	before = make([]byte, 4, 8)
	if _, err := io.ReadFull(in, before); err != nil {
		return nil, nil, errors.New("not an Arrow file or stream: it ends early")
	}
	if string(before) == "\xff\xff\xff\xff" {
		before = before[:8]
		if _, err := io.ReadFull(in, before[4:]); err != nil {
			return nil, nil, errors.New("truncated: it ends early")
		}
	}
	n := int32(binary.LittleEndian.Uint32(before[len(before)-4:]))
	if n < 4 || n > maxMetadata {
		return nil, nil, errors.New("not an Arrow file or stream")
	}
	content, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err == nil && len(content) < int(n) {
		err = errors.New("truncated: it ends early")
	}
	return content, before, err
}

// arrowSchema goes through the fields of a schema before the library does: they are tables that may share their children,
// so that a few bytes can stand for any number of fields. slot is where the table in buf has the schema: of a footer 1;
// of a message, -1, it is the header.
func arrowSchema(buf []byte, slot int) error {
	return guarded(func() error {
		root := flatbuffers.Table{Bytes: buf, Pos: flatbuffers.GetUOffsetT(buf)}
		field := func(t *flatbuffers.Table, slot int) flatbuffers.UOffsetT {
			return flatbuffers.UOffsetT(t.Offset(flatbuffers.VOffsetT(4 + 2*slot)))
		}
		schema := flatbuffers.Table{Bytes: buf}
		if slot < 0 {
			o := field(&root, 2)
			if kind := field(&root, 1); kind == 0 || root.GetByte(root.Pos+kind) != 1 || o == 0 {
				return errors.New("not an Arrow file or stream: it does not begin with a schema")
			}
			root.Union(&schema, o)
		} else {
			o := field(&root, slot)
			if o == 0 {
				return errors.New("there is none")
			}
			schema.Pos = root.Indirect(root.Pos + o)
		}
		// notes is an error if a table's list of names and values is longer than the bytes: the library makes one of as many.
		notes := func(t *flatbuffers.Table, slot int) error {
			if o := field(t, slot); o != 0 && int64(t.Vector(o))+4*int64(t.VectorLen(o)) > int64(len(buf)) {
				return errors.New("its metadata does not fit into it")
			}
			return nil
		}
		if err := notes(&root, 4); err != nil {
			return err
		}
		left := maxFields
		var walk func(t *flatbuffers.Table, slot, deep int) error
		walk = func(t *flatbuffers.Table, slot, deep int) error {
			if deep > 60 {
				return errors.New("its fields are nested more than 60 deep")
			}
			o := field(t, slot)
			if o == 0 {
				return notes(t, slot+1)
			}
			n, at := t.VectorLen(o), t.Vector(o)
			if err := notes(t, slot+1); err != nil {
				return err
			}
			if left -= n; left < 0 {
				return fmt.Errorf("more than %d fields", maxFields)
			}
			for i := range n {
				child := flatbuffers.Table{Bytes: buf, Pos: t.Indirect(at + flatbuffers.UOffsetT(4*i))}
				if err := walk(&child, 5, deep+1); err != nil {
					return err
				}
			}
			return nil
		}
		return walk(&schema, 1, 0)
	})
}

// arrowField is a field and what makes a cell of an element of its arrays.
func arrowField(f arrow.Field) (Field, func(a arrow.Array, row int, left *budget) (any, error)) {
	kind, cell := arrowCells(f.Type)
	return Field{Name: f.Name, Type: f.Type.String(), Kind: kind, Refused: cell == nil}, cell
}

type arrowCell = func(a arrow.Array, row int, left *budget) (any, error)

// cellsOf makes cells of an array's Value.
func cellsOf[A interface{ Value(int) T }, T any](kind Kind, cell func(v T) (any, error)) (Kind, arrowCell) {
	return kind, func(a arrow.Array, row int, _ *budget) (any, error) { return cell(any(a).(A).Value(row)) }
}

func whole[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](v T) (any, error) {
	return int64(v), nil
}

func floating[T float32 | float64](v T) (any, error) { return float64(v), nil }

func textCell(v string) (any, error)  { return strings.Clone(v), nil }
func bytesCell(v []byte) (any, error) { return bytes.Clone(v), nil }

func times[T ~int32 | ~int64](unit int64) func(v T) (any, error) {
	return func(v T) (any, error) { return micros(int64(v), unit) }
}

func unitOf(u arrow.TimeUnit) int64 {
	return map[arrow.TimeUnit]int64{arrow.Second: perSecond, arrow.Millisecond: perMilli, arrow.Microsecond: perMicro, arrow.Nanosecond: perNano}[u]
}

// arrowCells is what the cells of a type are, and what makes them; nil if the type is not supported.
func arrowCells(t arrow.DataType) (Kind, arrowCell) {
	switch t := t.(type) {
	case *arrow.NullType:
		return Empty, func(arrow.Array, int, *budget) (any, error) { return nil, nil }
	case *arrow.BooleanType:
		return cellsOf[*array.Boolean](Bool, func(v bool) (any, error) { return v, nil })
	case *arrow.Int8Type:
		return cellsOf[*array.Int8](Int, whole[int8])
	case *arrow.Int16Type:
		return cellsOf[*array.Int16](Int, whole[int16])
	case *arrow.Int32Type:
		return cellsOf[*array.Int32](Int, whole[int32])
	case *arrow.Int64Type:
		return cellsOf[*array.Int64](Int, whole[int64])
	case *arrow.Uint8Type:
		return cellsOf[*array.Uint8](Int, whole[uint8])
	case *arrow.Uint16Type:
		return cellsOf[*array.Uint16](Int, whole[uint16])
	case *arrow.Uint32Type:
		return cellsOf[*array.Uint32](Int, whole[uint32])
	case *arrow.Uint64Type:
		return cellsOf[*array.Uint64](Int, unsigned)
	case *arrow.Float16Type:
		return Float, func(a arrow.Array, row int, _ *budget) (any, error) {
			return half(a.(*array.Float16).Value(row).Uint16()), nil
		}
	case *arrow.Float32Type:
		return cellsOf[*array.Float32](Float, floating[float32])
	case *arrow.Float64Type:
		return cellsOf[*array.Float64](Float, floating[float64])
	case *arrow.StringType:
		return cellsOf[*array.String](Text, textCell)
	case *arrow.LargeStringType:
		return cellsOf[*array.LargeString](Text, textCell)
	case *arrow.StringViewType:
		return cellsOf[*array.StringView](Text, textCell)
	case *arrow.BinaryType:
		return cellsOf[*array.Binary](Any, bytesCell)
	case *arrow.LargeBinaryType:
		return cellsOf[*array.LargeBinary](Any, bytesCell)
	case *arrow.BinaryViewType:
		return cellsOf[*array.BinaryView](Any, bytesCell)
	case *arrow.FixedSizeBinaryType:
		return cellsOf[*array.FixedSizeBinary](Any, bytesCell)
	case *arrow.Date32Type:
		return cellsOf[*array.Date32](Int, times[arrow.Date32](perDay))
	case *arrow.Date64Type:
		return cellsOf[*array.Date64](Int, times[arrow.Date64](perMilli))
	case *arrow.TimestampType:
		return cellsOf[*array.Timestamp](Int, times[arrow.Timestamp](unitOf(t.Unit)))
	case *arrow.Time32Type:
		return cellsOf[*array.Time32](Int, times[arrow.Time32](unitOf(t.Unit)))
	case *arrow.Time64Type:
		return cellsOf[*array.Time64](Int, times[arrow.Time64](unitOf(t.Unit)))
	case *arrow.DurationType:
		return cellsOf[*array.Duration](Int, times[arrow.Duration](unitOf(t.Unit)))
	case arrow.DecimalType:
		scale := t.GetScale()
		if scale < -1000 || scale > 1000 {
			return Any, nil
		}
		return Float, func(a arrow.Array, row int, _ *budget) (any, error) {
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
			return Any, nil
		}
		return kind, func(a arrow.Array, row int, left *budget) (any, error) {
			d := a.(*array.Dictionary)
			return element(d.Dictionary(), d.GetValueIndex(row), of, left)
		}
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType, *arrow.MapType:
		_, of := arrowCells(t.(arrow.ListLikeType).Elem())
		if of == nil {
			return Any, nil
		}
		return Any, func(a arrow.Array, row int, left *budget) (any, error) {
			l := a.(array.ListLike)
			from, to := l.ValueOffsets(row)
			if from < 0 || to < from || to > int64(l.ListValues().Len()) {
				return nil, fmt.Errorf("a list of the elements from %d to %d, of %d", from, to, l.ListValues().Len())
			}
			list := []any{}
			for i := from; i < to; i++ {
				v, err := element(l.ListValues(), int(i), of, left)
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
				return Any, nil
			}
		}
		return Any, func(a arrow.Array, row int, left *budget) (any, error) {
			s := a.(*array.Struct)
			object := make(Object, len(fields))
			for i, of := range fields {
				v, err := element(s.Field(i), row, of, left)
				if err != nil {
					return nil, err
				}
				object[i] = Member{t.Field(i).Name, v}
			}
			return object, nil
		}
	}
	return Any, nil
}

// element is an element of an array as a cell.
func element(a arrow.Array, row int, cell arrowCell, left *budget) (any, error) {
	if row < 0 || row >= a.Len() {
		return nil, fmt.Errorf("there is no element %d of %d", row, a.Len())
	}
	if err := left.take(16); err != nil {
		return nil, err
	}
	if a.IsNull(row) {
		return nil, nil
	}
	v, err := cell(a, row, left)
	switch v := v.(type) {
	case string:
		err = errors.Join(err, left.take(len(v)))
	case []byte:
		err = errors.Join(err, left.take(len(v)))
	}
	return v, err
}

func (r *arrowReader) Fields() []Field { return r.fields }
func (r *arrowReader) Place() Place    { return r.place }

func (r *arrowReader) Close() {
	r.release()
	if r.file != nil {
		r.file.Close()
	}
	if r.stream != nil {
		r.stream.Release()
	}
}

func (r *arrowReader) release() {
	if r.batch != nil && r.file != nil { // a stream releases its own
		r.batch.Release()
	}
	r.batch = nil
}

// load reads the record batch at the place; false at the end.
func (r *arrowReader) load() (bool, error) {
	if r.batch != nil {
		return true, nil
	}
	n := r.place.Batch()
	located := func(err error) error {
		if r.stream != nil {
			return fmt.Errorf("record batch %d, before byte %d: %w", n, r.ends.n, plainError(err))
		}
		return fmt.Errorf("record batch %d: %w", n, plainError(err))
	}
	err := guarded(func() (err error) {
		if r.file == nil {
			r.batch, err = r.stream.Read()
		} else if n < r.file.NumRecords() {
			r.batch, err = r.file.RecordBatchAt(n)
		}
		return err
	})
	if err == io.EOF && r.stream != nil {
		if end := string(r.ends.last[:]); !strings.HasSuffix(end, "\xff\xff\xff\xff\x00\x00\x00\x00") && !strings.HasSuffix(end, "\x00\x00\x00\x00") {
			return false, located(errors.New("truncated: the stream has no end"))
		}
		err = nil
	}
	if err != nil {
		return false, located(err)
	}
	if r.batch == nil {
		return false, nil
	}
	if rows := r.batch.NumRows(); rows < 0 || rows > maxRows {
		return false, located(fmt.Errorf("it has %d rows, and may have %d", rows, maxRows))
	}
	for _, i := range r.wanted {
		if c := r.batch.Column(i); int64(c.Len()) != r.batch.NumRows() {
			return false, located(fmt.Errorf("column %s has %d cells of %d", short(r.fields[i].Name), c.Len(), r.batch.NumRows()))
		}
	}
	return true, nil
}

func (r *arrowReader) Seek(p Place) error {
	if r.file != nil {
		r.release()
		r.place = NewPlace(min(p.Batch(), r.file.NumRecords()), 0)
	}
	for r.place.Batch() < p.Batch() {
		more, err := r.load()
		if err != nil {
			return err
		}
		if !more {
			return fmt.Errorf("it has no record batch %d, where the checkpoint was: it has changed", p.Batch())
		}
		r.release()
		r.place = NewPlace(r.place.Batch()+1, 0)
	}
	if p.Row() > 0 {
		if more, err := r.load(); err != nil || !more || int64(p.Row()) > r.batch.NumRows() {
			return errors.Join(err, fmt.Errorf("it has no row %d of record batch %d, where the checkpoint was: it has changed", p.Row(), p.Batch()))
		}
	}
	r.place = p
	return nil
}

func (r *arrowReader) Next(limit int) (*Table, error) {
	for {
		more, err := r.load()
		if err != nil {
			return nil, err
		}
		if !more {
			return newTable(r.fields, r.wanted), io.EOF
		}
		if r.place.Row() < int(r.batch.NumRows()) {
			break
		}
		r.release()
		r.place = NewPlace(r.place.Batch()+1, 0)
	}
	t := newTable(r.fields, r.wanted)
	t.Rows = min(limit, int(r.batch.NumRows())-r.place.Row())
	left := newBudget(chunkBudget)
	for k, i := range r.wanted {
		row := r.place.Row()
		err := guarded(func() error {
			a := r.batch.Column(i)
			for ; row < r.place.Row()+t.Rows; row++ {
				v, err := element(a, row, r.cells[i], left)
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
			return nil, fmt.Errorf("record batch %d, row %d, column %s: %w", r.place.Batch(), row, short(r.fields[i].Name), err)
		}
	}
	r.place += Place(t.Rows)
	return t, nil
}
