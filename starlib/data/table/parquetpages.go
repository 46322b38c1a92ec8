package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

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
	kind    format.Type
	length  int64 // the bytes of each value of a FixedLenByteArray; else 0
	value   func(parquet.Value) (any, error)
	values  parquet.ColumnChunkValueReader
	buffer  [128]parquet.Value
	n, next int
}

// openLeaf starts reading a leaf in a row group, after checking that its pages are safe for the library.
func (r *parquetReader) openLeaf(l *leaf, group int) error {
	chunk := &r.file.Metadata().RowGroups[group].Columns[l.index]
	if chunk.FilePath != "" {
		return errors.New("its data is in another file, which is not supported")
	}
	m := &chunk.MetaData
	begin := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		begin = m.DictionaryPageOffset
	}
	if begin < 4 || m.DataPageOffset < begin || m.TotalCompressedSize < 0 || m.TotalCompressedSize > r.in.Size() || begin > r.in.Size()-m.TotalCompressedSize {
		return fmt.Errorf("its data is not in the file: %d bytes at byte %d", m.TotalCompressedSize, begin)
	}
	return guarded(func() error {
		for at, end := begin, begin+m.TotalCompressedSize; at < end; {
			next, err := r.page(l, m.Codec, at, end)
			if err != nil {
				return fmt.Errorf("byte %d: %w", at, err)
			}
			at = next
		}
		l.values = parquet.NewColumnChunkValueReader(r.file.RowGroups()[group].ColumnChunks()[l.index])
		return nil
	})
}

// page checks a page, and returns the position of the next one.
func (r *parquetReader) page(l *leaf, codec format.CompressionCodec, at, end int64) (next int64, err error) {
	section := io.NewSectionReader(r.in, at, end-at)
	in := bufio.NewReader(section)
	var h format.PageHeader
	if err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(in)).Decode(&h); err != nil {
		return 0, fmt.Errorf("a page's header is corrupt: %w", err)
	}
	begin, _ := section.Seek(0, io.SeekCurrent)
	begin += at - int64(in.Buffered())
	packed, unpacked := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
	count := int64(max(h.DictionaryPageHeader.V.NumValues, h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues))
	switch {
	case packed < 0 || packed > end-begin:
		return 0, fmt.Errorf("a page of %d bytes does not fit into its column", packed)
	case unpacked < 0 || unpacked > maxPage || packed > maxPage:
		return 0, fmt.Errorf("a page of %d bytes unpacks to %d: at most %d are allowed", packed, unpacked, maxPage)
	case count > maxPage/max(l.length, 4): // the library allocates memory for this many, which may end the process
		return 0, fmt.Errorf("a page of %d values of %d bytes: at most %d bytes are allowed", count, max(l.length, 4), maxPage)
	}
	if h.Type == format.DictionaryPage && codec != format.Lz4Raw {
		return begin + packed, nil
	}
	content := make([]byte, packed)
	if _, err := r.in.ReadAt(content, begin); err != nil {
		return 0, err
	}
	return begin + packed, l.look(&h, codec, content)
}

// look checks the parts of a page that are run-length encoded or begin with a count: the library makes as many values as
// the data says, not the page's header, so that a damaged byte can make it allocate 10 GB.
func (l *leaf) look(h *format.PageHeader, codec format.CompressionCodec, content []byte) (err error) {
	v1, v2 := h.DataPageHeader.V, h.DataPageHeaderV2.V
	encoding, count, first := v1.Encoding, int64(v1.NumValues), h.Type == format.DataPage
	if h.Type == format.DataPageV2 {
		encoding, count = v2.Encoding, int64(v2.NumValues)
	}
	levels := content[:v2.RepetitionLevelsByteLength+v2.DefinitionLevelsByteLength] // never packed
	content = content[len(levels):]
	if h.Type == format.DataPageV2 && v2.IsCompressed.Valid && !v2.IsCompressed.V {
		codec = format.Uncompressed
	}
	if codec != format.Lz4Raw && encoding == format.Plain && l.rep == 0 && l.def == 0 {
		return nil
	}
	switch codec {
	case format.Uncompressed:
	case format.Lz4Raw: // the library takes any error for a lack of space, and retries forever
		space := make([]byte, h.UncompressedPageSize)
		n, err := lz4.UncompressBlock(content, space)
		if err != nil && len(content) > 0 {
			return fmt.Errorf("a page's LZ4 data is corrupt, or unpacks to more than the %d bytes that it says", len(space))
		}
		content = space[:max(0, n)]
	default:
		if content, err = parquet.LookupCompressionCodec(codec).Decode(nil, content); err != nil {
			return fmt.Errorf("a page's %s data is corrupt: %w", codec, err)
		}
	}
	for i, highest := range []int{l.rep, l.def} {
		part := levels
		if first && highest > 0 {
			part, content = content[4:4+binary.LittleEndian.Uint32(content)], content[4+binary.LittleEndian.Uint32(content):]
		} else if !first {
			n := []int32{v2.RepetitionLevelsByteLength, v2.DefinitionLevelsByteLength}[i]
			part, levels = levels[:n], levels[n:]
		}
		if highest > 0 {
			err = errors.Join(err, runs(part, bits.Len(uint(highest)), count, "levels"))
		}
	}
	if err != nil || len(content) == 0 {
		return err
	}
	switch encoding {
	case plainDictionary, format.RLEDictionary:
		return runs(content[1:], int(content[0]), count, "indices into its dictionary")
	case format.RLE:
		if l.kind == format.Boolean {
			return runs(content[4:], 1, count, "booleans")
		}
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray, format.DeltaByteArray:
		in := bytes.NewReader(content)
		var n uint64
		for range 3 { // the values of a block, its parts, all values
			n, err = binary.ReadUvarint(in)
		}
		if err == nil && n > uint64(count)+padding {
			return fmt.Errorf("a page of %d values says that it has %d", count, n)
		}
		if encoding == format.DeltaBinaryPacked {
			return nil
		}
		// A value cannot exceed all the bytes that there are.
		if n, most := int64(parquet.LookupEncoding(encoding).EstimateDecodeByteArraySize(content)), min(maxPage, count*int64(len(content))); n > most {
			return fmt.Errorf("a page's values have %d bytes: at most %d are allowed", n, most)
		}
		if encoding == format.DeltaByteArray && l.kind == format.FixedLenByteArray {
			return l.fixed(content)
		}
	}
	return nil
}

// plainDictionary is what the first version of Parquet calls RLEDictionary.
const plainDictionary = format.PlainDictionary //nolint:staticcheck // nobody should write it, but there are such files

// padding is how many values there may be beyond those of the page: writers fill up the last group.
const padding = 1 << 12

// runs checks runs of equal values and groups of eight packed ones. Other corruption is left to the library to report.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE
func runs(b []byte, width int, count int64, what string) error {
	for total := uint64(0); ; {
		head, n := binary.Uvarint(b)
		if n <= 0 {
			return nil
		}
		values, size := head>>1, (width+7)/8
		if head&1 != 0 {
			values, size = 8*values, int(values)*width
		}
		if total += min(values, 1<<40); total > uint64(count)+padding {
			return fmt.Errorf("a page of %d values says that it has %d %s", count, total, what)
		}
		b = b[min(n+size, len(b)):]
	}
}

// fixed returns an error if values of fixed length have other lengths: the library would read them at wrong positions.
func (l *leaf) fixed(content []byte) error {
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
