package data

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"drun/starlib/data/table"
)

// A survey finds what reading the whole table does.
func TestSurveyIsTheTable(t *testing.T) {
	for _, text := range []string{
		"a,b,c,d,e\n1,true,x,,9007199254740993\n2.5,FALSE,NaN,,1\n,True,3,,0.5\n7,,4,,2\n8,true,5,,3\n9,true,6,,4\n10,true,7,,5\n",
		"1,2\n3,4\n", "a\n", "a,b\n,\n", "x\n99999999999999999999\n1\n", "p\n1\ntrue\n", "q\n1e400\n2\n", "",
		"a,a\n1,2\n", "a,b\n1\n",
	} {
		want, wantErr := table.Options{}.CSV(strings.NewReader(text))
		got, err := table.Options{}.SurveyCSV(strings.NewReader(text), firstRows)
		compareSurvey(t, text, got, err, want, wantErr)
	}
	rows := func(n int, text string) string { return strings.Repeat(text+"\n", n) }
	for _, text := range []string{
		`{"a": 1, "b": null, "c": [1, {"d": 2}]}` + "\n" + `{"a": 2.5, "e": "x", "b": true}`, "", "{}\n{}", "[1]", `{"a": 1}` + "\n" + `{"a": "x"}`,
		rows(5000, `{"a": 1}`) + rows(5000, `{"b": "x"}`) + rows(10, `{"a": 0.5}`),
		rows(5000, `{"a": 1}`) + `{"a": 9007199254740993}` + "\n" + rows(5000, `{"c": 1}`) + rows(5000, `{"a": 2}`) + `{"a": 0.5}`,
		rows(5000, `{"a": 1}`) + `{"a": 9007199254740993}` + "\n" + rows(9000, `{"a": 3}`), rows(8192, `{"a": null}`), rows(8193, `{"a": true}`) + `{"a": 1}`,
	} {
		want, wantErr := table.JSONLines(strings.NewReader(text), nil, 0)
		got, err := table.SurveyJSONLines(strings.NewReader(text), firstRows, 0)
		compareSurvey(t, text[:min(len(text), 60)], got, err, want, wantErr)
	}
}

func compareSurvey(t *testing.T, text string, got *table.Survey, err error, want *table.Table, wantErr error) {
	t.Helper()
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Errorf("%q: %v, want %v", text, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	if len(got.Names) != len(want.Columns) {
		t.Errorf("%q: columns %v, want %v", text, got.Names, want.Names())
		return
	}
	if got.Rows != want.Rows || len(got.First) != min(firstRows, want.Rows) {
		t.Errorf("%q: %d rows, %d of them kept, want %d", text, got.Rows, len(got.First), want.Rows)
	}
	for k, c := range want.Columns {
		missing := 0
		for i := range c.Len() {
			if c.IsMissing(i) {
				missing++
			}
			if i < len(got.First) && !reflect.DeepEqual(got.First[i][k], c.Cell(i)) {
				t.Errorf("%q: cell %d of %s is %v, want %v", text, i, c.Name, got.First[i][k], c.Cell(i))
			}
		}
		if got.Names[k] != c.Name || got.Kinds[k] != c.Kind || got.Missing[k] != missing {
			t.Errorf("%q: %s %v with %d missing, want %s %v with %d", text, got.Names[k], got.Kinds[k], got.Missing[k], c.Name, c.Kind, missing)
		}
	}
}

// A small file that unpacks to many rows takes no memory for them.
func TestDescribeBomb(t *testing.T) {
	describeBomb(t, "bomb.csv.gz", "1,x\n", 2_000_000)
	describeBomb(t, "bomb.jsonl.gz", `{"a": 1, "b": "x"}`+"\n", 2_000_000)
	describeBomb(t, "long.jsonl.gz", `{"a": 1, "b": "`+strings.Repeat("x", 100_000)+`"}`+"\n", 2_000)
}

func describeBomb(t *testing.T, name, row string, rows int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(f)
	for range rows / 100 {
		_, _ = packed.Write([]byte(strings.Repeat(row, 100)))
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := Describe(path)
	runtime.ReadMemStats(&after)
	if err != nil || *d.Rows != int64(rows) || d.Columns[0].Type != "int64" || d.Columns[1].Type != "text" {
		t.Fatalf("%+v, %v", d, err)
	}
	if grown := after.HeapSys - before.HeapSys; after.HeapSys > before.HeapSys && grown > 32<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// A file whose name says idx is idx, or damaged.
func TestDescribeDamagedIDX(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"train-images-idx3-ubyte": "not an idx file", "a.idx": "not an idx file", "notes-idx.txt": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("damaged\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Describe(filepath.Join(dir, name))
		if want == "" && (err != nil || d.Format != "text") || want != "" && (err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}
