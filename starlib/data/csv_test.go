package data

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.starlark.net/starlark"

	"drun/starlib"
)

func TestCSV(t *testing.T) {
	last, first, none := starlark.MakeInt(-1), starlark.MakeInt(0), starlark.None
	for _, c := range []struct {
		name, text string
		label      starlark.Value
		cols       int
		features   []float32
		labels     []float64
		classes    bool
	}{
		{"plain", "1,2\n3,4\n", none, 2, []float32{1, 2, 3, 4}, nil, true},
		{"no newline at the end", "1,2\n3,4", none, 2, []float32{1, 2, 3, 4}, nil, true},
		{"header, byte order mark, spaces, CRLF, empty line", "\ufeffa,\"b, c\"\r\n 1 , 2.5\r\n\r\n-3e2,4\r\n", none, 2, []float32{1, 2.5, -300, 4}, nil, true},
		{"last column", "1,2,0\n3,4,9\n", last, 2, []float32{1, 2, 3, 4}, []float64{0, 9}, true},
		{"first column", "0.5,2\n9,4\n", first, 1, []float32{2, 4}, []float64{0.5, 9}, false},
		{"only labels", "1\n2\n", first, 0, nil, []float64{1, 2}, true},
		{"infinity", "inf,1\n", none, 2, []float32{float32(inf()), 1}, nil, true},
	} {
		got, err := parseCSV("f.csv", strings.NewReader(c.text), ',', c.label, 0)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.cols != c.cols || !slices.Equal(got.features, c.features) || !slices.Equal(got.labels, c.labels) || got.classes != c.classes {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
}

func inf() float64 { f := 1e308; return f * 10 }

func TestBadCSVIsLocated(t *testing.T) {
	five := starlark.MakeInt(5)
	for text, want := range map[string]string{
		"1,2\n3\n":               "f.csv: line 2, column 2: the line has 1 columns, but line 1 has 2",
		"1,2\n3,4,5\n":           "f.csv: line 2, column 3: the line has 3 columns, but line 1 has 2",
		"1,2\n\n3,x\n":           `f.csv: line 3, column 2: "x" is not a number: data.table reads columns of text, too`,
		"a,b\n1,\n":              `f.csv: line 2, column 2: "" is not a number: data.table reads columns of text, too`,
		"1;2\n3;4\n":             `f.csv: line 2, column 1: "3;4" is not a number: set delimiter = ";"`,
		"1,b\n1,2\n":             `f.csv: line 1, column 2: "b" is not a number: data.table reads columns of text, too`,
		"1,1e40\n":               "f.csv: line 1, column 2: 1e40 does not fit float32",
		"1,\"2\n":                "f.csv: line 1, column 6: extraneous or missing \" in quoted-field",
		"":                       "f.csv: no rows of numbers",
		"a,b\n":                  "f.csv: no rows of numbers",
		"\"multi\nline\",b\n1,y": `f.csv: line 3, column 2: "y" is not a number: data.table reads columns of text, too`,
	} {
		if _, err := parseCSV("f.csv", strings.NewReader(text), ',', nil, 0); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
	if _, err := parseCSV("f.csv", strings.NewReader("1,2\n"), ',', five, 0); err == nil || err.Error() != "f.csv: label = 5, but there are 2 columns: valid are -2 to 1" {
		t.Errorf("label out of range: got error %v", err)
	}
}

// Gzip is known by its content, whatever the name; a damaged file is an error.
func TestFilesAreUnpacked(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"packed.txt": packed.Bytes(), "plain.gz": []byte("hello"), "empty": nil,
		"cut.gz": packed.Bytes()[:packed.Len()-6], "magic": []byte("\x1f\x8b"), "binary": []byte("\xff\xfe"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := starlib.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"packed.txt": "hello", "plain.gz": "hello", "empty": ""} {
		if got, err := readText(files, name); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"cut.gz": "cut.gz: truncated: the gzip data ends early", "magic": "magic: ", "binary": "binary: not UTF-8 text; read it with data.bytes", "missing": "missing: no such file",
	} {
		if _, err := readText(files, name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", name, err, want)
		}
	}
}

func BenchmarkCSV(b *testing.B) {
	text := strings.Repeat(strings.Repeat("12,", 64)+"7\n", 1797)
	label := starlark.MakeInt(-1)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := parseCSV("f.csv", strings.NewReader(text), ',', label, 0); err != nil {
			b.Fatal(err)
		}
	}
}
