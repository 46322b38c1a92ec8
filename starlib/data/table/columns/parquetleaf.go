package columns

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"

	"drun/internal/try"
	"drun/starlib/data/table"
)

// leaf is a sequence of values.
type leaf struct {
	path    string
	index   int
	def     int // the highest level of its values
	rep     int
	length  int64 // the bytes of each value of a FixedLenByteArray; else 0
	value   func(parquet.Value) (any, error)
	values  parquet.ColumnChunkValueReader
	buffer  [128]parquet.Value
	n, next int
}

func (r *parquetReader) openLeaf(l *leaf, group int) error {
	return guarded(func() (err error) {
		defer try.Caught(&err)
		chunk := &r.file.Metadata().RowGroups[group].Columns[l.index]
		try.FailIf(chunk.FilePath != "", "its data is in another file, which is not supported")
		fixed := l.length > 0 && slices.Contains(chunk.MetaData.Encoding, format.DeltaByteArray)
		if fixed || chunk.MetaData.Codec == format.Lz4Raw {
			try.Ok(r.checkPages(l, &chunk.MetaData))
		}
		l.values = parquet.NewColumnChunkValueReader(r.file.RowGroups()[group].ColumnChunks()[l.index])
		return nil
	})
}

// checkPages finds damage that the library does not: fixed-length values in DELTA_BYTE_ARRAY that have another
// length, which it would read at wrong positions, and corrupt LZ4, for which it would allocate ever more memory.
func (r *parquetReader) checkPages(l *leaf, m *format.ColumnMetaData) (err error) {
	defer try.Caught(&err)
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	for end := at + m.TotalCompressedSize; at < end; {
		section := io.NewSectionReader(r.in, at, end-at)
		in := bufio.NewReader(section)
		var h format.PageHeader
		err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(in)).Decode(&h)
		try.FailIf(err != nil, "byte %d: a page's header is corrupt: %w", at, err)
		content, err := io.ReadAll(io.LimitReader(in, int64(h.CompressedPageSize)))
		if err == nil {
			err = l.checkPage(&h, m.Codec, content)
		}
		try.FailIf(err != nil, "byte %d: %w", at, err)
		size, _ := section.Seek(0, io.SeekCurrent)
		at += size - int64(in.Buffered())
	}
	return nil
}

func (l *leaf) checkPage(h *format.PageHeader, codec format.CompressionCodec, content []byte) (err error) {
	v2 := h.DataPageHeaderV2.V
	encoding := h.DataPageHeader.V.Encoding
	if h.Type == format.DataPageV2 {
		encoding = v2.Encoding
		content = content[v2.RepetitionLevelsByteLength+v2.DefinitionLevelsByteLength:]
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			codec = format.Uncompressed
		}
	}
	if codec == format.Lz4Raw && len(content) > 0 {
		space := make([]byte, h.UncompressedPageSize)
		n, err := lz4.UncompressBlock(content, space)
		if err != nil {
			return fmt.Errorf("a page's LZ4 data is corrupt, or unpacks to more than the %d bytes that its header says", len(space))
		}
		content = space[:n]
	} else if content, err = parquet.LookupCompressionCodec(codec).Decode(nil, content); err != nil {
		return fmt.Errorf("a page's %s data is corrupt: %w", codec, err)
	}
	if l.length == 0 || h.Type == format.DictionaryPage || encoding != format.DeltaByteArray {
		return nil
	}
	for _, highest := range []int{l.rep, l.def} {
		if h.Type == format.DataPage && highest > 0 { // levels
			content = content[4+binary.LittleEndian.Uint32(content):]
		}
	}
	_, offsets, err := parquet.DeltaByteArray.DecodeByteArray(nil, content, nil)
	for i := 1; i < len(offsets) && err == nil; i++ {
		if n := int64(offsets[i]) - int64(offsets[i-1]); n != l.length {
			err = fmt.Errorf("a page's value %d has %d bytes, and must have %d", i-1, n, l.length)
		}
	}
	return err
}

// peek returns the next value; nil at the end of the row group.
func (l *leaf) peek() (*parquet.Value, error) {
	if l.next == l.n {
		n, err := l.values.ReadValues(l.buffer[:])
		if l.n, l.next = n, 0; n == 0 {
			if err == io.EOF {
				err = nil
			}
			return nil, err
		}
	}
	return &l.buffer[l.next], nil
}

var errFewValues = errors.New("it has fewer values than rows")

func (l *leaf) take() (*parquet.Value, error) {
	v, err := l.peek()
	if err == nil && v == nil {
		err = errFewValues
	}
	l.next++
	return v, err
}

func (l *leaf) close() {
	if l.values != nil {
		l.values.Close()
	}
	l.values, l.n, l.next = nil, 0, 0
}

// julianEpoch is 1970-01-01 as a Julian day, from which Int96 counts.
const julianEpoch = 2440588

type leafCell = func(v parquet.Value) (any, error)

// leafType returns the name of a leaf's type, the kind of its cells, and the function that makes a cell from a value; nil if
// the type is not supported.
func leafType(c *parquet.Column, e *format.SchemaElement) (name string, kind table.Kind, cell leafCell) {
	physical := e.Type.V
	name = physical.String()
	var logical any = e.LogicalType.Value
	if e.LogicalType.Value != nil {
		name = e.LogicalType.Value.String()
	} else if e.ConvertedType.Valid {
		name = fmt.Sprintf("%s of converted type %d", physical, e.ConvertedType.V)
		t := c.Type() // the library has translated older writers' annotations in it
		if ct := t.ConvertedType(); ct == nil || *ct != e.ConvertedType.V || t.LogicalType() == nil {
			return name, table.Any, nil
		}
		logical = t.LogicalType().Value
		name = t.LogicalType().Value.String()
	} else if physical == format.Int96 {
		name += " (timestamp)" // it has no other use
	}
	whole := physical == format.Int32 || physical == format.Int64
	array := physical == format.ByteArray || physical == format.FixedLenByteArray
	integer := func(v parquet.Value) int64 {
		if physical == format.Int32 {
			return int64(v.Int32())
		}
		return v.Int64()
	}
	time := func(unit int64) (string, table.Kind, leafCell) {
		if !whole || unit == 0 {
			return name, table.Any, nil
		}
		return name, table.Int, func(v parquet.Value) (any, error) { return micros(integer(v), unit) }
	}
	switch t := logical.(type) {
	case *format.StringType, *format.EnumType, *format.JsonType:
		if physical == format.ByteArray {
			return name, table.Text, func(v parquet.Value) (any, error) { return string(v.ByteArray()), nil }
		}
		return name, table.Any, nil
	case *format.DecimalType:
		switch {
		case t.Scale < -1000 || t.Scale > 1000 || !whole && !array:
			return name, table.Any, nil
		case whole:
			return name, table.Float, func(v parquet.Value) (any, error) { return decimal(big.NewInt(integer(v)), t.Scale) }
		}
		return name, table.Float, func(v parquet.Value) (any, error) { return decimal(signed(v.ByteArray()), t.Scale) }
	case *format.DateType:
		return time(perDay)
	case *format.TimeType:
		return time(leafUnit(t.Unit))
	case *format.TimestampType:
		return time(leafUnit(t.Unit))
	case *format.IntType:
		switch {
		case !whole:
			return name, table.Any, nil
		case !t.IsSigned && t.BitWidth == 64:
			return name, table.Int, func(v parquet.Value) (any, error) { return unsigned(uint64(v.Int64())) }
		case !t.IsSigned && physical == format.Int32:
			return name, table.Int, func(v parquet.Value) (any, error) { return int64(uint32(v.Int32())), nil }
		}
	case *format.Float16Type:
		if physical != format.FixedLenByteArray || e.TypeLength.V != 2 {
			return name, table.Any, nil
		}
		return name, table.Float, func(v parquet.Value) (any, error) { return half(binary.LittleEndian.Uint16(v.ByteArray())), nil }
	case *format.NullType:
		return name, table.Empty, func(parquet.Value) (any, error) { return nil, errors.New("a value in a column of nulls") }
	case nil, *format.UUIDType, *format.BsonType, *format.GeometryType, *format.GeographyType: // bytes
	default:
		return name, table.Any, nil
	}
	switch physical {
	case format.Boolean:
		return name, table.Bool, func(v parquet.Value) (any, error) { return v.Boolean(), nil }
	case format.Int32, format.Int64:
		return name, table.Int, func(v parquet.Value) (any, error) { return integer(v), nil }
	case format.Float:
		return name, table.Float, func(v parquet.Value) (any, error) { return float64(v.Float()), nil }
	case format.Double:
		return name, table.Float, func(v parquet.Value) (any, error) { return v.Double(), nil }
	case format.ByteArray, format.FixedLenByteArray:
		return name, table.Any, func(v parquet.Value) (any, error) { return bytes.Clone(v.ByteArray()), nil }
	case format.Int96: // a time: nanoseconds of a day, and the day
		return name, table.Int, func(v parquet.Value) (any, error) {
			t := v.Int96()
			nanos := int64(t[1])<<32 | int64(t[0])
			if nanos < 0 || nanos%1000 != 0 {
				return nil, fmt.Errorf("the time %d ns is not a whole number of microseconds", nanos)
			}
			return (int64(int32(t[2]))-julianEpoch)*perDay + nanos/1000, nil
		}
	}
	return name, table.Any, nil
}

func leafUnit(u format.TimeUnit) int64 {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return perMilli
	case *format.MicroSeconds:
		return perMicro
	case *format.NanoSeconds:
		return perNano
	}
	return 0
}

// signed decodes a big-endian two's complement integer.
func signed(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}
