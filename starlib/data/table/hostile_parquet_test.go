package table

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/format"
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
			r := one.(*parquetReader)
			r.nodes[i].each(func(l *leaf) {
				m := r.file.Metadata().RowGroups[0].Columns[l.index].MetaData
				begin := m.DataPageOffset
				if m.DictionaryPageOffset != 0 {
					begin = m.DictionaryPageOffset
				}
				for end := begin + m.TotalCompressedSize; begin < end; pages++ {
					size, err := skim(b[begin:end], nil)
					if err != nil {
						t.Fatal(err)
					}
					next, _, err := r.page(l, m.Codec, begin, end)
					if err != nil {
						t.Fatal(err)
					}
					for at := int(begin) + size; at < int(next); at++ {
						for _, many := range []string{"\xfe\xff\xff\xff\x0f", "\xff\xff\xff\xff\x01", "\xff\xff\xff\x3f"} {
							copy(b[at:next], many)
							var before, after runtime.MemStats
							runtime.ReadMemStats(&before)
							if err = r.Seek(0); err == nil {
								_, err = r.Next(100)
							}
							runtime.ReadMemStats(&after)
							copy(b[at:next], honest[at:])
							if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
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

// A page's header that has a field twice is refused: the library might take the other one.
func TestFieldTwice(t *testing.T) {
	header := []byte{0x15, 0, 0x15, 0, 0x15, 0, 0} // an empty data page: its type, and its two sizes
	twice := append(bytes.Clone(header[:6]), 0x05, 2*3, 0, 0)
	for want, content := range map[string][]byte{"": header, "a page's header is garbled: it has a field twice": twice} {
		r := &parquetReader{in: bytes.NewReader(content)}
		if _, _, err := r.page(&leaf{}, format.Uncompressed, 0, int64(len(content))); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Values of one length for which the page has not the bytes are an error, before the library reserves memory for them:
// the footer says that they are 128 times as long.
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
				if err == nil || !strings.HasPrefix(err.Error(), "row group 0, column \"key\": byte 4: a page says that it has") {
					t.Errorf("%s, optional %v, version %d: %v", encoding, optional, version+1, err)
				}
				if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
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
		{8, []int{8, 8}, ""}, {8, []int{7, 9}, "a page's value 0 has 0 bytes and 7, and must have 8"}, {16, []int{16, 16, 16}, ""},
		{16, []int{15, 16, 17}, "a page's value 0 has 0 bytes and 15, and must have 16"},
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

// Pages of gzip that unpack to more than they say are left to the library only as long as there are few.
func TestTrustedGzip(t *testing.T) {
	_, b := testFile(t, "gzip.parquet")
	file, err := openBytes("parquet", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := file.(*parquetReader)
	tried := 0
	for _, n := range r.nodes {
		n.each(func(l *leaf) {
			m := r.file.Metadata().RowGroups[0].Columns[l.index].MetaData
			begin := m.DataPageOffset
			if m.DictionaryPageOffset != 0 {
				begin = m.DictionaryPageOffset
			}
			if m.Codec != format.Gzip || b[begin+3]&0x7f < 2 {
				return
			}
			b[begin+3] -= 2 // the page says that it has a byte less
			for _, already := range []int{0, maxTrusted} {
				r.trusted = already
				err := r.open(l, 0)
				if already == 0 && (err != nil || r.trusted == 0) || already > 0 && (err == nil || !strings.Contains(err.Error(), "unpacks to more than")) {
					t.Errorf("column %s, %d trusted bytes: %v", l.path, already, err)
				}
				l.close()
			}
			b[begin+3] += 2
			tried++
		})
	}
	if tried < 5 {
		t.Errorf("%d columns", tried)
	}
}
