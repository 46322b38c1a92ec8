package data

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.starlark.net/starlark"

	"drun/internal/memory"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data/table"
	"drun/tensor"
)

// fileReaders are the builtins that read a file.
var fileReaders = map[string]func(files *starlib.Files, ctx *tensor.Context, name string) error{
	"text":  func(f *starlib.Files, _ *tensor.Context, name string) error { _, err := readText(f, name); return err },
	"bytes": func(f *starlib.Files, _ *tensor.Context, name string) error { _, err := readAll(f, name); return err },
	"npy": func(f *starlib.Files, c *tensor.Context, name string) error {
		_, err := read(f, c, name, one(parseNPY))
		return err
	},
	"idx": func(f *starlib.Files, c *tensor.Context, name string) error {
		_, err := read(f, c, name, one(parseIDX))
		return err
	},
	"npz": func(f *starlib.Files, c *tensor.Context, name string) error {
		_, err := read(f, c, name, parseNPZ)
		return err
	},
	"safetensors": func(f *starlib.Files, c *tensor.Context, name string) error {
		_, err := read(f, c, name, tensorsOfSafetensors)
		return err
	},
	"csv": func(f *starlib.Files, c *tensor.Context, name string) error {
		in, _, file, err := open(f, name)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = parseCSV(name, in, ',', nil, f.Largest)
		return err
	},
}

// folder writes files and opens their folder, with 1 MB for a plain value.
func folder(t *testing.T, content map[string][]byte) (*starlib.Files, string) {
	t.Helper()
	dir := t.TempDir()
	for name, b := range content {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := starlib.OpenFiles(dir, "/dev")
	if err != nil {
		t.Fatal(err)
	}
	files.Largest = 1 << 20
	return files, dir
}

// What is no regular file, or no file of the format, or would take too much memory,
// is an error of every reader that names the file; soon, and from small memory.
func TestHostileFiles(t *testing.T) {
	var bomb, archive bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 100 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	z.Close()
	a := zip.NewWriter(&archive)
	w, err := a.Create("x.npy")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (26214400,)}", ""))
	for range 100 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	files, dir := folder(t, map[string][]byte{"bomb": bomb.Bytes(), "bomb.npz": archive.Bytes(), "garbage": []byte("\x00\x01garbage \xff")})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "garbage"), 15); err != nil {
		t.Fatal(err)
	}
	sparse := filepath.Join(dir, "sparse")
	if err := os.WriteFile(sparse, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Skipf("the file system of %s has no sparse files: set TMPDIR", dir)
	}
	memory.Share(max(1, memory.Limit()>>24), 0) // 16 MB
	defer memory.Share(1, 0)
	for reader, read := range fileReaders {
		plain := reader == "text" || reader == "bytes"
		for name, want := range map[string]string{
			"fifo": "fifo: it is not a regular file", "folder": "folder: it is a folder", "zero": "zero: it is not a regular file",
			"missing": "missing: no such file", "bomb": "bomb: ", "sparse": "sparse: ", "garbage": "garbage: ", "bomb.npz": "bomb.npz: ",
		} {
			switch {
			case reader == "bytes" && name == "garbage", plain && name == "bomb.npz" && reader == "bytes":
				continue // as good as any
			case plain && name == "sparse":
				want = "sparse: it has 1099511627776 bytes, and one value may take at most 1048576"
			case plain && name == "bomb":
				want = "bomb: it unpacks to more than the 1048576 bytes that one value may take"
			case reader == "csv" && (name == "sparse" || name == "bomb"):
				want = name + ": after line 0: a line of more than 67108864 bytes"
			case reader != "csv" && !plain && (name == "sparse" || name == "bomb"):
				want = name + ": empty: cannot allocate"
			case reader == "npz" && name == "bomb.npz":
				want = "bomb.npz: x.npy: empty: cannot allocate"
			}
			start := time.Now()
			err := read(files, tensor.NewContext(), name)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("data.%s(%q): %v\nwant %s", reader, name, err, want)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("data.%s(%q) took %s", reader, name, took)
			}
		}
	}
}

// Arrays whose bytes are in another order or type come out as numbers, in each
// combination of both with the order of dimensions.
func TestArrayLayouts(t *testing.T) {
	for _, kind := range []string{"i2", "u2", "u4", "i4", "i8", "f4", "f8", "u8"} {
		for _, order := range []string{"<", ">"} {
			for _, columns := range []bool{false, true} {
				want := []float64{0, 1, 2, 253, 4, 32767}
				var body []byte
				for i := range want {
					if columns { // (2, 3): element i of the file is at column i/2, row i%2
						body = appendElement(body, kind, order, want[i%2*3+i/2])
					} else {
						body = appendElement(body, kind, order, want[i])
					}
				}
				flag := map[bool]string{false: "False", true: "True"}[columns]
				file := npy("{'descr': '"+order+kind+"', 'fortran_order': "+flag+", 'shape': (2, 3)}", string(body))
				a, err := parseNPY([]byte(file))
				if err != nil {
					t.Fatal(err)
				}
				x, err := a.tensor(tensor.NewContext())
				if err != nil {
					t.Fatal(err)
				}
				if x, err = tensor.Cast(x, dtype.Float64); err != nil {
					t.Fatal(err)
				}
				if got := view[float64](x.Bytes()); !slices.Equal(got, want) {
					t.Errorf("%s%s, columns %v: %v", order, kind, columns, got)
				}
			}
		}
	}
}

func appendElement(b []byte, kind, order string, v float64) []byte {
	var o binary.AppendByteOrder = binary.LittleEndian
	if order == ">" {
		o = binary.BigEndian
	}
	switch kind {
	case "i2", "u2":
		return o.AppendUint16(b, uint16(v))
	case "i4", "u4":
		return o.AppendUint32(b, uint32(v))
	case "f4":
		return o.AppendUint32(b, math.Float32bits(float32(v)))
	case "f8":
		return o.AppendUint64(b, math.Float64bits(v))
	}
	return o.AppendUint64(b, uint64(v))
}

// Labels that are integers are exact, or an error says which is not.
func TestLargeLabels(t *testing.T) {
	last := starlark.MakeInt(-1)
	for text, want := range map[string]any{
		"1,9007199254740993\n":                   []int64{9007199254740993},
		"1,-9223372036854775808\n":               []int64{math.MinInt64},
		"1,3.0\n1,1e3\n1,9007199254740991\n":     []int64{3, 1000, 9007199254740991},
		"1,9223372036854775808\n":                "f.csv: line 1, column 2: 9223372036854775808 does not fit int64",
		"1,2\n1,99999999999999999999999999999\n": "f.csv: line 2, column 2: 99999999999999999999999999999 does not fit int64",
	} {
		got, err := parseCSV("f.csv", strings.NewReader(text), ',', last, 0)
		switch want := want.(type) {
		case string:
			if err == nil || err.Error() != want {
				t.Errorf("%q: %v", text, err)
			}
		case []int64:
			if err != nil || !got.classes || !slices.Equal(got.integers, want) {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
		}
	}
	for _, text := range []string{"1,2\n1,0.5\n", "1,nan\n", "1,inf\n", "1,1e300\n"} {
		if got, err := parseCSV("f.csv", strings.NewReader(text), ',', last, 0); err != nil || got.classes {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A table takes no more than it may, wherever its size shows.
func TestCSVLimit(t *testing.T) {
	text := strings.Repeat("1,2,3\n", 1000)
	if _, err := parseCSV("f.csv", strings.NewReader(text), ',', nil, 12000); err != nil {
		t.Error(err)
	}
	if _, err := parseCSV("f.csv", strings.NewReader(text), ',', nil, 11999); err == nil || !strings.HasPrefix(err.Error(), "f.csv: line 1000: the numbers up to here take 12000 bytes, and a file of numbers may take at most 11999") {
		t.Error(err)
	}
	long := "1,2\n\"" + strings.Repeat("\n", table.MaxRecord+1<<20)
	if _, err := parseCSV("f.csv", strings.NewReader(long), ',', nil, 0); err == nil || err.Error() != "f.csv: after line 1: a line of more than 67108864 bytes, or a quote that is not closed" {
		t.Error(err)
	}
}

// Whatever the text, the table has what it says, or an error names the file; labels
// that are integers are those of the text.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"1,2\n3,4\n", "a,b\n1,2", "\ufeff1, 2\r\n", "1,\"2\n\"\n", "1,9007199254740993\n", "1,-0\n", "nan,inf\n", "1e400,1\n", ",\n", "\"", "0x1p4,1\n", "1_0,1\n"} {
		f.Add(text)
	}
	last := starlark.MakeInt(-1)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseCSV("f.csv", strings.NewReader(text), ',', last, 0)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.csv: ") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if got.rows < 1 || len(got.features) != got.rows*got.cols || len(got.labels) != got.rows || got.classes && len(got.integers) != got.rows {
			t.Errorf("%q: %+v", text, got)
		}
		if got.classes && got.rows == 1 && !strings.ContainsAny(text, "\"\r\ufeff") {
			if n, ok := new(big.Int).SetString(strings.TrimSpace(text[strings.LastIndexByte(strings.TrimRight(text, "\n"), ',')+1:]), 10); ok && n.String() != strconv.FormatInt(got.integers[0], 10) {
				t.Errorf("%q: label %d", text, got.integers[0])
			}
		}
	})
}
