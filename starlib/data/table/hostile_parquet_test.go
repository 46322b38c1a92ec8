package table

import (
	"bytes"
	"runtime"
	"testing"

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
