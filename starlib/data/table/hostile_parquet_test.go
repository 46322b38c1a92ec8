package table

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// Wherever a page of Parquet says that it has very many values, or very long ones, it is read or there is an error, from
// little memory: each place of each page says so once, as runs, groups and lengths do.
func TestRunBombs(t *testing.T) {
	want := expected(t)
	for _, name := range []string{"none.parquet", "runs.parquet"} {
		_, b := testFile(t, name)
		honest := bytes.Clone(b)
		file, err := openBytes("parquet", b, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		pages, refused := 0, 0
		for i, f := range file.Fields() {
			one, err := openBytes("parquet", b, []string{f.Name})
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			got, err := one.Next(100)
			if err != nil {
				t.Fatal(err)
			}
			for row := range got.Rows {
				for _, m := range want[row] {
					if m.Name == f.Name && told(got.Columns[0].Cell(row)) != told(m.Value) {
						t.Fatalf("%s: column %s, row %d: %v", name, f.Name, row, got.Columns[0].Cell(row))
					}
				}
			}
			r := one.in.(*parquetReader)
			r.nodes[i].each(func(l *leaf) {
				m := r.file.Metadata().RowGroups[0].Columns[l.index].MetaData
				begin := m.DataPageOffset
				if m.DictionaryPageOffset != 0 {
					begin = m.DictionaryPageOffset
				}
				most := uint64(4 << 20)
				if slices.Contains(m.Encoding, format.DeltaByteArray) { // of its two lists of lengths, the second is left to the library
					most = 2100 << 20
				}
				for end := begin + m.TotalCompressedSize; begin < end; pages++ {
					in := new(thrift.CompactProtocol).NewReaderFromBytes(b[begin:end])
					if err := thrift.NewDecoder(in).Decode(new(format.PageHeader)); err != nil {
						t.Fatal(err)
					}
					size := in.BytesRead()
					next, err := r.page(l, m.Codec, begin, end)
					if err != nil {
						t.Fatal(err)
					}
					for at := int(begin) + size; at < int(next); at++ {
						for _, many := range []string{"\xfe\xff\xff\xff\x0f", "\xff\xff\xff\xff\x01", "\xff\xff\xff\x3f"} {
							copy(b[at:next], many)
							var before, after runtime.MemStats
							runtime.ReadMemStats(&before)
							if err = one.Seek(0); err == nil {
								_, err = one.Next(100)
							}
							runtime.ReadMemStats(&after)
							copy(b[at:next], honest[at:])
							if took := after.TotalAlloc - before.TotalAlloc; took > most {
								t.Fatalf("%s: column %s, byte %d, which is %d of its page, %q: %d KiB", name, l.path, at, at-int(begin)-size, many, took>>10)
							}
							if err != nil {
								refused++
							}
						}
					}
					begin = next
				}
			})
		}
		if pages < len(file.Fields()) || refused < 100 {
			t.Errorf("%s: %d pages, %d errors", name, pages, refused)
		}
	}
}

// A page for whose claims the library would reserve memory without end, or try to unpack it for ever, is refused before.
func TestPagesThatClaimMuch(t *testing.T) {
	header := func(unpacked, packed, count int32) []byte {
		h := format.PageHeader{Type: format.DataPage, UncompressedPageSize: unpacked, CompressedPageSize: packed,
			DataPageHeader: thrift.Null[format.DataPageHeader]{V: format.DataPageHeader{NumValues: count}, Valid: true}}
		b, err := thrift.Marshal(new(thrift.CompactProtocol), &h)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	block := make([]byte, lz4.CompressBlockBound(1000))
	n, err := lz4.CompressBlock(make([]byte, 1000), block, nil)
	if err != nil {
		t.Fatal(err)
	}
	block = block[:n]
	for _, c := range []struct {
		codec   format.CompressionCodec
		length  int64
		content []byte
		want    string
	}{
		{format.Lz4Raw, 0, append(header(1000, int32(n), 10), block...), ""},
		{format.Lz4Raw, 0, append(header(999, int32(n), 10), block...), "a page's LZ4 data is corrupt, or unpacks to more than the 999 bytes that it says"},
		{format.Lz4Raw, 0, append(header(1000, 15, 10), "garbage garbage"...), "a page's LZ4 data is corrupt, or unpacks to more than the 1000 bytes that it says"},
		{format.Snappy, 0, append(header(1000, 16, 10), "garbage garbage"...), "a page of 16 bytes does not fit into its column"},
		{format.Snappy, 0, append(header(1<<30, 15, 10), "garbage garbage"...), "a page of 15 bytes unpacks to 1073741824: at most 268435456 are allowed"},
		{format.Snappy, 0, append(header(1000, 15, 1<<30), "garbage garbage"...), "a page of 1073741824 values of 4 bytes: at most 268435456 bytes are allowed"},
		{format.Snappy, 1 << 20, append(header(1000, 15, 1000), "garbage garbage"...), "a page of 1000 values of 1048576 bytes: at most 268435456 bytes are allowed"},
		{format.Snappy, 0, []byte("\x15\x00"), "a page's header is corrupt: "},
	} {
		r := &parquetReader{in: bytes.NewReader(c.content)}
		next, err := r.page(&leaf{length: c.length}, c.codec, 0, int64(len(c.content)))
		if c.want == "" && (err != nil || next != int64(len(c.content))) || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// Values of one length for which the page has not the bytes are an error: the footer says that they are 128 times as long.
func TestFixedBombs(t *testing.T) {
	const rows, size = 20000, 64
	for _, encoding := range []encoding.Encoding{&parquet.ByteStreamSplit, &parquet.DeltaByteArray} {
		for _, optional := range []bool{false, true} {
			for version := range 2 {
				node := parquet.Encoded(parquet.Leaf(parquet.FixedLenByteArrayType(size)), encoding)
				if optional {
					node = parquet.Optional(node)
				}
				var b bytes.Buffer
				w := parquet.NewWriter(&b, parquet.NewSchema("file", parquet.Group{"key": node}), parquet.DataPageVersion(version+1), parquet.PageBufferSize(8<<20))
				want := make([]any, rows)
				for i := range want {
					value := parquet.NullValue().Level(0, 0, 0)
					if level := 0; !optional || i%3 > 0 && i < rows/2 {
						if optional {
							level = 1
						}
						key := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, size/2)
						want[i], value = key, parquet.FixedLenByteArrayValue(key).Level(0, level, 0)
					}
					if _, err := w.WriteRows([]parquet.Row{{value}}); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				honest := b.Bytes()
				file, err := openBytes("parquet", honest, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := file.Next(rows)
				if err != nil {
					t.Fatalf("%s, optional %v, version %d: %v", encoding, optional, version+1, err)
				}
				for i := range want {
					if told(got.Columns[0].Cell(i)) != told(want[i]) {
						t.Fatalf("%s, optional %v, version %d, row %d: %v", encoding, optional, version+1, i, got.Columns[0].Cell(i))
					}
				}
				file.Close()

				hostile := bytes.Replace(honest, []byte{0x15, 2 * 7, 0x15, 0x80, 0x01}, []byte{0x15, 2 * 7, 0x15, 0xfe, 0x7f}, 1)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if file, err = openBytes("parquet", hostile, nil); err == nil {
					_, err = file.Next(rows)
					file.Close()
				}
				runtime.ReadMemStats(&after)
				if err == nil || !strings.HasPrefix(err.Error(), "row group 0, ") {
					t.Errorf("%s, optional %v, version %d: %v", encoding, optional, version+1, err)
				}
				if took := after.TotalAlloc - before.TotalAlloc; took > maxPage {
					t.Errorf("%s, optional %v, version %d: %d MiB", encoding, optional, version+1, took>>20)
				}
			}
		}
	}
}

// Values of one length whose lengths differ, but have the right sum, are an error: they would be read at other places.
func TestFixedLengthsThatDiffer(t *testing.T) {
	parts := func(lengths []int) []byte { // what a page has of values of these lengths
		var b []byte
		offsets := []uint32{0}
		for i, n := range lengths {
			b = append(b, bytes.Repeat([]byte{'a' + byte(i)}, n)...)
			offsets = append(offsets, uint32(len(b)))
		}
		packed, err := parquet.DeltaByteArray.EncodeByteArray(nil, b, offsets)
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	for _, c := range []struct {
		size    int
		lengths []int
		want    string
	}{
		{8, []int{8, 8}, ""}, {8, []int{7, 9}, "a page's value 0 has 7 bytes, and must have 8"}, {16, []int{16, 16, 16}, ""},
		{16, []int{15, 16, 17}, "a page's value 0 has 15 bytes, and must have 16"},
	} {
		honest := slices.Repeat([]int{c.size}, len(c.lengths))
		for version := range 2 {
			node := parquet.Encoded(parquet.Leaf(parquet.FixedLenByteArrayType(c.size)), &parquet.DeltaByteArray)
			var b bytes.Buffer
			w := parquet.NewWriter(&b, parquet.NewSchema("file", parquet.Group{"key": node}), parquet.DataPageVersion(version+1))
			for i := range honest {
				if _, err := w.WriteRows([]parquet.Row{{parquet.FixedLenByteArrayValue(bytes.Repeat([]byte{'a' + byte(i)}, c.size)).Level(0, 0, 0)}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			good, bad := parts(honest), parts(c.lengths)
			if len(good) != len(bad) || bytes.Count(b.Bytes(), good) != 1 {
				t.Fatalf("%v: the page is not found", c.lengths)
			}
			file, err := openBytes("parquet", bytes.Replace(b.Bytes(), good, bad, 1), nil)
			if err == nil {
				_, err = file.Next(10)
				file.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
				t.Errorf("%v, version %d: %v, want %q", c.lengths, version+1, err, c.want)
			}
		}
	}
}
