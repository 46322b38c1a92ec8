package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
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
	length  int64 // the bytes of each value of a FixedLenByteArray
	trusted int   // bytes that a page may take which has not been unpacked to see
	value   func(parquet.Value) (any, error)
	pages   parquet.Pages
	page    parquet.Page
	values  parquet.ValueReader
	buffer  [128]parquet.Value
	n, next int
	end     bool
}

// open begins to read a leaf in a row group, once it is sure that its pages have the size that they should.
func (r *parquetReader) open(l *leaf, group int) error {
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
	most := 0
	l.trusted = 0
	for at, end := begin, begin+m.TotalCompressedSize; at < end; {
		next, takes, err := r.page(l, m.Codec, at, end)
		if err != nil {
			return fmt.Errorf("byte %d: %w", at, err)
		}
		at, most = next, max(most, takes)
	}
	r.trusted += l.trusted
	if r.pages += most; r.pages > maxPages {
		return fmt.Errorf("the pages of the columns up to here take %d bytes, and may take %d; columns names those that are wanted", r.pages, maxPages)
	}
	return guarded(func() error {
		l.pages = r.file.RowGroups()[group].ColumnChunks()[l.index].Pages()
		return nil
	})
}

// page looks at a page: where the next one begins, and how many bytes it takes in memory.
func (r *parquetReader) page(l *leaf, codec format.CompressionCodec, at, end int64) (next int64, takes int, err error) {
	var header []byte
	var size int
	var fields map[[3]int]int64
	twice := false
	for n := int64(512); ; n *= 8 {
		n = min(n, end-at)
		header = make([]byte, n)
		if _, err := r.in.ReadAt(header, at); err != nil && err != io.EOF {
			return 0, 0, err
		}
		fields, twice = map[[3]int]int64{}, false
		size, err = skim(header, func(path [3]int, v int64) {
			_, known := fields[path]
			twice = twice || known
			fields[path] = v
		})
		if err != errShort || n == end-at || n > 16<<20 {
			break
		}
	}
	if err == nil && twice { // of which the library may take the other
		err = errors.New("it has a field twice")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("a page's header is garbled: %w", err)
	}
	begin := at + int64(size)
	unpacked, packed := fields[[3]int{2}], fields[[3]int{3}]
	count := max(fields[[3]int{5, 1}], fields[[3]int{7, 1}], fields[[3]int{8, 1}])
	switch {
	case packed < 0 || packed > end-begin:
		return 0, 0, fmt.Errorf("a page of %d bytes does not fit into its column", packed)
	case unpacked < 0 || unpacked > maxPage || packed > maxPage:
		return 0, 0, fmt.Errorf("a page of %d bytes unpacks to %d, and may take %d", packed, unpacked, maxPage)
	case count > maxPage/4:
		return 0, 0, fmt.Errorf("a page of %d values, and may have %d", count, maxPage/4)
	}
	next, takes = begin+packed, int(packed+unpacked+12*count)
	var look func(*bufio.Reader) error
	c := runs{count: count, there: count}
	switch format.PageType(fields[[3]int{1}]) {
	case format.DataPage:
		encoding, defined, repeated := fields[[3]int{5, 2}], fields[[3]int{5, 3}], fields[[3]int{5, 4}]
		if l.rep > 0 || l.def > 0 || l.claims(encoding) {
			look = func(in *bufio.Reader) error {
				var nulls func(uint32, int64)
				if l.kind == format.FixedLenByteArray && l.claims(encoding) {
					nulls = c.nulls(l.def)
				}
				err := c.levels(in, -1, repeated, l.rep, "repetition levels", nil)
				if err == nil {
					err = c.levels(in, -1, defined, l.def, "definition levels", nulls)
				}
				if err == nil {
					err = c.values(in, encoding, l)
				}
				return err
			}
		}
	case format.DataPageV2:
		encoding, defined, repeated := fields[[3]int{8, 4}], fields[[3]int{8, 5}], fields[[3]int{8, 6}]
		if defined < 0 || repeated < 0 || defined+repeated > min(packed, unpacked) {
			return 0, 0, fmt.Errorf("a page's levels of %d and %d bytes do not fit into it", repeated, defined)
		}
		in := bufio.NewReader(io.NewSectionReader(r.in, begin, repeated+defined))
		if err := c.levels(in, repeated, int64(format.RLE), l.rep, "repetition levels", nil); err != nil {
			return 0, 0, err
		}
		if err := c.levels(in, defined, int64(format.RLE), l.def, "definition levels", nil); err != nil {
			return 0, 0, err
		}
		begin, unpacked = begin+repeated+defined, unpacked-repeated-defined
		if compressed, told := fields[[3]int{8, 7}]; told && compressed == 0 {
			codec = format.Uncompressed
		}
		c.there = count - fields[[3]int{8, 2}]
		if l.claims(encoding) {
			look = func(in *bufio.Reader) error { return c.values(in, encoding, l) }
		}
	}
	err = r.unpacks(l, codec, begin, next-begin, unpacked, look)
	return next, takes + c.takes, err
}

// unpacks is an error if a page unpacks to more than its header says: the library would take all the memory that it needs.
// look, unless it is nil, sees what the page unpacks to. Small pages of gzip, which would be unpacked twice, are left to the
// library as long as all that they can unpack to together is little enough.
func (r *parquetReader) unpacks(l *leaf, codec format.CompressionCodec, at, packed, unpacked int64, look func(*bufio.Reader) error) error {
	in := io.NewSectionReader(r.in, at, packed)
	var out io.Reader
	within := codec == format.Uncompressed // what look has not read is no more than a page may have
	switch codec {
	case format.Uncompressed:
		out, unpacked = in, packed
	case format.Snappy:
		head := make([]byte, binary.MaxVarintLen64)
		n, _ := in.ReadAt(head, 0)
		if size, ok := binary.Uvarint(head[:n]); packed > 0 && (ok <= 0 || size > uint64(unpacked)) {
			return fmt.Errorf("a page says that it unpacks to %d bytes, and elsewhere to %d", unpacked, size)
		}
		if look == nil || packed == 0 {
			return nil
		}
		content := make([]byte, packed)
		if _, err := io.ReadFull(in, content); err != nil {
			return err
		}
		content, err := parquet.Snappy.Decode(nil, content)
		if err != nil {
			return fmt.Errorf("a page's Snappy data is garbled: %w", err)
		}
		out = bytes.NewReader(content)
	case format.Gzip:
		most := int(1032 * packed) // deflate's best
		if within = packed > 0 && packed < maxPage/1032 && most <= maxTrusted-r.trusted; within {
			l.trusted = max(l.trusted, most)
			if look == nil {
				return nil
			}
		}
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("a page's gzip data is garbled: %w", err)
		}
		out = z
	case format.Brotli:
		out = brotli.NewReader(in)
	case format.Zstd:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxPage/2), zstd.WithDecoderLowmem(true))
		if err != nil {
			return fmt.Errorf("a page's zstd data is garbled: %w", err)
		}
		defer z.Close()
		out = z
	case format.Lz4Raw: // of which the library takes any error for a lack of space
		content, space := make([]byte, packed), make([]byte, unpacked)
		if _, err := io.ReadFull(in, content); err != nil {
			return err
		}
		n, err := lz4.UncompressBlock(content, space)
		if err != nil && packed > 0 {
			return fmt.Errorf("a page's LZ4 data is garbled, or unpacks to more than the %d bytes that it says", unpacked)
		}
		out = bytes.NewReader(space[:max(0, n)])
	default:
		return fmt.Errorf("its compression, %s, is not supported", codec)
	}
	limited := &io.LimitedReader{R: out, N: unpacked + 1}
	if look != nil {
		if err := look(bufio.NewReader(limited)); err != nil {
			return err
		}
	}
	if within {
		return nil
	}
	_, err := io.Copy(io.Discard, limited)
	if limited.N == 0 {
		return fmt.Errorf("a page unpacks to more than the %d bytes that it says", unpacked)
	}
	if err != nil {
		return fmt.Errorf("a page's %s data is garbled: %w", codec, err)
	}
	return nil
}

// peek is the next value; false at the end of the row group.
func (l *leaf) peek() (*parquet.Value, bool, error) {
	for l.next == l.n {
		if l.end {
			return nil, false, nil
		}
		if l.values == nil {
			page, err := l.pages.ReadPage()
			if err == io.EOF {
				l.end = true
				return nil, false, nil
			}
			if err != nil {
				return nil, false, err
			}
			l.page, l.values = page, page.Values()
		}
		n, err := l.values.ReadValues(l.buffer[:])
		if err != nil && err != io.EOF {
			return nil, false, err
		}
		if l.n, l.next = n, 0; n == 0 {
			if err == nil {
				return nil, false, errors.New("a page without an end")
			}
			parquet.Release(l.page)
			l.page, l.values = nil, nil
		}
	}
	return &l.buffer[l.next], true, nil
}

func (l *leaf) take() (*parquet.Value, error) {
	v, ok, err := l.peek()
	if err == nil && !ok {
		err = errors.New("it has fewer values than rows")
	}
	l.next++
	return v, err
}

func (l *leaf) close() {
	parquet.Release(l.page)
	if l.pages != nil {
		l.pages.Close()
	}
	l.page, l.pages, l.values, l.n, l.next, l.end = nil, nil, nil, 0, 0, false
}
