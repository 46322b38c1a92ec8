package table

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"drun/internal/each"
)

func show(t *Table) string {
	var b strings.Builder
	for _, c := range t.Columns {
		fmt.Fprintf(&b, "%s %s", c.Name, c.Kind)
		for i := range t.Rows {
			fmt.Fprintf(&b, " %v", c.Cell(i))
		}
		b.WriteString("; ")
	}
	return b.String()
}

func TestKindsOfColumns(t *testing.T) {
	for text, want := range map[string]string{
		"a,b\n1,x\n-2,y\n":               "a int64 1 -2; b text x y; ",
		"a\n1\n2.5\nNA\n":                "a float64 1 2.5 <nil>; ",
		"a\ntrue\nFALSE\n\"\"\n":         "a bool true false <nil>; ",
		"a\n007\n+5\n":                   "a int64 7 5; ",
		"a\n0x10\n1_0\n":                 "a text 0x10 1_0; ",
		"a\n99999999999999999999\n1\n":   "a text 99999999999999999999 1; ",
		"a\n9007199254740993\n1\n":       "a int64 9007199254740993 1; ",
		"a\n9007199254740993\n0.5\n":     "a text 9007199254740993 0.5; ",
		"a\n1e3\n1e400\n":                "a text 1e3 1e400; ",
		"a,b\n,1\n,2\n":                  "a empty <nil> <nil>; b int64 1 2; ",
		"a\n\"x, y\"\n\"line\nbreak\"\n": "a text x, y line\nbreak; ",
		"\ufeffa;\n1;\n":                 "a; text 1;; ",
		"a\n-0\n0.0\n":                   "a float64 -0 0; ",
		"a\ninf\n-Infinity\n":            "a float64 +Inf -Inf; ",
	} {
		got, err := Options{}.CSV(strings.NewReader(text))
		if err != nil || show(got) != want {
			t.Errorf("%q: %v\ngot  %q\nwant %q", text, err, show(or(got)), want)
		}
	}
}

func or(t *Table) *Table {
	if t == nil {
		return new(Table)
	}
	return t
}

// The error for a column that is not there lists at most 20 of those that are, and counts the others.
func TestNoColumn(t *testing.T) {
	names := each.UpTo(23, func(i int) string { return fmt.Sprint("c", i) })
	for _, c := range []struct {
		names []string
		end   string
	}{
		{names, `, "c18", "c19", and 3 more`},
		{names[:21], `, "c18", "c19", and 1 more`},
		{names[:20], `, "c18", "c19"`},
		{[]string{"a;b"}, `there are "a;b": set delimiter = ";"`},
		{[]string{"a"}, `there are "a"`},
	} {
		if text := NoColumn("x", c.names).Error(); !strings.HasPrefix(text, `there is no column "x"; there are "`) || !strings.HasSuffix(text, c.end) {
			t.Errorf("%d columns: %s\nwant … %s", len(c.names), text, c.end)
		}
	}
}

func TestBadTables(t *testing.T) {
	for text, want := range map[string]string{
		"a,b\n1\n":   "line 2, column 2: the line has 1 columns, but line 1 has 2",
		"a,a\n1,2\n": `line 1: columns 1 and 2 are both named "a"`,
		"a\n\"x\n":   `line 2, column 4: extraneous or missing " in quoted-field`,
		"":           "no rows",
		"a\nx\n" + strings.Repeat("yyyyyyyyyy\n", 100): "line 25: the cells up to here take more than the 600 bytes that a table may take; data.stream reads a file of any size piece by piece",
	} {
		yes := true
		if _, err := (Options{Header: &yes, Largest: 600}).CSV(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%.20q: %v\nwant %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"[1]\n":                                 `line 1: want a JSON object, got "[1]"`,
		"{\"a\":1}\n{\"a\":\"x\"}\n":            `line 2: column "a": text after rows of int64`,
		"{\"a\":1,\"a\":2}\n":                   `line 1: byte 10: the object has "a" twice`,
		"{\"a\":99999999999999999999}\n":        `line 1: byte 25: "99999999999999999999" does not fit into 64 bits`,
		"{\"a\":9007199254740993}\n{\"a\":0.5}": "line 2: column \"a\": 0.5 after 9007199254740993, which no float64 holds exactly",
		"{\"a\":" + strings.Repeat("[", 200):    "line 1: byte 105: lists and objects are nested more than 100 deep",
		"{\"a\":1} x":                           "line 1: byte 8: unexpected data after the value",
		"{\"a\":":                               "line 1: byte 5: the value ends early",
		"":                                      "no rows",
		strings.Repeat("{\"a\":1}\n", 50):       "line 23: the cells up to here take more than the 1000 bytes that a table may take; data.stream reads a file of any size piece by piece",
	} {
		if _, err := JSONLines(strings.NewReader(text), nil, 1000); err == nil || err.Error() != want {
			t.Errorf("%.30q: %v\nwant %s", text, err, want)
		}
	}
	if err := Lines(strings.NewReader(strings.Repeat("x", MaxRecord+1<<20)), func(int, []byte) error { return nil }); err == nil || err.Error() != "line 1: a line of more than 67108864 bytes" {
		t.Error(err)
	}
}

// A file with another delimiter is seen by the name that is asked for.
func TestOtherDelimiter(t *testing.T) {
	for text, want := range map[string]string{
		"a;b\n1;2\n":   `there is no column "b"; there are "a;b": set delimiter = ";"`,
		"a\tb\n1\t2\n": `there is no column "b"; there are "a\tb": set delimiter = "\t"`,
		"a;c,d\n1,2\n": `there is no column "b"; there are "a;c", "d"`,
	} {
		if _, err := (Options{Columns: []string{"b"}}).CSV(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Every text that pandas takes for a missing cell is one, and leaves its column one of numbers; other texts do not.
func TestMissingAsInPandas(t *testing.T) {
	for _, text := range []string{"", " ", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
		"N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"} {
		if got, err := (Options{}).CSV(strings.NewReader("a,b\n1,1\n2," + text + "\n")); err != nil || show(got) != "a int64 1 2; b int64 1 <nil>; " {
			t.Errorf("%q: %v, %q", text, err, show(or(got)))
		}
	}
	for _, text := range []string{"na", "-", "none", "nil", "1.#INF", "+nan"} {
		if got, err := (Options{}).CSV(strings.NewReader("a,b\n1,1\n2," + text + "\n")); err != nil || show(got) != "a int64 1 2; b text 1 "+text+"; " {
			t.Errorf("%q: %v, %q", text, err, show(or(got)))
		}
	}
}

// A format whose reader is not linked is an error that says so.
func TestReaderNotLinked(t *testing.T) {
	for _, format := range []string{"parquet", "arrow"} {
		if _, err := OpenColumns(format, strings.NewReader("PAR1"), strings.NewReader("PAR1"), false, nil); err == nil ||
			err.Error() != "this program was built without the reader of "+format+" files: its main package must import drun/starlib/data/table/columns" {
			t.Error(err)
		}
	}
}

// A name that comes late makes a column whose first cells are missing.
func TestLateColumns(t *testing.T) {
	got, err := JSONLines(strings.NewReader("{\"a\":1}\n{\"b\":true,\"a\":null}\n{\"a\":0.5}"), nil, 0)
	if want := "a float64 1 <nil> 0.5; b bool <nil> true <nil>; "; err != nil || show(got) != want {
		t.Errorf("%v, %q", err, show(or(got)))
	}
	if _, err := JSONLines(strings.NewReader("{\"a\":1}\n"), []string{"c"}, 0); err == nil || !strings.HasPrefix(err.Error(), `there is no column "c"`) {
		t.Error(err)
	}
}

// Only a record is bounded, not a file.
func TestFileLongerThanAnyRecord(t *testing.T) {
	line := strings.Repeat("x", 1<<20) + ",1\n"
	var lines []io.Reader
	for range MaxRecord/len(line) + 2 {
		lines = append(lines, strings.NewReader(line))
	}
	seen := 0
	err := Records(io.MultiReader(lines...), ',', false, func(int, []string) error { seen++; return nil })
	if err != nil || seen != len(lines) {
		t.Errorf("%d of %d lines, %v", seen, len(lines), err)
	}
	if err := Records(strings.NewReader(`"`+strings.Repeat("x", MaxRecord+1<<20)), ',', false, func(int, []string) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "a line of more than 67108864 bytes, or a quote that is not closed") {
		t.Error(err)
	}
}

// A number is an integer if it has neither a point nor an exponent.
func TestNumbersOfJSON(t *testing.T) {
	got, err := JSONLines(strings.NewReader(`{"a": 12, "b": 1e2, "c": 1E2, "d": -1.5E-1, "e": 2.0, "f": -7}`), nil, 0)
	if want := "a int64 12; b float64 100; c float64 100; d float64 -0.15; e float64 2; f int64 -7; "; err != nil || show(or(got)) != want {
		t.Errorf("%v, %q", err, show(or(got)))
	}
}

// Whatever the text, each column has a cell for each row, or there is an error.
func FuzzTables(f *testing.F) {
	for _, text := range []string{"a,b\n1,x\n", "{\"a\":[1,{\"b\":null}]}\n{\"c\":-0.5e3}", "\"", "a;b\n;", "{\"\\ud800\":1}", "true\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func() (*Table, error){
			func() (*Table, error) { return Options{Largest: 1 << 20}.CSV(strings.NewReader(text)) },
			func() (*Table, error) { return JSONLines(strings.NewReader(text), nil, 1<<20) },
		} {
			got, err := read()
			if err != nil {
				continue
			}
			for _, c := range got.Columns {
				if c.Len() != got.Rows && got.Rows > 0 {
					t.Fatalf("%q: column %s has %d cells of %d", text, c.Name, c.Len(), got.Rows)
				}
				for i := range got.Rows {
					c.Cell(i)
				}
			}
		}
	})
}
