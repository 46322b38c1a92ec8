package columns

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"drun/starlib/data/table"
)

// withFooter returns a file with another footer.
func withFooter(t *testing.T, b []byte, change func(*format.FileMetaData)) []byte {
	t.Helper()
	body := b[:len(b)-8]
	at := len(body) - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	var footer format.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), body[at:], &footer); err != nil {
		t.Fatal(err)
	}
	change(&footer)
	packed, err := thrift.Marshal(new(thrift.CompactProtocol), &footer)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(append(bytes.Clone(body[:at]), packed...), uint32(len(packed))), "PAR1"...)
}

// A footer that says something else than the data is an error, also for the fields of a struct.
func TestFootersThatLie(t *testing.T) {
	_, honest := testFile(t, "snappy.parquet")
	for _, c := range []struct {
		column string
		change func(group *format.RowGroup)
		want   string
	}{
		{"whole", func(g *format.RowGroup) { g.NumRows-- }, `row group 0, column "whole": it has more values than the `},
		{"struct", func(g *format.RowGroup) { g.NumRows-- }, `row group 0, column "struct": it has more values than the `},
		{"whole", func(g *format.RowGroup) { g.NumRows++ }, `, column "whole": it has fewer values than rows`},
		{"nested", func(g *format.RowGroup) { g.NumRows++ }, `, column "nested": it has fewer values than rows`},
		{"struct", func(g *format.RowGroup) { eachChunk(g, func(c *format.ColumnChunk) { c.FilePath = "other.parquet" }) },
			`row group 0, column "struct.a": its data is in another file, which is not supported`},
		{"struct", func(g *format.RowGroup) {
			eachChunk(g, func(c *format.ColumnChunk) { c.MetaData.TotalCompressedSize = -1 })
		}, `row group 0, column "struct": `},
	} {
		lie := withFooter(t, honest, func(f *format.FileMetaData) { c.change(&f.RowGroups[0]) })
		r, err := openBytes("parquet", lie, []string{c.column})
		if err == nil {
			_, err = table.ReadColumns(r, 0)
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("column %s: %v\nwant %s", c.column, err, c.want)
		}
	}
}

func eachChunk(g *format.RowGroup, change func(*format.ColumnChunk)) {
	for i := range g.Columns {
		change(&g.Columns[i])
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
				if file, err = openBytes("parquet", hostile, nil); err == nil {
					_, err = file.Next(rows)
					file.Close()
				}
				if err == nil || !strings.HasPrefix(err.Error(), "row group 0, ") {
					t.Errorf("%s, optional %v, version %d: %v", encoding, optional, version+1, err)
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
