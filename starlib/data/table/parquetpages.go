package table

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// leaf is a sequence of values.
type leaf struct {
	path    string
	index   int
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
	for at, end := begin, begin+m.TotalCompressedSize; at < end; {
		next, takes, err := r.page(m.Codec, at, end)
		if err != nil {
			return fmt.Errorf("byte %d: %w", at, err)
		}
		at, most = next, max(most, takes)
	}
	if r.pages += most; r.pages > maxPages {
		return fmt.Errorf("the pages of the columns up to here take %d bytes, and may take %d; columns names those that are wanted", r.pages, maxPages)
	}
	return guarded(func() error {
		l.pages = r.file.RowGroups()[group].ColumnChunks()[l.index].Pages()
		return nil
	})
}

// page looks at a page: where the next one begins, and how many bytes it takes in memory.
func (r *parquetReader) page(codec format.CompressionCodec, at, end int64) (next int64, takes int, err error) {
	var header []byte
	var size int
	var kind, packed, unpacked, count, levels int64
	plain := codec == format.Uncompressed
	for n := int64(512); ; n *= 8 {
		n = min(n, end-at)
		header = make([]byte, n)
		if _, err := r.in.ReadAt(header, at); err != nil && err != io.EOF {
			return 0, 0, err
		}
		kind, packed, unpacked, count, levels = -1, -1, -1, 0, 0
		size, err = skim(header, func(path [3]int, v int64) {
			switch path {
			case [3]int{1}:
				kind = v
			case [3]int{2}:
				unpacked = v
			case [3]int{3}:
				packed = v
			case [3]int{5, 1}, [3]int{7, 1}, [3]int{8, 1}:
				count = max(count, v)
			case [3]int{8, 5}, [3]int{8, 6}:
				levels += v
			case [3]int{8, 7}:
				plain = v == 0
			}
		})
		if err != errShort || n == end-at || n > 16<<20 { //nolint:errorlint // skim's own
			break
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("a page's header is garbled: %w", err)
	}
	begin := at + int64(size)
	switch {
	case packed < 0 || packed > end-begin:
		return 0, 0, fmt.Errorf("a page of %d bytes does not fit into its column", packed)
	case unpacked < 0 || unpacked > maxPage || packed > maxPage:
		return 0, 0, fmt.Errorf("a page of %d bytes unpacks to %d, and may take %d", packed, unpacked, maxPage)
	case count < 0 || count > maxPage/4:
		return 0, 0, fmt.Errorf("a page of %d values, and may have %d", count, maxPage/4)
	}
	if !plain {
		at := begin
		if kind == int64(format.DataPageV2) {
			if levels < 0 || levels > packed || levels > unpacked {
				return 0, 0, fmt.Errorf("a page's levels of %d bytes do not fit into it", levels)
			}
			at, unpacked = at+levels, unpacked-levels
		}
		if err := r.unpacks(codec, at, begin+packed-at, unpacked); err != nil {
			return 0, 0, err
		}
	}
	return begin + packed, int(packed + unpacked + 12*count), nil
}

// unpacks is an error if a page unpacks to more than its header says: the library would take all the memory that it needs.
func (r *parquetReader) unpacks(codec format.CompressionCodec, at, packed, unpacked int64) error {
	in := io.NewSectionReader(r.in, at, packed)
	var out io.Reader
	switch codec {
	case format.Snappy:
		head := make([]byte, binary.MaxVarintLen64)
		n, _ := in.Read(head)
		if size, ok := binary.Uvarint(head[:n]); packed > 0 && (ok <= 0 || size > uint64(unpacked)) {
			return fmt.Errorf("a page says that it unpacks to %d bytes, and elsewhere to %d", unpacked, size)
		}
		return nil
	case format.Gzip:
		if packed > 0 && packed < maxPage/1032 { // deflate's best
			return nil
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
		content := make([]byte, packed)
		if _, err := io.ReadFull(in, content); err != nil {
			return err
		}
		if _, err := lz4.UncompressBlock(content, make([]byte, unpacked)); err != nil && packed > 0 {
			return fmt.Errorf("a page's LZ4 data is garbled, or unpacks to more than the %d bytes that it says", unpacked)
		}
		return nil
	default:
		return fmt.Errorf("its compression, %s, is not supported", codec)
	}
	n, err := io.CopyN(io.Discard, out, unpacked+1)
	if n > unpacked {
		return fmt.Errorf("a page unpacks to more than the %d bytes that it says", unpacked)
	}
	if err != nil && !errors.Is(err, io.EOF) {
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
