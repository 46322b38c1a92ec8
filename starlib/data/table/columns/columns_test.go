package columns

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"drun/starlib/data/table"
)

func openBytes(format string, b []byte, columns []string) (table.Columns, error) {
	return table.OpenColumns(format, bytes.NewReader(b), bytes.NewReader(b), false, columns)
}

func testFile(t testing.TB, name string) (format string, b []byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if format = strings.TrimPrefix(filepath.Ext(name), "."); format == "feather" {
		format = "arrow"
	}
	return format, b
}

// told is a cell as testdata/columns.py writes it.
func told(v any) string {
	switch v := v.(type) {
	case []byte:
		return fmt.Sprintf("%q", "hex:"+hex.EncodeToString(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("%q", strings.ToLower(strings.TrimPrefix(fmt.Sprint(v), "+")))
		}
		return fmt.Sprintf("%x", v)
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		list := make([]string, len(v))
		for i, x := range v {
			list[i] = told(x)
		}
		return "[" + strings.Join(list, ", ") + "]"
	case table.Object:
		list := make([]string, len(v))
		for i, m := range v {
			list[i] = m.Name + ": " + told(m.Value)
		}
		return "{" + strings.Join(list, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// expected are the rows of testdata/types.jsonl.
func expected(t *testing.T) (rows []table.Object) {
	t.Helper()
	b, err := os.ReadFile("testdata/types.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	err = table.Lines(bytes.NewReader(b), func(_ int, line []byte) error {
		v, err := table.ParseJSON(line)
		if err == nil {
			rows = append(rows, v.(table.Object))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Every common type, as pyarrow writes it, is read as the cells that it was made of: in each compression and encoding of
// Parquet, over several row groups, and in Arrow's files and streams.
func TestColumnsOfPyarrow(t *testing.T) {
	want := expected(t)
	for _, name := range []string{"none.parquet", "snappy.parquet", "gzip.parquet", "brotli.parquet", "zstd.parquet", "lz4.parquet", "v2.parquet", "int96.parquet", "lz4.feather", "plain.feather", "zstd.arrow"} {
		format, b := testFile(t, name)
		r, err := openBytes(format, b, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := table.ReadColumns(r, 1<<30)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		seen := 0
		for row, cells := range want {
			for _, m := range cells {
				c := got.Find(m.Name)
				if c == nil {
					continue
				}
				seen++
				if told(m.Value) == told("nan") {
					m.Value = nil // missing
				}
				if cell := c.Cell(row); told(cell) != told(m.Value) {
					t.Fatalf("%s: column %s, row %d: %s, want %s", name, m.Name, row, told(cell), told(m.Value))
				}
			}
		}
		if missing := map[string]int{"int96.parquet": 2}[name]; seen != len(want)*(len(want[0])-missing) || got.Rows != len(want) {
			t.Errorf("%s: %d cells and %d rows", name, seen, got.Rows)
		}
		if name == "zstd.arrow" {
			if view, text := got.Find("view"), got.Find("text"); !slices.Equal(view.Texts, text.Texts) || got.Find("waited").Cell(2) != int64(-2000) {
				t.Errorf("views %q, texts %q", view.Texts, text.Texts)
			}
		}
		r.Close()
	}
}

// The columns' kinds are those of the file, and so are those of a column without a cell.
func TestKindsOfFields(t *testing.T) {
	for _, name := range []string{"none.parquet", "zstd.arrow"} {
		format, b := testFile(t, name)
		r, err := openBytes(format, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Fields() {
			want := map[string]table.Kind{"half": table.Float, "single": table.Float, "double": table.Float, "price": table.Float, "wide": table.Float, "flag": table.Bool, "text": table.Text, "large": table.Text, "view": table.Text, "city": table.Text, "null": table.Empty,
				"raw": table.Any, "fixed": table.Any, "list": table.Any, "vector": table.Any, "nested": table.Any, "struct": table.Any, "map": table.Any}
			kind, known := want[f.Name]
			if !known {
				kind = table.Int
			}
			if f.Kind != kind || f.Refused {
				t.Errorf("%s: column %s is of %s, %+v", name, f.Name, f.Kind, f)
			}
		}
	}
}

// The rest of a file can be read from each of its rows on, some columns or all, in pieces of any size.
func TestSeekColumns(t *testing.T) {
	want := expected(t)
	for _, name := range []string{"snappy.parquet", "v2.parquet", "lz4.feather", "zstd.arrow"} {
		format, b := testFile(t, name)
		columns := []string{"nested", "whole", "city"}
		all, err := openBytes(format, b, columns)
		if err != nil {
			t.Fatal(err)
		}
		var places []table.Place
		for {
			from := all.Place()
			piece, err := all.Next(4)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			end := all.Place()
			if from.Batch() != end.Batch() {
				from = table.NewPlace(end.Batch(), 0)
			}
			for i := range piece.Rows {
				places = append(places, from+table.Place(i))
			}
		}
		if len(places) != len(want) {
			t.Fatalf("%s: %d rows", name, len(places))
		}
		for row, p := range places {
			r, err := openBytes(format, b, columns)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Seek(p); err != nil {
				t.Fatal(err)
			}
			rest, err := table.ReadColumns(r, 0)
			if err != nil || rest.Rows != len(want)-row {
				t.Fatalf("%s from row %d: %v, %v", name, row, rest, err)
			}
			for _, c := range rest.Columns {
				for i := range rest.Rows {
					for _, m := range want[row+i] {
						if m.Name == c.Name && told(c.Cell(i)) != told(m.Value) {
							t.Fatalf("%s from row %d: column %s, row %d: %s, want %s", name, row, c.Name, i, told(c.Cell(i)), told(m.Value))
						}
					}
				}
			}
		}
		for _, beyond := range []table.Place{table.NewPlace(0, 1000), table.NewPlace(9, 0), table.NewPlace(9, 1)} {
			r, err := openBytes(format, b, columns)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Seek(beyond); err == nil || !strings.Contains(err.Error(), "where the checkpoint was: it has changed") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// What cannot be read is an error that names the column and the type, or the cell.
func TestRefusedColumns(t *testing.T) {
	for _, c := range []struct{ file, column, want string }{
		{"odd.arrow", "gap", `column "gap": its type, month_day_nano_interval, is not supported; select the other columns with columns`},
		{"odd.arrow", "either", `column "either": its type, sparse_union<`},
		{"odd.arrow", "ends", `column "ends": its type, run_end_encoded<`},
		{"odd.arrow", "", `column "gap": its type, `},
		{"odd.arrow", "y", `there is no column "y"; there are "x", "gap", "either", "ends"`},
		{"unfit.parquet", "big", `row group 0, row 0, column "big": 18446744073709551615 does not fit int64`},
		{"unfit.parquet", "digits", `row group 0, row 0, column "digits": the decimal "1234567890123456789" (with 2 places) has more digits than a float64 holds`},
		{"unfit.parquet", "nanos", `row group 0, row 0, column "nanos": the time 1001 ns is not a whole number of microseconds`},
		{"unfit.parquet", "late", `row group 0, row 0, column "late": the time 2305843009213693952 does not fit into 64 bits as microseconds`},
	} {
		format, b := testFile(t, c.file)
		var columns []string
		if c.column != "" {
			columns = []string{c.column}
		}
		r, err := openBytes(format, b, columns)
		if err == nil {
			_, err = table.ReadColumns(r, 0)
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.file, err, c.want)
		}
	}
	format, b := testFile(t, "odd.arrow")
	r, err := openBytes(format, b, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := table.ReadColumns(r, 0); err != nil || !slices.Equal(x.Columns[0].Floats, []float64{1, 2}) {
		t.Error(x, err)
	}
	format, b = testFile(t, "snappy.parquet")
	if r, err = openBytes(format, b, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := table.ReadColumns(r, 1000); err == nil || err.Error() != "row 0 of batch 0: the cells up to here take more than the 1000 bytes that a table may take; data.stream reads a file of any size piece by piece" {
		t.Error(err)
	}
}

// A file that is cut anywhere is an error.
func TestCutColumns(t *testing.T) {
	for _, name := range []string{"snappy.parquet", "lz4.feather", "zstd.arrow"} {
		format, b := testFile(t, name)
		end := len(b) - 8 // of a stream, between its last batch and its end
		for n := 0; n <= end; n = max(n+1, min(n+1+len(b)/100, end)) {
			r, err := openBytes(format, b[:n], nil)
			if err == nil {
				_, err = table.ReadColumns(r, 0)
			}
			if err == nil {
				t.Errorf("%s: no error after %d bytes of %d", name, n, len(b))
			}
		}
	}
}
