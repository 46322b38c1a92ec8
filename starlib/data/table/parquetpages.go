package table

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// leaf is a sequence of values.
type leaf struct {
	path    string
	index   int
	def     int // the highest levels of its values
	rep     int
	length  int64 // the bytes of each value of a FixedLenByteArray; else 0
	value   func(parquet.Value) (any, error)
	values  parquet.ColumnChunkValueReader
	buffer  [128]parquet.Value
	n, next int
}

// openLeaf starts reading a leaf in a row group.
func (r *parquetReader) openLeaf(l *leaf, group int) error {
	return guarded(func() error {
		chunk := &r.file.Metadata().RowGroups[group].Columns[l.index]
		if chunk.FilePath != "" {
			return errors.New("its data is in another file, which is not supported")
		}
		fixed := l.length > 0 && slices.Contains(chunk.MetaData.Encoding, format.DeltaByteArray)
		if fixed || chunk.MetaData.Codec == format.Lz4Raw {
			if err := r.checkPages(l, &chunk.MetaData); err != nil {
				return err
			}
		}
		l.values = parquet.NewColumnChunkValueReader(r.file.RowGroups()[group].ColumnChunks()[l.index])
		return nil
	})
}

// checkPages finds the damage that the library does not: values of one length in DELTA_BYTE_ARRAY that have other
// lengths, which it would read at wrong positions, and corrupt LZ4, which it would give ever more memory.
func (r *parquetReader) checkPages(l *leaf, m *format.ColumnMetaData) error {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	for end := at + m.TotalCompressedSize; at < end; {
		section := io.NewSectionReader(r.in, at, end-at)
		in := bufio.NewReader(section)
		var h format.PageHeader
		err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(in)).Decode(&h)
		if err != nil {
			return fmt.Errorf("byte %d: a page's header is corrupt: %w", at, err)
		}
		content, err := io.ReadAll(io.LimitReader(in, int64(h.CompressedPageSize)))
		if err == nil {
			err = l.checkPage(&h, m.Codec, content)
		}
		if err != nil {
			return fmt.Errorf("byte %d: %w", at, err)
		}
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
			return fmt.Errorf("a page's LZ4 data is corrupt, or unpacks to more than the %d bytes that it says", len(space))
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

// peek is the next value; nil at the end of the row group.
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
